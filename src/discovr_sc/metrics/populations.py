"""How near a predicted population of cells is to a real one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from .checks import as_matrix


class MeanScore(NamedTuple):
    """Agreement of two populations' feature means."""

    r2: float  #: Squared Pearson correlation: blind to a scale and an offset.
    #: Coefficient of determination, 1 - (squared error) / (variance of the real means): 1 at best, negative where the
    #: mean over features would predict better.
    determination: float


def mean_score(predicted: ArrayLike, real: ArrayLike, features: ArrayLike | None = None) -> MeanScore:
    """Agreement of feature means over cells, (n, d) and (m, d); the real ones must differ.

    ``features`` are positions of those to compare; all by default.

    Examples
    --------
    >>> mean_score([[0.0, 1.0, 2.0]], [[1.0, 3.0, 5.0]])
    MeanScore(r2=1.0, determination=-0.75)
    """
    predicted, real = _same_features(predicted=predicted, real=real)
    columns = slice(None) if features is None else np.asarray(features)
    p, r = predicted.mean(0)[columns], real.mean(0)[columns]
    if len(r) < 2 or np.ptp(r) == 0:
        raise ValueError(f"real has {len(r)} features to compare, with no variance of their means; pass at least two")
    r2 = 0.0 if np.ptp(p) == 0 else float(np.corrcoef(p, r)[0, 1] ** 2)
    return MeanScore(r2, float(1 - ((p - r) ** 2).sum() / ((r - r.mean()) ** 2).sum()))


def delta_correlation(
    predicted: ArrayLike, real: ArrayLike, controls: ArrayLike, features: ArrayLike | None = None
) -> float:
    """Pearson correlation, over features, of the predicted and the real change of means from the controls (PCC-delta).

    Each is (cells, d); ``features`` are positions of those to compare, all by default. No predicted change scores 0.

    Examples
    --------
    >>> round(delta_correlation([[1.0, 2.0, 4.0]], [[2.0, 3.0, 6.0]], [[1.0, 1.0, 1.0]]), 3)
    0.996
    """
    predicted, real = _same_features(predicted=predicted, real=real)
    _, controls = _same_features(real=real, controls=controls)
    columns = slice(None) if features is None else np.asarray(features)
    changes = [(cells.mean(0) - controls.mean(0))[columns] for cells in (predicted, real)]
    if min(map(np.ptp, changes)) == 0:
        return 0.0
    return float(np.corrcoef(*changes)[0, 1])


def energy_distance(x: ArrayLike, y: ArrayLike, *, max_cells: int = 1000, seed: int = 0) -> float:
    """Energy distance of two populations, 2 E|X - Y| - E|X - X'| - E|Y - Y'|, in the units of the features.

    Distances are Euclidean. Pairs of a cell with itself do not count, so that the estimate is 0 on average (and may be
    negative) for two samples of one distribution. Each is (n, d), of at least two cells; of more than ``max_cells`` a
    random sample is compared.

    Examples
    --------
    >>> energy_distance([[0.0], [0.0]], [[3.0], [3.0]])
    6.0
    """
    x, y = _same_features(x=x, y=y)
    for name, cells in {"x": x, "y": y}.items():
        if len(cells) < 2:
            raise ValueError(f"{name} has {len(cells)} cells; pass at least 2")
    rng = np.random.default_rng(seed)
    x, y = (cells[rng.permutation(len(cells))[:max_cells]] for cells in (x, y))
    within_x, within_y = (cdist(cells, cells).sum() / (len(cells) * (len(cells) - 1)) for cells in (x, y))
    return float(2 * cdist(x, y).mean() - within_x - within_y)


def _same_features(**populations: ArrayLike) -> list[NDArray[np.float64]]:
    """Two populations as matrices; their names are for messages."""
    x, y = (as_matrix(name, population) for name, population in populations.items())
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the populations have {x.shape[1]} and {y.shape[1]} features; pass the same features of both")
    return [x, y]
