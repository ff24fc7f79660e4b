from __future__ import annotations

import numpy as np
import pytest

from discovr_sc.metrics import kmeans_ari, kmeans_nmi, kmeans_nmi_within, silhouette


def blobs(n=300, n_labels=3, seed=0):
    """Well separated labels in the first of three columns, noise of larger scale in the others."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_labels
    x = rng.normal(scale=[0.1, 30, 30], size=(n, 3))
    x[:, 0] += 5 * labels
    return x, np.array(["a", "b", "c"])[labels]


@pytest.mark.parametrize("metric", [kmeans_nmi, kmeans_ari])
def test_clear_clusters_score_one(metric):
    x, labels = blobs()
    score = metric(x[:, 0], labels)
    assert score.whole == score.best_dimension == score.best == 1
    assert score.dimension == 0


@pytest.mark.parametrize("metric", [kmeans_nmi, kmeans_ari])
def test_best_dimension_beats_the_whole(metric):
    x, labels = blobs()
    score = metric(x[:, [1, 0, 2]], labels)
    assert score.whole < 0.1
    assert (score.best_dimension, score.dimension, score.best) == (1, 1, 1)


def test_whole_beats_every_dimension():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    along = rng.normal(scale=3, size=400)
    # Two parallel clouds, apart only across the diagonal, and scaled so that K-means sees the gap.
    x = np.column_stack([along + 20 * labels, along - 20 * labels]) + np.column_stack([along, along])
    score = kmeans_nmi(np.column_stack([x, np.zeros(400)]), labels)
    assert score.best == score.whole == 1


def test_random_labels_score_zero():
    x, labels = blobs(n=3000)
    shuffled = np.random.default_rng(1).permutation(labels)
    assert kmeans_nmi(x, shuffled).best < 0.01
    assert abs(kmeans_ari(x, shuffled).best) < 0.01


def test_collapsed_embedding_scores_zero(recwarn):
    assert kmeans_nmi(np.zeros((50, 2)), np.arange(50) % 2).best == 0
    assert not recwarn.list


def test_within_groups_weighs_by_size():
    rng = np.random.default_rng(0)
    cell_type = np.repeat(["big", "small", "lone"], [600, 200, 100])
    condition = np.arange(900) % 2
    condition[cell_type == "lone"] = 0
    # Only the small type responds to the condition; the types themselves lie far apart.
    x = rng.normal(scale=0.1, size=900) + 50 * (cell_type == "big")
    x = x + 5 * condition * (cell_type == "small")
    assert kmeans_nmi(x, condition).best < 0.2
    score = kmeans_nmi_within(x, condition, cell_type)
    assert score.n_groups == 2
    assert score.whole == pytest.approx(0.25, abs=0.01)
    assert score.best == pytest.approx(0.25, abs=0.01)


def test_silhouette():
    x, labels = blobs()
    assert silhouette(x[:, 0], labels) > 0.9
    assert abs(silhouette(x[:, 1:], labels)) < 0.1
    subset = silhouette(x, labels, max_cells=100)
    assert subset == silhouette(x, labels, max_cells=100) != silhouette(x, labels)
    assert subset != silhouette(x, labels, max_cells=100, seed=1)


def test_refuses_bad_input():
    x, labels = blobs()
    for metric in (kmeans_nmi, kmeans_ari, silhouette):
        with pytest.raises(ValueError, match="lengths differ"):
            metric(x[:-1], labels)
        with pytest.raises(ValueError, match="labels has 1 distinct labels"):
            metric(x, np.zeros(len(x)))
    with pytest.raises(ValueError, match="one distinct label in every group"):
        kmeans_nmi_within(x, labels, labels)
    with pytest.raises(ValueError, match="max_cells is 2"):
        silhouette(x, labels, max_cells=2)
    with pytest.raises(ValueError, match="labels has 300 distinct labels on 300 cells"):
        silhouette(x, np.arange(300))
