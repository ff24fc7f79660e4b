"""How well clusters of an embedding match known labels.

A low score here is no proof that an embedding is free of a label: K-means finds only what dominates the distances. Use
:func:`discovr_sc.metrics.probe` to ask whether the label can be read at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from .checks import as_codes, as_labelled, as_matrix, check_same_length


@dataclass(frozen=True)
class ClusterScore:
    """Agreement of K-means clusters with labels."""

    whole: float  #: Score of clusters of the whole embedding.
    best_dimension: float  #: Best score of clusters of a single dimension.
    dimension: int  #: The column that reached ``best_dimension``.

    @property
    def best(self) -> float:
        """The larger of ``whole`` and ``best_dimension``, which is what the paper reports."""
        return max(self.whole, self.best_dimension)


@dataclass(frozen=True)
class WithinScore:
    """Agreement of K-means clusters with labels inside groups, averaged over cells."""

    whole: float  #: Average of the groups' scores on the whole embedding.
    best: float  #: Average of the groups' scores on the whole embedding or their best dimension, whichever is larger.
    n_groups: int  #: Number of groups that entered: those with at least two labels.


def kmeans_nmi(x: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> ClusterScore:
    """Normalised mutual information between K-means clusters and labels.

    As in the paper: as many clusters as labels, ten restarts, on the whole embedding and on each dimension alone.
    Scores lie between 0 and 1.

    Parameters
    ----------
    x, labels, seed
        Embedding, shape (n,) or (n, d), whose columns are used as they are, without scaling; labels, shape (n,); seed
        of the K-means starts.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 50)
    >>> kmeans_nmi(np.column_stack([np.tile([0.0, 0.1], 50), labels]), labels)
    ClusterScore(whole=1.0, best_dimension=1.0, dimension=1)
    """
    return _kmeans_score(x, labels, normalized_mutual_info_score, seed)


def kmeans_ari(x: ArrayLike, labels: ArrayLike, *, seed: int = 0) -> ClusterScore:
    """Compare K-means clusters with labels by the adjusted Rand index, otherwise as :func:`kmeans_nmi`.

    Scores are at most 1, with 0 expected by chance.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 50)
    >>> kmeans_ari(labels.astype(float), labels).best
    1.0
    """
    return _kmeans_score(x, labels, adjusted_rand_score, seed)


def kmeans_nmi_within(x: ArrayLike, labels: ArrayLike, groups: ArrayLike, *, seed: int = 0) -> WithinScore:
    """:func:`kmeans_nmi` inside each group, weighted by the groups' sizes.

    For instance the condition within cell types: across types, differences between them hide the condition. Groups,
    shape (n,), with a single label have no score and are left out.

    Examples
    --------
    >>> condition, cell_type = np.tile([0, 1], 60), np.repeat([0, 1, 2], 40)
    >>> kmeans_nmi_within(10.0 * cell_type + condition, condition, cell_type)
    WithinScore(whole=1.0, best=1.0, n_groups=3)
    """
    points, codes, group_codes = as_matrix("x", x), as_codes("labels", labels), as_codes("groups", groups)
    check_same_length(x=points, labels=codes, groups=group_codes)
    members = [group_codes == group for group in np.unique(group_codes)]
    members = [rows for rows in members if np.unique(codes[rows]).size > 1]
    if not members:
        raise ValueError("labels has one distinct label in every group; at least one group needs two")
    scores = [kmeans_nmi(points[rows], codes[rows], seed=seed) for rows in members]
    sizes = [rows.sum() for rows in members]
    whole = np.average([score.whole for score in scores], weights=sizes)
    best = np.average([score.best for score in scores], weights=sizes)
    return WithinScore(float(whole), float(best), len(members))


def silhouette(x: ArrayLike, labels: ArrayLike, *, max_cells: int = 5000, seed: int = 0) -> float:
    """Mean silhouette width of the labels, from -1 (cells lie with another label) to 1 (labels lie far apart).

    The arguments are as for :func:`kmeans_nmi`. Of more than ``max_cells`` cells so many are drawn at random, as time
    grows with the square of their number.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 50)
    >>> silhouette(labels.astype(float), labels)
    1.0
    """
    points, codes = as_labelled(x, labels)
    if max_cells < 3:
        raise ValueError(f"max_cells is {max_cells}; pass at least 3")
    chosen = np.random.default_rng(seed).permutation(len(points))[:max_cells]
    n_labels = np.unique(codes[chosen]).size
    if not 2 <= n_labels < len(chosen):
        raise ValueError(f"labels has {n_labels} distinct labels on {len(chosen)} cells; it needs 2 to n - 1")
    return float(silhouette_score(points[chosen], codes[chosen]))


def _kmeans_score(x: ArrayLike, labels: ArrayLike, score: Callable[..., float], seed: int) -> ClusterScore:
    points, codes = as_labelled(x, labels)
    n_labels = int(codes.max()) + 1

    def clusters(columns: NDArray) -> NDArray:
        # A collapsed embedding has fewer distinct points than labels; K-means would warn and return as many clusters.
        n_clusters = min(n_labels, len(np.unique(columns, axis=0)))
        return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(columns)

    whole = float(score(codes, clusters(points)))
    if points.shape[1] == 1:
        return ClusterScore(whole, whole, 0)
    single = [float(score(codes, clusters(points[:, [column]]))) for column in range(points.shape[1])]
    return ClusterScore(whole, max(single), int(np.argmax(single)))
