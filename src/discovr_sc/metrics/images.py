"""Metrics of image reconstructions. Images are (n, channels, height, width), values in [0, 1]."""

import numpy as np
from numpy.typing import ArrayLike

from .checks import as_codes, as_vector, check_same_length

#: From this brightness on, a pixel belongs to the digit.
DIGIT_LEVEL = 0.5


def color_gap(reconstruction: ArrayLike, shape: ArrayLike) -> float:
    """Mean absolute difference of red and green on the pixels of a digit: 0 where all digits are of one mixed colour.

    Parameters
    ----------
    reconstruction, shape
        Images (n, 3, height, width) in red, green, blue, and the digits' brightness, (n, height, width), of which
        pixels of at least one half are looked at.

    Examples
    --------
    >>> digit = np.ones((1, 2, 2))
    >>> round(color_gap(np.stack([0.7 * digit, 0.4 * digit, digit], axis=1), digit), 3)
    0.3
    """
    reconstruction, shape = np.asarray(reconstruction, dtype=float), np.asarray(shape, dtype=float)
    if reconstruction.ndim != 4 or reconstruction.shape[1] != 3:
        raise ValueError(f"reconstruction has shape {reconstruction.shape}; pass images (n, 3, height, width)")
    if shape.shape != (n_and_size := (len(reconstruction), *reconstruction.shape[2:])):
        raise ValueError(f"shape is of {shape.shape}; pass (n, height, width), here {n_and_size}")
    digit = shape >= DIGIT_LEVEL
    if not digit.any():
        raise ValueError(f"shape has no pixel of at least {DIGIT_LEVEL}; pass brightness from 0 to 1")
    return float(np.abs(reconstruction[:, 0] - reconstruction[:, 1])[digit].mean())


def half_squared_error(reconstruction: ArrayLike, x: ArrayLike) -> float:
    """Half the squared error summed over an image, its mean over images; of arrays of one shape, images first.

    The negative log-likelihood, in nats per image, of a Gaussian of unit scale around the reconstruction, without its
    constant: the scale of the paper's likelihoods of images.

    Examples
    --------
    >>> half_squared_error([[0.5, 1.0]], [[0.0, 0.0]])
    0.625
    """
    reconstruction, x = np.asarray(reconstruction, dtype=np.float32), np.asarray(x, dtype=np.float32)
    if reconstruction.shape != x.shape or x.size == 0:
        raise ValueError(f"reconstruction has shape {reconstruction.shape} and x {x.shape}; pass arrays of one shape")
    return float(np.square(reconstruction - x).sum(dtype=float) / (2 * len(x)))


def attribute_gap(scores: ArrayLike, labels: ArrayLike) -> float:
    """Absolute difference of a classifier's mean scores between images that had an attribute and images that had not.

    On reconstructions from z alone it is near 0 where z does not tell the attribute. Scores are probabilities of it,
    (n,), labels of two kinds whether the originals had it, (n,).

    Examples
    --------
    >>> round(attribute_gap([0.9, 0.7, 0.4, 0.6], [1, 1, 0, 0]), 3)
    0.3
    """
    values, codes = as_vector("scores", scores), as_codes("labels", labels, at_least=2)
    check_same_length(scores=values, labels=codes)
    if codes.max() > 1:
        raise ValueError(f"labels has {codes.max() + 1} kinds; pass two, with and without the attribute")
    return float(abs(values[codes == 1].mean() - values[codes == 0].mean()))
