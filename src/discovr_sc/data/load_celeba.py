"""CelebA: faces with and without an attribute, such as eyeglasses."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from PIL import Image

from .adapters import tensors_to_anndata
from .cache import DATA_VARIABLE, find_image_file

ATTRIBUTES_FILE = "list_attr_celeba.txt"
IMAGES = "img_align_celeba"
ADVICE = (
    f"Get CelebA's aligned and cropped images ({IMAGES}.zip) and attributes ({ATTRIBUTES_FILE}) from the authors' "
    f"page, put both in a folder and pass it as root=, or in a folder celeba below the one that {DATA_VARIABLE} names. "
    "The zip file need not be unpacked."
)


def celeba(
    root: str | Path | None = None,
    *,
    attribute: str = "Eyeglasses",
    n_with: int | None = None,
    size: int = 64,
    seed: int = 0,
    cache: str | Path | None = None,
) -> AnnData:
    """Load the aligned faces of CelebA that have an attribute, and twice as many that do not.

    The official files `list_attr_celeba.txt` and `img_align_celeba.zip` (or the unpacked folder `img_align_celeba`) are
    looked for in `root` (as they are, in the official folders `Anno` and `Img`, or below `root/celeba`), else in the
    folder that the environment variable DISCOVR_SC_DATA names, else in the cache. CelebA may be used for non-commercial
    research, and not passed on; it is not fetched from anywhere.

    Parameters
    ----------
    root, cache
        See :func:`kang`.
    attribute
        One of the 40, such as `"Eyeglasses"` or `"Wearing_Hat"`.
    n_with, seed
        How many faces with the attribute to draw at random, all by default; seed of the draws.
    size
        Height and width of the result. Images are cropped to the largest centred square, and resized.

    Returns
    -------
    AnnData with `obsm["x"]`: bytes, (n, 3, size, size), and `obs["condition"]`: `"without"` or `"with"`. Names are
    those of the files, in their order.

    Examples
    --------
    >>> adata = celeba(attribute="Wearing_Hat")  # doctest: +SKIP
    >>> adata.obsm["x"].shape[1:]  # doctest: +SKIP
    (3, 64, 64)
    """
    if size < 1:
        raise ValueError(f"size is {size}; pass a number of pixels of at least 1.")
    folders = ["celeba/", "celeba/Anno/", "celeba/Img/", "", "Anno/", "Img/"]
    table_path = find_image_file([ATTRIBUTES_FILE], folders, ADVICE, root=root, cache=cache)
    images_path = find_image_file([IMAGES, f"{IMAGES}.zip"], folders, ADVICE, root=root, cache=cache)
    table = pd.read_csv(table_path, sep=r"\s+", skiprows=1)  # Line 1 has the number of images, line 2 the attributes.
    if attribute not in table:
        raise ValueError(f"attribute is {attribute!r}, which {table_path.name} has not; choose from {list(table)}.")
    has = table[attribute] == 1
    chosen = _choose(has, n_with, attribute, np.random.default_rng(seed))
    images = np.empty((len(chosen), 3, size, size), np.uint8)
    for i, content in enumerate(_contents(images_path, chosen)):
        images[i] = _square(content, size)
    condition = pd.Categorical.from_codes(has[chosen].astype(int), ["without", "with"])
    return tensors_to_anndata(images, condition, obs=pd.DataFrame(index=chosen))


def _choose(has: pd.Series, n_with: int | None, attribute: str, rng: np.random.Generator) -> list[str]:
    names_with, names_without = has.index[has].to_numpy(), has.index[~has].to_numpy()
    n = len(names_with) if n_with is None else n_with
    if not 1 <= n <= len(names_with) or 2 * n > len(names_without):
        raise ValueError(
            f"n_with is {n_with}, but there are {len(names_with)} images with {attribute} and {len(names_without)} "
            "without, of which twice as many are taken; pass a number that leaves enough of both."
        )
    return sorted([*rng.choice(names_with, n, replace=False), *rng.choice(names_without, 2 * n, replace=False)])


def _contents(path: Path, names: list[str]) -> Iterator[bytes]:
    """The bytes of images in a folder or a zip file."""
    with nullcontext() if path.is_dir() else zipfile.ZipFile(path) as archive:
        folder = path if archive is None else zipfile.Path(archive, f"{IMAGES}/")
        for name in names:
            try:
                content = (folder / name).read_bytes()
            except FileNotFoundError as error:
                missing = f"{path} has no image {name}, which {ATTRIBUTES_FILE} lists"
                raise FileNotFoundError(f"{missing}; complete it, or drop the line.") from error
            yield content


def _square(content: bytes, size: int) -> np.ndarray:
    """The largest centred square of an image, resized: (3, size, size)."""
    with Image.open(io.BytesIO(content)) as image:
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        pixels = square.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(pixels).transpose(2, 0, 1)
