"""The paper's disentanglement tables: informations, gap and completeness of a method, ranks among methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy

from .checks import as_codes, as_matrix, check_choice, check_same_length
from .mutual_information import Count, knn_conditional_mutual_information, knn_mutual_information
from .neural_information import mine

Estimator = Literal["knn", "mine"]


@dataclass(frozen=True)
class InformationTable:
    """One row of the paper's disentanglement tables; informations in nats."""

    yz: float  #: I(y; z): what z says about the label.
    yw: float  #: I(y; w): what w says about the label.
    wz: float  #: I(w; z): what the latents share.
    mig: float  #: (I(y; w) - I(y; z)) / H(y), see :func:`mig`.
    mic: float  #: I(y; w) / (I(y; w) + I(y; z)), see :func:`mic`.
    wz_given_y: float  #: I(w; z | y): what the latents share within labels.


def information_table(
    w: ArrayLike,
    z: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Estimator = "knn",
    k: int = 20,
    count: Count = "ross",
    seed: int = 0,
) -> InformationTable:
    """Estimate the six columns of the paper's disentanglement tables.

    Parameters
    ----------
    w, z, y
        Condition-specific and condition-invariant latent, shapes (n,) or (n, d), and labels, shape (n,); floats are
        taken as labels too.
    estimator
        ``"knn"`` or ``"mine"``.
    k
        Neighbours of ``"knn"``; below the number of rows of the rarest label.
    count
        Neighbour count of the informations on y, see :func:`knn_mutual_information`; ``"paper"`` needs ``"knn"``.
    seed
        Seed of the critics of ``"mine"``; the nearest neighbours have nothing random in them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> table = information_table(rng.normal(size=1000) + 9 * y, rng.normal(size=1000), y)
    >>> round(table.mig, 1), round(table.mic, 1)
    (1.0, 1.0)
    """
    w, z = as_matrix("w", w), as_matrix("z", z)
    yw, yz, codes = _label_informations(w, z, y, estimator, count, seed, k)
    if estimator == "knn":
        wz, wz_given_y = knn_mutual_information(w, z, k=k), knn_conditional_mutual_information(w, z, codes, k=k)
    else:
        wz, wz_given_y = mine(w, z, seed=seed), mine(w, z, given=codes, seed=seed)
    return InformationTable(yz, yw, wz, _gap(yw, yz, codes), _completeness(yw, yz), wz_given_y)


def mig(
    w: ArrayLike, z: ArrayLike, y: ArrayLike, *, estimator: Estimator = "knn", count: Count = "ross", seed: int = 0
) -> float:
    """Mutual information gap, (I(y; w) - I(y; z)) / H(y).

    It is 1 where w determines the label and z says nothing of it, -1 the other way round. H(y) is the entropy of the
    labels' shares. The paper's tables divide by another number (about 8.5 to 8.9 where H(y) = ln 2), so compare with
    them through ``(yw - yz)`` of :func:`information_table`, which tells of the arguments too.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> round(mig(rng.normal(size=1000) + 9 * y, rng.normal(size=1000), y), 1)
    1.0
    """
    return _gap(*_label_informations(w, z, y, estimator, count, seed))


def mic(
    w: ArrayLike, z: ArrayLike, y: ArrayLike, *, estimator: Estimator = "knn", count: Count = "ross", seed: int = 0
) -> float:
    """Mutual information completeness, I(y; w) / (I(y; w) + I(y; z)).

    It is the share of the label's information that sits in w, between 0 and 1; 0 where neither latent has any. The
    arguments are those of :func:`information_table`.

    Examples
    --------
    >>> y = np.arange(1000) % 2
    >>> mic(y, y, y)
    0.5
    """
    return _completeness(*_label_informations(w, z, y, estimator, count, seed)[:2])


def rank_methods(
    table: pd.DataFrame, truth: Mapping[str, float], blocks: Mapping[str, Sequence[str]], *, decimals: int = 3
) -> pd.DataFrame:
    """Rank methods by closeness to the truth, metric by metric, within blocks of comparable methods.

    Ranks are whole numbers, 1 for the closest; methods as close as each other share the lower rank.

    Parameters
    ----------
    table
        Values, one row per method and one column per metric.
    truth
        The value to be close to, for each column of ``table``.
    blocks
        Methods of each block, for instance ``{"Fully Separable": [...], "Flexible": [...]}``; every row of ``table``
        belongs to exactly one.
    decimals
        Digits the values are rounded to before they are compared, so that methods printed alike share a rank. The
        paper's tables have three.

    Examples
    --------
    >>> values = pd.DataFrame({"yz": [0.0, 0.3, 0.1, 0.1]}, index=["a", "b", "c", "d"])
    >>> rank_methods(values, {"yz": 0.05}, {"first": ["a", "b"], "second": ["c", "d"]})["yz"].tolist()
    [1, 2, 1, 1]
    """
    listed = sorted(method for methods in blocks.values() for method in methods)
    if listed != (rows := sorted(table.index)):
        raise ValueError(f"blocks lists {listed}, table has rows {rows}; list each row exactly once")
    if missing := [metric for metric in table.columns if metric not in truth]:
        raise ValueError(f"truth lacks {missing}; give a value for every column of table")
    target = pd.Series({metric: truth[metric] for metric in table.columns}, dtype=float)
    if not (np.isfinite(table.to_numpy(dtype=float)).all() and np.isfinite(target).all()):
        raise ValueError("table or truth has NaN or infinite values; drop those methods or metrics first")
    # The second rounding undoes what subtraction adds: |0.3 - 0.2| and |0.1 - 0.2| must tie.
    distance = (table.round(decimals) - target.round(decimals)).abs().round(decimals)
    ranks = [distance.loc[list(methods)].rank(method="min") for methods in blocks.values()]
    return pd.concat(ranks).astype(int).loc[table.index]


def _label_informations(
    w: ArrayLike, z: ArrayLike, y: ArrayLike, estimator: Estimator, count: Count, seed: int, k: int = 20
) -> tuple[float, float, NDArray[np.intp]]:
    """I(y; w), I(y; z), and the codes of y."""
    w, z, codes = as_matrix("w", w), as_matrix("z", z), as_codes("y", y, at_least=2)
    check_same_length(w=w, z=z, y=codes)
    check_choice("estimator", estimator, ("knn", "mine"))
    if estimator == "mine" and count != "ross":
        raise ValueError(f"count is {count!r} but estimator 'mine' counts no neighbours; leave count out")
    if estimator == "mine":
        yw, yz = (mine(latent, codes, seed=seed) for latent in (w, z))
    else:
        yw, yz = (knn_mutual_information(latent, codes, k=k, count=count) for latent in (w, z))
    return yw, yz, codes


def _gap(yw: float, yz: float, codes: NDArray[np.intp]) -> float:
    return (yw - yz) / float(entropy(np.bincount(codes)))


def _completeness(yw: float, yz: float) -> float:
    return yw / (yw + yz) if yw + yz > 0 else 0.0
