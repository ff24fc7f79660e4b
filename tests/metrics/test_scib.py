from __future__ import annotations

import sys

import numpy as np
import pytest

from discovr_sc.metrics import scib_scores


def embedding():
    rng = np.random.default_rng(0)
    labels, batch = np.repeat([0, 1], 100), np.tile(["ctrl", "stim"], 100)
    return rng.normal(size=(200, 2)) + 9 * labels[:, None], batch, labels


def test_names_the_extra_where_scib_metrics_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "scib_metrics", None)
    with pytest.raises(ImportError, match=r"pip install discovr_sc\[scib\]"):
        scib_scores(*embedding())


def test_refuses_bad_input():
    x, batch, labels = embedding()
    with pytest.raises(ValueError, match="lengths differ"):
        scib_scores(x, batch[:-1], labels)
    with pytest.raises(ValueError, match="batch has 1 distinct labels"):
        scib_scores(x, np.zeros(200), labels)
    with pytest.raises(ValueError, match="x has 90 rows"):
        scib_scores(x[60:150], batch[60:150], labels[60:150])


def test_mixed_batches_and_separate_labels():
    pytest.importorskip("scib_metrics", reason="the scib extra is not installed")
    x, batch, labels = embedding()
    mixed = scib_scores(x, batch, labels)
    assert mixed["nmi"] == mixed["ari"] == pytest.approx(1)
    split = scib_scores(x + 9 * np.outer(batch == "stim", [1, -1]), batch, labels)
    for score in ("silhouette_batch", "ilisi", "kbet"):
        assert mixed[score] > split[score] + 0.5
