"""Coloured MNIST: digits in two colours, with noisy labels of the colour."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData

from .adapters import tensors_to_anndata
from .cache import DATA_VARIABLE, find_image_file

#: Names of the idx files, of images and of labels.
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
ADVICE = (
    f"Put the four idx files of MNIST ({', '.join(name for pair in FILES.values() for name in pair)}; gzipped or not) "
    f"in a folder and pass it as root=, or in a folder mnist below the one that {DATA_VARIABLE} names."
)
RED, GREEN = 0, 1


def colored_mnist(
    root: str | Path | None = None,
    *,
    flip: float = 0.3,
    split: str = "train",
    n_digits: int | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
) -> AnnData:
    """Load MNIST in two colours: each digit without its red and without its green channel.

    The blue channel has the shape in both copies, so that the shape is what the conditions share and the colour what
    they add. The four idx files of MNIST, gzipped or not, are looked for in `root` (or `root/mnist`), else in the
    folder that the environment variable DISCOVR_SC_DATA names, else in the cache.

    Parameters
    ----------
    root, cache
        See :func:`kang`.
    flip
        Probability that a label is flipped, from 0 to 1, independently for every image.
    split
        `"train"` (60,000 digits) or `"test"` (10,000).
    n_digits, seed
        How many digits to draw at random, all by default; seed of the draw and the flips.

    Returns
    -------
    AnnData with two images per digit, in neighbouring rows. `obsm["x"]`: bytes, (n, 3, 28, 28). `obs`: `condition`
    (after the flips; "0" says that red was removed, "1" green), `condition_clean` (before) and `digit` ("0" to "9").
    Names tell the digit's place in the file and its copy.

    Examples
    --------
    >>> adata = colored_mnist(flip=0.1, n_digits=500)  # doctest: +SKIP
    >>> adata.obsm["x"].shape  # doctest: +SKIP
    (1000, 3, 28, 28)
    """
    if split not in FILES:
        raise ValueError(f"split is {split!r}; choose 'train' or 'test'.")
    if not 0 <= flip <= 1:
        raise ValueError(f"flip is {flip}; pass a probability from 0 to 1.")
    shapes, digits = (
        _read_idx(find_image_file([name, f"{name}.gz"], ["mnist/", ""], ADVICE, root=root, cache=cache))
        for name in FILES[split]
    )
    if len(shapes) != len(digits) or shapes.shape[1:] != (28, 28) or digits.ndim != 1:
        found = f"images of shape {shapes.shape} and labels of shape {digits.shape}"
        raise ValueError(f"The {split} files have {found}, which do not belong together; fetch both anew.")
    if n_digits is not None and not 1 <= n_digits <= len(shapes):
        raise ValueError(f"n_digits is {n_digits}; the {split} split has {len(shapes)}.")

    rng = np.random.default_rng(seed)
    chosen = np.arange(len(shapes)) if n_digits is None else rng.choice(len(shapes), n_digits, replace=False)
    source = np.repeat(chosen, 2)
    clean = np.tile([0, 1], len(chosen))
    images = np.repeat(shapes[source][:, None], 3, axis=1)
    images[clean == 0, RED] = 0
    images[clean == 1, GREEN] = 0
    noisy = clean ^ (rng.random(len(clean)) < flip)
    noisy_label, clean_label = (pd.Categorical.from_codes(y, ["0", "1"]) for y in (noisy, clean))
    digit = pd.Categorical.from_codes(digits[source], [str(digit) for digit in range(10)])
    names = [f"{i}-{copy}" for i, copy in zip(source, clean, strict=True)]
    obs = pd.DataFrame({"condition_clean": clean_label, "digit": digit}, index=names)
    return tensors_to_anndata(images, noisy_label, obs=obs)


def _read_idx(path: Path) -> np.ndarray:
    """Read an array of bytes: two zeros, type 8, number of dimensions, sizes (big-endian), values."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}); fetch it anew.") from error
    n_dims = content[3] if content[:3] == b"\x00\x00\x08" and len(content) > 3 else 0
    shape = tuple(np.frombuffer(content[4 : 4 + 4 * n_dims], ">u4")) if n_dims else ()
    values = np.frombuffer(content, np.uint8, offset=min(4 + 4 * n_dims, len(content)))
    if not shape or values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} is not a whole idx file of bytes; fetch it anew.")
    return values.reshape(shape)
