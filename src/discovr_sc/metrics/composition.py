"""What an embedding tells of the condition beyond the composition, and whether it keeps cell types."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import KNeighborsClassifier

from .checks import as_codes, as_labelled, as_mask, as_matrix, check_same_length
from .probes import best_probe, probe

#: Neighbours that tell a cell's type.
NEIGHBOURS = 15
#: Cells that a condition needs of a type, to fit on and to score on, for the type to be probed.
FEWEST_TO_FIT, FEWEST_TO_SCORE = 10, 5


@dataclass(frozen=True)
class Leak:
    """How well the condition is read from an embedding within cell types."""

    mean: float  #: Over the types; 0.5 is chance and 1 perfect, whatever the number of conditions.
    of_types: dict[str, float]  #: The same, type by type; types that only one condition has are left out.


def leak_within_types(
    x: ArrayLike, conditions: ArrayLike, cell_types: ArrayLike, *, train: ArrayLike, seed: int = 0
) -> Leak:
    """Read the condition from an embedding within each cell type: the better of a linear and a kNN probe.

    Composition alone tells the condition where conditions differ in their cells; within a type it cannot. With k
    conditions in a type, a balanced accuracy a is given as 0.5 + 0.5 (a - 1/k) / (1 - 1/k): a itself for two.

    Parameters
    ----------
    x, conditions, cell_types
        Embedding, ``(n, d)``, and labels, ``(n,)`` each.
    train
        The cells that probes are fitted on, as a mask ``(n,)`` or as row numbers; they are scored on the others.
    seed
        Of the probes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> types, conditions = np.repeat(["T", "B"], 2000), np.tile(["ctrl", "stim"], 2000)
    >>> x = rng.normal(size=(4000, 2)) + 9 * (types == "T")[:, None]
    >>> round(leak_within_types(x, conditions, types, train=np.arange(4000) % 3 > 0).mean, 1)
    0.5
    """
    points, conditions, types, train = _labelled(x, conditions, cell_types, train)
    found = {}
    for name in np.unique(types):
        cells = types == name
        common = [
            condition
            for condition in np.unique(conditions[cells])
            if (cells & train & (conditions == condition)).sum() >= FEWEST_TO_FIT
            and (cells & ~train & (conditions == condition)).sum() >= FEWEST_TO_SCORE
        ]
        if len(common) < 2:
            continue
        rows = np.flatnonzero(cells & np.isin(conditions, common))
        probed = best_probe(
            points[rows], conditions[rows], kinds=("linear", "knn"), train=train[rows], n_permutations=1,
            n_bootstrap=1, seed=seed,
        )  # fmt: skip
        chance = 1 / len(common)
        found[str(name)] = 0.5 + 0.5 * (probed.accuracy - chance) / (1 - chance)
    if not found:
        raise ValueError(
            f"no cell type has {FEWEST_TO_FIT} cells to fit on and {FEWEST_TO_SCORE} held out in two conditions; merge "
            "types, or hold out more cells."
        )
    return Leak(float(np.mean(list(found.values()))), found)


def type_accuracy(x: ArrayLike, cell_types: ArrayLike, *, train: ArrayLike) -> float:
    """Balanced accuracy with which the 15 nearest training cells tell the type of the others.

    Parameters
    ----------
    x, cell_types, train
        See :func:`leak_within_types`.

    Examples
    --------
    >>> types = np.repeat(["T", "B"], 100)
    >>> type_accuracy(9.0 * (types == "T")[:, None], types, train=np.arange(200) % 3 > 0)
    1.0
    """
    return float(np.mean(list(type_recalls(x, cell_types, train=train).values())))


def type_recalls(x: ArrayLike, cell_types: ArrayLike, *, train: ArrayLike) -> dict[str, float]:
    """For each type, the share of its cells whose type the 15 nearest training cells tell.

    Parameters
    ----------
    x, cell_types, train
        See :func:`leak_within_types`.

    Examples
    --------
    >>> types = np.repeat(["T", "B"], 100)
    >>> type_recalls(9.0 * (types == "T")[:, None], types, train=np.arange(200) % 3 > 0)
    {'B': 1.0, 'T': 1.0}
    """
    points, types = as_matrix("x", x), np.asarray(cell_types).astype(str)
    check_same_length(x=points, cell_types=types)
    fitted_on = as_mask("train", train, len(points))
    return _recalls(points, types, fitted_on, ~fitted_on)


def type_transfer(
    x: ArrayLike, conditions: ArrayLike, cell_types: ArrayLike, *, train: ArrayLike
) -> dict[tuple[str, str], float]:
    """Balanced accuracy with which one condition's cells tell the types of another's: it needs types to lie together.

    Parameters
    ----------
    x, conditions, cell_types, train
        See :func:`leak_within_types`. The 15 nearest training cells of the first condition tell the types of the other
        cells of the second, scored over the types that both have.

    Returns
    -------
    By (first, second) condition.

    Examples
    --------
    >>> types, conditions = np.repeat(["T", "B"], 100), np.tile(["ctrl", "stim"], 100)
    >>> x = 9.0 * (types == "T")[:, None]
    >>> type_transfer(x, conditions, types, train=np.arange(200) % 3 > 0)
    {('ctrl', 'stim'): 1.0, ('stim', 'ctrl'): 1.0}
    """
    points, conditions, types, train = _labelled(x, conditions, cell_types, train)
    names = np.unique(conditions)
    return {
        (str(first), str(second)): float(np.mean(list(recalls.values())))
        for first in names
        for second in names
        if first != second
        and (recalls := _recalls(points, types, train & (conditions == first), ~train & (conditions == second)))
    }


def composition_floor(conditions: ArrayLike, cell_types: ArrayLike, *, train: ArrayLike, seed: int = 0) -> float:
    """Balanced accuracy with which the cell type alone tells the condition: no z that keeps types can tell less.

    Parameters
    ----------
    conditions, cell_types, train, seed
        See :func:`leak_within_types`.

    Examples
    --------
    >>> types = np.repeat(["T", "B"], 100)
    >>> composition_floor(np.where(types == "T", "ctrl", "stim"), types, train=np.arange(200) % 3 > 0)
    1.0
    """
    codes = as_codes("cell_types", np.asarray(cell_types).astype(str))
    return probe(np.eye(codes.max() + 1)[codes], conditions, train=train, seed=seed).accuracy


def _recalls(points: NDArray, types: NDArray, known: NDArray, asked: NDArray) -> dict[str, float]:
    """Recalls of the neighbours' vote, for the types that both have."""
    if not asked.any():
        return {}
    votes = KNeighborsClassifier(min(NEIGHBOURS, int(known.sum()))).fit(points[known], types[known])
    hits = votes.predict(points[asked]) == types[asked]
    common = np.intersect1d(types[known], types[asked])
    return {str(name): float(hits[types[asked] == name].mean()) for name in common}


def _labelled(x, conditions, cell_types, train) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    points, _ = as_labelled(x, conditions)
    conditions, types = (np.asarray(values).astype(str) for values in (conditions, cell_types))
    check_same_length(x=points, conditions=conditions, cell_types=types)
    return points, conditions, types, as_mask("train", train, len(points))
