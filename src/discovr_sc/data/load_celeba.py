"""CelebA: faces with and without an attribute, such as eyeglasses."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from PIL import Image

from .adapters import tensors_to_anndata
from .cache import DATA_VARIABLE, find_first

ATTRIBUTES_FILE = "list_attr_celeba.txt"
IMAGES = "img_align_celeba"


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
    root
        Folder that must have the files.
    attribute
        One of the 40, such as `"Eyeglasses"` or `"Wearing_Hat"`.
    n_with
        How many faces with the attribute to draw at random; all by default.
    size
        Height and width of the result. Images are cropped to the largest centred square, and resized.
    seed
        Of the draws.
    cache
        Folder to use in place of the user's cache.

    Returns
    -------
    AnnData
        `obsm["x"]`: bytes, (n, 3, size, size). `obs["condition"]`: `"without"` or `"with"`. Names are those of the
        files, in their order.

    Raises
    ------
    FileNotFoundError
        If a file is nowhere.
    ValueError
        If the attribute is unknown, or there are not enough images.

    Examples
    --------
    >>> adata = celeba(attribute="Wearing_Hat")  # doctest: +SKIP
    >>> adata.obsm["x"].shape[1:]  # doctest: +SKIP
    (3, 64, 64)
    """
    if size < 1:
        raise ValueError(f"size is {size}; pass a number of pixels of at least 1.")
    table_path = _find([ATTRIBUTES_FILE], ("", "Anno/"), root, cache)
    images_path = _find([IMAGES, f"{IMAGES}.zip"], ("", "Img/"), root, cache)
    has = _read_attribute(table_path, attribute)
    chosen = _choose(has, n_with, attribute, np.random.default_rng(seed))
    images = np.empty((len(chosen), 3, size, size), np.uint8)
    with _reader(images_path) as read:
        for i, name in enumerate(chosen):
            images[i] = _square(read(name), size)
    condition = pd.Categorical.from_codes(has[chosen].astype(int), ["without", "with"])
    return tensors_to_anndata(images, condition, obs=pd.DataFrame(index=chosen))


def _find(names: list[str], folders: tuple[str, ...], root: str | Path | None, cache: str | Path | None) -> Path:
    places = [f"{above}{folder}{name}" for above in ("celeba/", "") for folder in folders for name in names]
    path = find_first(places, root=root, cache=cache)
    if path is None:
        where = "no folder has" if root is None else f"root {str(root)!r} has no"
        raise FileNotFoundError(
            f"CelebA: {where} {' or '.join(names)}. Get the aligned and cropped images ({IMAGES}.zip) and the "
            f"attributes ({ATTRIBUTES_FILE}) from the authors' page, put both in a folder and pass it as root=, or in "
            f"a folder celeba below the one that {DATA_VARIABLE} names. The zip file need not be unpacked."
        )
    return path


def _read_attribute(path: Path, attribute: str) -> pd.Series:
    """Whether each image has the attribute, by file name. The first line has their number, the second the names."""
    table = pd.read_csv(path, sep=r"\s+", skiprows=1)
    if attribute not in table:
        raise ValueError(f"attribute is {attribute!r}, which {path.name} does not have; choose from {list(table)}.")
    return table[attribute] == 1


def _choose(has: pd.Series, n_with: int | None, attribute: str, rng: np.random.Generator) -> list[str]:
    names_with, names_without = has.index[has].to_numpy(), has.index[~has].to_numpy()
    n = len(names_with) if n_with is None else n_with
    if not 1 <= n <= len(names_with) or 2 * n > len(names_without):
        raise ValueError(
            f"n_with is {n_with}, but there are {len(names_with)} images with {attribute} and {len(names_without)} "
            "without, of which twice as many are taken; pass a number that leaves enough of both."
        )
    return sorted([*rng.choice(names_with, n, replace=False), *rng.choice(names_without, 2 * n, replace=False)])


@contextmanager
def _reader(path: Path):
    """A function from the name of an image to its bytes."""
    if path.is_dir():
        yield _complaining(lambda name: (path / name).read_bytes(), path)
        return
    with zipfile.ZipFile(path) as archive:
        yield _complaining(lambda name: archive.read(f"{IMAGES}/{name}"), path)


def _complaining(read: Callable[[str], bytes], path: Path) -> Callable[[str], bytes]:
    def read_or_say(name: str) -> bytes:
        try:
            return read(name)
        except (FileNotFoundError, KeyError) as error:
            raise FileNotFoundError(
                f"{path} has no image {name}, which {ATTRIBUTES_FILE} lists; complete it, or drop the line."
            ) from error

    return read_or_say


def _square(content: bytes, size: int) -> np.ndarray:
    """The largest centred square of an image, resized: (3, size, size)."""
    with Image.open(io.BytesIO(content)) as image:
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        pixels = square.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(pixels).transpose(2, 0, 1)
