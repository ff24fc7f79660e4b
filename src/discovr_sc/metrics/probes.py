"""Can a label be read from an embedding? Classifiers fitted on some cells and scored on others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from .checks import as_labelled, as_mask, check_choice

Kind = Literal["linear", "knn", "boosting", "mlp"]
Codes = NDArray[np.intp]

_KINDS: tuple[Kind, ...] = get_args(Kind)
_TEST_SHARE, _NEIGHBOURS = 0.3, 15
_LEVEL = 95  # percent, of the interval and of the null's upper bound


@dataclass(frozen=True)
class ProbeResult:
    """Balanced accuracy of a probe on held-out cells."""

    accuracy: float  #: Mean over the labels of the share of their cells that was recognised; 1/K by chance.
    low: float  #: Bootstrap 95 % interval of ``accuracy`` over the held-out cells, the fitted probe kept: lower end.
    high: float  #: Its upper end.
    null_mean: float  #: Mean of the accuracy when predictions and held-out labels are paired at random.
    null_high: float  #: Its 95th percentile.
    p_value: float  #: Share of those random pairings at least as accurate, counting the one observed.
    kind: str  #: The classifier.
    n_train: int  #: Number of cells it was fitted on.
    n_test: int  #: Number of cells it was scored on.


def probe(
    x: ArrayLike,
    labels: ArrayLike,
    *,
    kind: Kind = "linear",
    train: ArrayLike | None = None,
    n_permutations: int = 1000,
    n_bootstrap: int = 1000,
    seed: int = 0,
) -> ProbeResult:
    """Fit a classifier that reads labels from an embedding, and score it on held-out cells.

    Columns are standardised on the training cells. Kinds are ``"linear"`` (logistic regression), ``"knn"`` (15
    neighbours), ``"boosting"`` (histogram gradient boosting) and ``"mlp"`` (two layers of 64, early stopping). Every
    label weighs the same in the fit, whatever its number of cells, so that unequal sizes do not tempt a probe to answer
    the most frequent label and hide what the embedding gives away.

    The null pairs the predictions with the held-out labels at random. It is the hypothesis that *this fitted probe's
    predictions* say nothing about the label of unseen cells; since those cells took no part in the fit, no refit is
    needed. It treats cells as exchangeable: labels that go with donors or batches need a split by donor, through
    ``train``.

    Parameters
    ----------
    x, labels, kind
        Embedding, shape (n,) or (n, d), labels, shape (n,), and the classifier.
    train
        Cells to fit on: a boolean mask of shape (n,), or indices. The others are held out. By default a random 70 % of
        each label.
    n_permutations, n_bootstrap, seed
        Numbers of random pairings and of bootstrap resamples (within labels), and the seed of all that is random.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(["ctrl", "stim"], 200)
    >>> result = probe(rng.normal(size=(400, 2)) + 8 * (labels == "stim")[:, None], labels)
    >>> result.accuracy, result.n_train, result.n_test
    (1.0, 280, 120)
    """
    check_choice("kind", kind, _KINDS)
    if n_permutations < 1 or n_bootstrap < 1:
        raise ValueError(f"n_permutations is {n_permutations}, n_bootstrap {n_bootstrap}; pass at least 1")
    points, codes = as_labelled(x, labels)
    fit_rows, test_rows = _split(codes, train, seed)
    points = StandardScaler().fit(points[fit_rows]).transform(points)
    predicted = _predict(kind, points[fit_rows], codes[fit_rows], points[test_rows], seed)
    truth = codes[test_rows]

    rng = np.random.default_rng(seed)
    sizes = np.bincount(truth)
    recalls = np.bincount(truth, weights=predicted == truth) / sizes
    accuracy = float(recalls.mean())
    # Resampling hits and misses within a label is drawing a binomial.
    resamples = (rng.binomial(sizes, recalls, size=(n_bootstrap, len(sizes))) / sizes).mean(axis=1)
    tail = (100 - _LEVEL) / 2
    low, high = np.percentile(resamples, [tail, 100 - tail])
    cell_weights = 1 / (len(sizes) * sizes[truth])
    null = np.array([cell_weights @ (rng.permutation(predicted) == truth) for _ in range(n_permutations)])
    # A pairing that ties with the observed one must count; the slack is for sums taken in another order.
    p_value = (1 + int((null >= accuracy - 1e-12).sum())) / (1 + n_permutations)
    of_null = float(null.mean()), float(np.percentile(null, _LEVEL)), p_value
    return ProbeResult(accuracy, float(low), float(high), *of_null, kind, len(fit_rows), len(test_rows))


def best_probe(x: ArrayLike, labels: ArrayLike, *, kinds: Sequence[Kind] = _KINDS, **settings: Any) -> ProbeResult:
    """Run :func:`probe` with several classifiers on one split and return the most accurate.

    The interval and the null are the winner's own: they do not allow for the choice among ``kinds``.

    Parameters
    ----------
    kinds
        The classifiers to try; the earlier wins where several are as accurate.
    x, labels, **settings
        Arguments of :func:`probe`.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(-1, 1, size=(600, 2))
    >>> checkerboard = x[:, 0] * x[:, 1] > 0
    >>> best_probe(x, checkerboard, kinds=("linear", "knn")).kind
    'knn'
    """
    if not kinds:
        raise ValueError(f"kinds is empty; pass some of {', '.join(_KINDS)}")
    results = [probe(x, labels, kind=kind, **settings) for kind in kinds]
    return max(results, key=lambda result: result.accuracy)


def _split(codes: Codes, train: ArrayLike | None, seed: int) -> tuple[Codes, Codes]:
    """Row numbers to fit on and to score on, every label present in both."""
    rows = np.arange(len(codes))
    if train is None:
        if np.bincount(codes).min() < 2:
            raise ValueError("labels has a label with a single cell; merge or drop labels that rare")
        fit_rows = train_test_split(rows, test_size=_TEST_SHARE, stratify=codes, random_state=seed)[0]
    else:
        fit_rows = rows[as_mask("train", train, len(rows))]
    fit_rows = np.unique(fit_rows)
    test_rows = np.setdiff1d(rows, fit_rows)
    for where, part, least in (("to fit on", fit_rows, 2), ("held out", test_rows, 1)):
        if (fewest := int(np.bincount(codes[part], minlength=codes.max() + 1).min())) < least:
            found = f"labels has a label with {fewest} cells {where}, where each needs {least}"
            raise ValueError(f"{found}; change train, or merge or drop rare labels")
    return fit_rows, test_rows


def _predict(kind: Kind, x: NDArray, codes: Codes, unseen: NDArray, seed: int) -> Codes:
    """Fit on standardised ``x`` and label codes, every label weighing the same, and predict ``unseen``."""
    if kind == "knn":
        neighbours = KNeighborsClassifier(n_neighbors=min(_NEIGHBOURS, len(x))).fit(x, codes)
        # Neighbours take no weights; votes divided by the labels' sizes amount to the same.
        return np.argmax(neighbours.predict_proba(unseen) / np.bincount(codes), axis=1)
    classifiers = {
        "linear": LogisticRegression(max_iter=1000),
        # By default early stopping would set in, and change the probe, at 10,000 cells.
        "boosting": HistGradientBoostingClassifier(early_stopping=False, random_state=seed),
        "mlp": MLPClassifier((64, 64), learning_rate_init=3e-3, early_stopping=True, random_state=seed),
    }
    return classifiers[kind].fit(x, codes, sample_weight=compute_sample_weight("balanced", codes)).predict(unseen)
