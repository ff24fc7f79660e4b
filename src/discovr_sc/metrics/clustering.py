"""How well clusters of an embedding match known labels.

A low score here is no proof that an embedding is free of a label: K-means finds only what dominates the
distances. Use :func:`discovr_sc.metrics.probe` to ask whether the label can be read at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from .checks import as_classes, as_codes, as_matrix, check_same_length

_RESTARTS = 10


@dataclass(frozen=True)
class ClusterScore:
    """Agreement of K-means clusters with labels.

    Attributes
    ----------
    whole
        Score of clusters of the whole embedding.
    best_dimension
        Best score of clusters of a single dimension.
    dimension
        The column that reached ``best_dimension``.
    """

    whole: float
    best_dimension: float
    dimension: int

    @property
    def best(self) -> float:
        """The larger of ``whole`` and ``best_dimension``, which is what the paper reports."""
        return max(self.whole, self.best_dimension)


@dataclass(frozen=True)
class WithinScore:
    """Agreement of K-means clusters with labels inside groups, averaged over cells.

    Attributes
    ----------
    whole
        Average of the groups' scores on the whole embedding.
    best
        Average of the groups' scores on the whole embedding or their best dimension, whichever is larger.
    n_groups
        Number of groups that entered: those with at least two labels.
    """

    whole: float
    best: float
    n_groups: int


def kmeans_nmi(x: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> ClusterScore:
    """Normalised mutual information between K-means clusters and labels.

    As in the paper: as many clusters as labels, ten restarts, on the whole embedding and on each dimension
    alone.

    Parameters
    ----------
    x
        Embedding, shape (n,) or (n, d); columns are used as they are, without scaling.
    labels
        Labels, shape (n,).
    seed
        Seed of the K-means starts.

    Returns
    -------
    ClusterScore
        Scores between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 50)
    >>> kmeans_nmi(np.column_stack([np.tile([0.0, 0.1], 50), labels]), labels)
    ClusterScore(whole=1.0, best_dimension=1.0, dimension=1)
    """
    return _kmeans_score(x, labels, normalized_mutual_info_score, seed)


def kmeans_ari(x: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> ClusterScore:
    """Compare K-means clusters with labels by the adjusted Rand index, otherwise as :func:`kmeans_nmi`.

    Parameters
    ----------
    x
        Embedding, shape (n,) or (n, d); columns are used as they are, without scaling.
    labels
        Labels, shape (n,).
    seed
        Seed of the K-means starts.

    Returns
    -------
    ClusterScore
        Scores of at most 1, with 0 expected by chance.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 50)
    >>> kmeans_ari(labels.astype(float), labels).best
    1.0
    """
    return _kmeans_score(x, labels, adjusted_rand_score, seed)


def kmeans_nmi_within(x: ArrayLike, labels: ArrayLike, groups: ArrayLike, *, seed: int = 0) -> WithinScore:
    """:func:`kmeans_nmi` inside each group, weighted by the groups' sizes.

    For instance the condition within cell types: across types, differences between them hide the condition.

    Parameters
    ----------
    x
        Embedding, shape (n,) or (n, d).
    labels
        Labels, shape (n,).
    groups
        Groups to look inside, shape (n,). Groups with a single label have no score and are left out.
    seed
        Seed of the K-means starts.

    Returns
    -------
    WithinScore
        Scores between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> condition, cell_type = np.tile([0, 1], 60), np.repeat([0, 1, 2], 40)
    >>> kmeans_nmi_within(10.0 * cell_type + condition, condition, cell_type)
    WithinScore(whole=1.0, best=1.0, n_groups=3)
    """
    x, codes, group_codes = as_matrix("x", x), as_codes("labels", labels), as_codes("groups", groups)
    check_same_length(x=x, labels=codes, groups=group_codes)
    members = [group_codes == group for group in np.unique(group_codes)]
    members = [rows for rows in members if np.unique(codes[rows]).size > 1]
    if not members:
        raise ValueError("labels has one distinct label in every group; at least one group needs two")
    scores = [kmeans_nmi(x[rows], codes[rows], seed=seed) for rows in members]
    sizes = [rows.sum() for rows in members]
    return WithinScore(
        whole=float(np.average([score.whole for score in scores], weights=sizes)),
        best=float(np.average([score.best for score in scores], weights=sizes)),
        n_groups=len(members),
    )


def silhouette(x: ArrayLike, labels: ArrayLike, *, max_cells: int = 5000, seed: int = 0) -> float:
    """Mean silhouette width of the labels, on a random subset of the cells where there are many.

    Parameters
    ----------
    x
        Embedding, shape (n,) or (n, d).
    labels
        Labels, shape (n,).
    max_cells
        Most cells to use: time grows with the square of their number.
    seed
        Seed of the subset.

    Returns
    -------
    float
        Between -1 (cells lie with another label) and 1 (labels lie far apart).

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.repeat([0, 1], 50)
    >>> silhouette(labels.astype(float), labels)
    1.0
    """
    x, codes = _embedding(x, labels)
    if max_cells < 3:
        raise ValueError(f"max_cells is {max_cells}; pass at least 3")
    chosen = np.random.default_rng(seed).permutation(len(x))[:max_cells]
    n_labels = np.unique(codes[chosen]).size
    if not 2 <= n_labels < len(chosen):
        raise ValueError(f"labels has {n_labels} distinct labels on {len(chosen)} cells; it needs 2 to n - 1")
    return float(silhouette_score(x[chosen], codes[chosen]))


def _kmeans_score(x: ArrayLike, labels: ArrayLike, score: Callable[..., float], seed: int) -> ClusterScore:
    x, codes = _embedding(x, labels)
    n_labels = int(codes.max()) + 1

    def clusters(columns: NDArray) -> NDArray:
        # A collapsed embedding has fewer distinct points than labels; K-means would warn and return as many
        # clusters.
        n_clusters = min(n_labels, len(np.unique(columns, axis=0)))
        return KMeans(n_clusters, n_init=_RESTARTS, random_state=seed).fit_predict(columns)

    whole = float(score(codes, clusters(x)))
    if x.shape[1] == 1:
        return ClusterScore(whole, whole, 0)
    single = [float(score(codes, clusters(x[:, [column]]))) for column in range(x.shape[1])]
    return ClusterScore(whole, max(single), int(np.argmax(single)))


def _embedding(x: ArrayLike, labels: ArrayLike) -> tuple[NDArray, NDArray[np.intp]]:
    x, codes = as_matrix("x", x), as_classes("labels", labels)
    check_same_length(x=x, labels=codes)
    return x, codes
