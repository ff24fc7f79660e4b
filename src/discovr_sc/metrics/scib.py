"""Integration scores of the single-cell field, from the optional package scib-metrics."""

import numpy as np
from numpy.typing import ArrayLike

from .checks import as_codes, as_matrix, check_same_length

# Neighbourhood sizes of scib-metrics' own benchmark.
_LISI_NEIGHBOURS, _KBET_NEIGHBOURS, _GRAPH_NEIGHBOURS = 90, 50, 15


def scib_scores(x: ArrayLike, batch: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Scores of scib-metrics, which needs JAX, for an embedding that should mix batches and keep labels apart.

    Parameters
    ----------
    x
        Embedding, shape (n, d), of more than 90 cells.
    batch, labels
        What should be mixed (the condition, or a technical batch) and kept apart (the cell types), shape (n,) each.

    Returns
    -------
    ``silhouette_batch``, ``ilisi`` and ``kbet`` rate the mixing; ``silhouette_label``, ``clisi``,
    ``graph_connectivity``, ``nmi`` and ``ari`` (K-means) rate what is kept. In all of them 1 is best.

    Examples
    --------
    >>> z = adata.obsm["X_discovr_z"]  # doctest: +SKIP
    >>> scores = scib_scores(z, adata.obs["batch"], adata.obs["cell_type"])  # doctest: +SKIP
    """
    x = as_matrix("x", x)
    batch, labels = as_codes("batch", batch, at_least=2), as_codes("labels", labels, at_least=2)
    check_same_length(x=x, batch=batch, labels=labels)
    if len(x) <= _LISI_NEIGHBOURS:
        raise ValueError(f"x has {len(x)} rows; scib_scores needs more than {_LISI_NEIGHBOURS}")
    try:
        import scib_metrics
        from scib_metrics.nearest_neighbors import pynndescent
    except ImportError as error:
        raise ImportError("scib_scores needs scib-metrics: pip install discovr_sc[scib]") from error

    neighbours = pynndescent(x, n_neighbors=_LISI_NEIGHBOURS)
    kbet_neighbours, graph_neighbours = (neighbours.subset_neighbors(n) for n in (_KBET_NEIGHBOURS, _GRAPH_NEIGHBOURS))
    scores = scib_metrics.nmi_ari_cluster_labels_kmeans(x, labels) | {
        "silhouette_batch": scib_metrics.silhouette_batch(x, labels, batch),
        "ilisi": scib_metrics.ilisi_knn(neighbours, batch),
        "kbet": scib_metrics.kbet_per_label(kbet_neighbours, batch, labels),
        "silhouette_label": scib_metrics.silhouette_label(x, labels),
        "clisi": scib_metrics.clisi_knn(neighbours, labels),
        "graph_connectivity": scib_metrics.graph_connectivity(graph_neighbours, labels),
    }
    return {name: float(np.asarray(score)) for name, score in scores.items()}
