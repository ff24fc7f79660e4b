"""Comparisons with a known answer: analytic posteriors of the parametric model, Bayes accuracy, marginal.

The parametric model is x = z + w with z, w ~ N(0, 1) and y = 1[w > 0]. Its posteriors are

    p(z | x)    = N(x/2, 1/2),
    p(w | x, y) = N(x/2, 1/2) truncated to w > 0 where y = 1 and to w <= 0 where y = 0.

A model learns z and w only up to their signs: negating a latent and its decoder's input changes nothing a model is
trained on. With ``align=True`` the functions below compare under the better of the two signs.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr, ndtri_exp
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from .checks import as_labelled, as_vector, check_same_length

_SD = np.sqrt(0.5)  # standard deviation of z and of the untruncated w given x
LOG_EPSILON = float(np.log(np.finfo(float).eps))
_QUADRATURE_NODES = 64


def delta_bayes(x: ArrayLike, y: ArrayLike, optimum: float, *, seed: int = 0) -> float:
    """Deviation of a Gaussian naive Bayes classifier's accuracy from the best possible one, in percentage points.

    The classifier is fitted on a stratified half of the rows and scored on the other half. Both directions count: an
    accuracy above the optimum means the labels themselves, and not what can be known of them, are stored in x.

    Parameters
    ----------
    x, y
        Latents or reconstructed data, shape (n,) or (n, d), and labels, shape (n,).
    optimum, seed
        Accuracy of the Bayes classifier, a fraction in [0, 1], and the seed of the split.

    Examples
    --------
    >>> y = np.arange(1000) % 2
    >>> delta_bayes(10.0 * y, y, optimum=0.75)
    25.0
    """
    if not 0 <= optimum <= 1:
        raise ValueError(f"optimum is {optimum}; pass the Bayes accuracy as a fraction between 0 and 1")
    x, codes = as_labelled(x, y, "y")
    if np.bincount(codes).min() < 2:
        raise ValueError("y has a label with a single row; each needs two, one to fit on and one to score on")
    x_train, x_test, y_train, y_test = train_test_split(x, codes, test_size=0.5, stratify=codes, random_state=seed)
    # A collapsed latent leaves naive Bayes without a variance to divide by; all it can do is guess the majority.
    classifier = GaussianNB() if x_train.std(axis=0).any() else DummyClassifier(strategy="prior")
    return float(100 * abs(classifier.fit(x_train, y_train).score(x_test, y_test) - optimum))


def marginal_rmse(reconstruction: ArrayLike, target: ArrayLike) -> float:
    """Root mean squared error, over all entries, between reconstructions from z alone and the true marginal.

    The latter is what the label-averaged data look like; both are of one shape and in the units of the data.

    Examples
    --------
    >>> round(marginal_rmse([[0.5, 0.5]], [[0.5, 0.9]]), 3)
    0.283
    """
    reconstruction, target = np.asarray(reconstruction, dtype=float), np.asarray(target, dtype=float)
    if reconstruction.shape != target.shape or target.size == 0:
        raise ValueError(f"reconstruction has shape {reconstruction.shape} and target {target.shape}; pass one shape")
    error = np.sqrt(np.mean((reconstruction - target) ** 2))
    if not np.isfinite(error):
        raise ValueError("reconstruction or target has NaN or infinite values; remove those rows first")
    return float(error)


def posterior_kl_z(loc: ArrayLike, scale: ArrayLike, x: ArrayLike, *, align: bool = True) -> float:
    """Mean over rows of KL(N(loc, scale^2) || p(z | x)) for the parametric model, in nats.

    The arguments, shapes (n,) or (n, 1), are means and standard deviations of q(z | x), and observations; ``align`` is
    whether to take the better sign of z, one for all cells, as a model learns it only up to its sign.

    Examples
    --------
    >>> x = np.linspace(-2, 2, 5)
    >>> round(posterior_kl_z(-x / 2, np.full(5, np.sqrt(0.5)), x), 6)
    0.0
    """
    loc, scale, x = _gaussian(loc, scale, x)

    def divergence(loc: NDArray) -> float:
        return float(np.mean(np.log(_SD / scale) + (scale**2 + (loc - x / 2) ** 2) / (2 * _SD**2) - 0.5))

    return _better_sign(divergence, loc, align)


def posterior_kl_w(
    loc: ArrayLike, scale: ArrayLike, x: ArrayLike, y: ArrayLike, *, floor: float = LOG_EPSILON, align: bool = True
) -> float:
    """Mean KL(N(loc, scale^2) || p(w | x, y)) for the parametric model, with a floor under the log-density.

    A Gaussian has mass where the truncated normal has none, so the divergence is infinite. Here log p(w | x, y) is
    replaced by max(log p, floor), and the expectation under q is then exact (closed form), in nats. It can fall below 0
    a little, as the floored density does not integrate to 1.

    The default, log(2.2e-16) = -36.04, is what adding the double precision epsilon to a density amounts to. The paper
    states no floor; this one lands on its scale. Ignoring the label, q = N(x/2, 1/2), gives 11.4 (the paper's methods
    that do so: 12.9 +- 3.3). The separable prior taken as posterior, N(3, 1) for y = 0 and N(0, 0.1^2) for y = 1, gives
    27 without and 13 with alignment (the paper's separable methods: 24 to 26, so perhaps unaligned). The value scales
    with the floor: roughly the wrong-side mass times -floor.

    Parameters
    ----------
    loc, scale, x, y
        Means and standard deviations of q(w | x, y), observations, shapes (n,) or (n, 1), and labels 0 and 1, (n,).
    floor
        Lower bound on the log-density in nats, at most -10 so that it lies under the density's bulk.
    align
        Whether to take the better sign of w, one for all cells: it goes with the labels, so that a model that puts y =
        1 at negative w is not punished for it.

    Examples
    --------
    >>> x, y = [-1.0, 1.0], [0, 1]
    >>> posterior_kl_w([-0.9, 0.9], [0.3, 0.3], x, y) < 1 < posterior_kl_w([0.0, 0.0], [0.7, 0.7], x, y)
    True
    """
    if not floor <= -10:
        raise ValueError(f"floor is {floor}; pass a log-density of at most -10, or leave the default")
    loc, scale, x = _gaussian(loc, scale, x)
    side = _sides(y, x)
    centre = side * x / 2  # of p(side * w | x, y), which is truncated to positive values for every cell
    log_mass = log_ndtr(centre / _SD)
    # log p = constant - (w - centre)^2 above the floor, that is within `reach` of the centre.
    constant = -0.5 * np.log(np.pi) - log_mass
    reach = np.sqrt(constant - floor)

    def divergence(loc: NDArray) -> float:
        mean = side * loc
        lower = (np.maximum(0.0, centre - reach) - mean) / scale
        upper = (centre + reach - mean) / scale
        inside = ndtr(upper) - ndtr(lower)
        at_lower, at_upper = (np.exp(-0.5 * end**2) / np.sqrt(2 * np.pi) for end in (lower, upper))
        # Moments of (w - centre) under q, restricted to the interval above the floor.
        first = 2 * scale * (mean - centre) * (at_lower - at_upper)
        second = scale**2 * (inside + lower * at_lower - upper * at_upper)
        square = second + first + (mean - centre) ** 2 * inside
        cross_entropy = -(constant * inside - square + floor * (1 - inside))
        entropy = np.log(scale) + 0.5 * np.log(2 * np.pi * np.e)
        return float(np.mean(cross_entropy - entropy))

    return _better_sign(divergence, loc, align)


def posterior_wasserstein_w(
    loc: ArrayLike, scale: ArrayLike, x: ArrayLike, y: ArrayLike, *, align: bool = True
) -> float:
    """Mean 2-Wasserstein distance between N(loc, scale^2) and p(w | x, y) for the parametric model.

    Unlike the divergence it is finite without a floor. In one dimension it is the root mean squared difference of the
    two quantile functions, in the units of w. The arguments are those of :func:`posterior_kl_w`.

    Examples
    --------
    >>> round(posterior_wasserstein_w([2.0], [0.5**0.5], [10.0], [1]), 3)  # |2 - 10/2|: no truncation there
    3.0
    """
    loc, scale, x = _gaussian(loc, scale, x)
    side = _sides(y, x)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_NODES)
    weights = weights / weights.sum()
    target = _positive_quantile(log_ndtr(-nodes), (side * x / 2)[:, None])  # (n, nodes)

    def distance(loc: NDArray) -> float:
        quantiles = (side * loc)[:, None] + scale[:, None] * nodes
        return float(np.mean(np.sqrt((quantiles - target) ** 2 @ weights)))

    return _better_sign(distance, loc, align)


def sample_parametric_posterior(
    x: ArrayLike, y: ArrayLike, *, truncated: bool = True, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw z and w, each (n,), from the parametric model's posteriors, independently of each other given x and y.

    These are observations, shape (n,) or (n, 1), and labels 0 and 1, (n,). w follows p(w | x, y), the truth, or, not
    truncated, p(w | x), which ignores the label.

    Examples
    --------
    >>> z, w = sample_parametric_posterior([0.0, 0.0], [0, 1])
    >>> (w > 0).tolist()
    [False, True]
    """
    x = as_vector("x", x)
    side = _sides(y, x)
    rng = np.random.default_rng(seed)
    z = x / 2 + _SD * rng.normal(size=len(x))
    if truncated:
        return z, side * _positive_quantile(-rng.exponential(size=len(x)), side * x / 2)
    return z, x / 2 + _SD * rng.normal(size=len(x))


def _positive_quantile(log_above: NDArray, centre: NDArray) -> NDArray:
    """Quantiles of N(centre, 1/2) truncated to positive values, from the log of the mass above them.

    Logarithms throughout, because a label at odds with x leaves a truncated mass of the order of 1e-10.
    """
    return np.maximum(0.0, centre - _SD * ndtri_exp(log_above + log_ndtr(centre / _SD)))


def _better_sign(metric: Callable[[NDArray], float], loc: NDArray, align: bool) -> float:
    return min(metric(loc), metric(-loc)) if align else metric(loc)


def _gaussian(loc: ArrayLike, scale: ArrayLike, x: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    loc, scale, x = as_vector("loc", loc), as_vector("scale", scale), as_vector("x", x)
    check_same_length(loc=loc, scale=scale, x=x)
    if not (scale > 0).all():
        raise ValueError(f"scale has a value of {scale.min()}; pass standard deviations above 0")
    return loc, scale, x


def _sides(y: ArrayLike, x: NDArray) -> NDArray[np.float64]:
    """Sign of w that each label stands for: -1 for y = 0, +1 for y = 1."""
    y = as_vector("y", y)
    check_same_length(x=x, y=y)
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"y has values {np.unique(y)[:5].tolist()}; pass the labels 0 and 1")
    return 2 * y - 1
