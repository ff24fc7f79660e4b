from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from discovr_sc.metrics import best_probe, probe

KINDS = ("linear", "knn", "boosting", "mlp")


def shifted(n=3000, shift=1.0, share=0.5, d=3, seed=0):
    """Normal noise, its first column shifted for the second label, which takes ``share`` of the cells."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < share
    x = rng.normal(size=(n, d))
    x[:, 0] += shift * labels
    return x, np.where(labels, "stim", "ctrl")


@pytest.mark.parametrize("kind", KINDS)
def test_separable(kind):
    x, labels = shifted(n=1000, shift=12)
    result = probe(x, labels, kind=kind)
    assert result.accuracy > 0.99
    assert result.low <= result.accuracy <= result.high
    assert result.p_value == pytest.approx(1 / 1001)
    assert (result.kind, result.n_train, result.n_test) == (kind, 700, 300)


@pytest.mark.parametrize("kind", KINDS)
def test_random_labels(kind):
    x, labels = shifted(shift=0)
    result = probe(x, labels, kind=kind)
    assert result.accuracy == pytest.approx(0.5, abs=0.05)
    assert result.low < 0.5 < result.high
    assert result.null_mean == pytest.approx(0.5, abs=0.005)
    # 95th percentile of a mean of 900 coin flips.
    assert result.null_high == pytest.approx(0.5 + 1.645 * 0.5 / np.sqrt(900), abs=0.006)
    assert result.p_value > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_unequal_labels_do_not_hide_leakage(kind):
    # Plain accuracy would be 0.95 for a probe that answers "ctrl" everywhere, and its balanced accuracy 0.5.
    x, labels = shifted(n=6000, shift=2, share=0.05, d=2)
    assert probe(x, labels, kind=kind).accuracy > norm.cdf(1) - 0.07


def test_null_is_calibrated():
    p_values = [probe(*shifted(n=300, shift=0, seed=seed), n_permutations=199).p_value for seed in range(200)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.1
    assert 0.4 < np.mean(p_values) < 0.65


def test_interval_covers_the_bayes_accuracy():
    bayes = norm.cdf(0.5)
    results = [probe(*shifted(n=2000, seed=seed)) for seed in range(100)]
    # The fitted line falls a little short of the Bayes one, so coverage lies a little under 95 %.
    assert np.mean([result.low <= bayes <= result.high for result in results]) >= 0.88
    widths = [result.high - result.low for result in results]
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt(bayes * (1 - bayes) / 600), rel=0.1)


def test_train_chooses_the_cells():
    x, labels = shifted(n=400, shift=12)
    # In the second half the labels are swapped: a probe fitted on the first half gets every cell wrong.
    labels[200:] = np.where(labels[200:] == "stim", "ctrl", "stim")
    mask = np.arange(400) < 200
    result = probe(x, labels, train=mask)
    assert result.accuracy < 0.01
    assert (result.n_train, result.n_test) == (200, 200)
    assert probe(x, labels, train=np.flatnonzero(mask)[::-1]) == result


def test_best_probe_finds_what_a_line_cannot():
    x = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    labels = (x[:, 0] > 0) ^ (x[:, 1] > 0)
    best = best_probe(x, labels)
    assert best.accuracy > 0.9 > 0.6 > probe(x, labels, kind="linear").accuracy
    assert best == probe(x, labels, kind=best.kind)
    assert best_probe(x, labels, kinds=["linear"]).kind == "linear"


def test_repeats_for_a_seed():
    x, labels = shifted(n=500)
    assert probe(x, labels, kind="mlp") == probe(x, labels, kind="mlp")
    assert probe(x, labels) != probe(x, labels, seed=1)


def test_refuses_bad_input():
    x, labels = shifted(n=100)
    with pytest.raises(ValueError, match="lengths differ"):
        probe(x[:-1], labels)
    with pytest.raises(ValueError, match="x has NaN"):
        probe(np.full((100, 1), np.nan), labels)
    with pytest.raises(ValueError, match="labels has 1 distinct labels"):
        probe(x, np.zeros(100))
    with pytest.raises(ValueError, match="kind is 'tree'; choose one of 'linear'"):
        probe(x, labels, kind="tree")
    with pytest.raises(ValueError, match="label with a single cell"):
        probe(x, np.where(np.arange(100) == 0, "rare", labels))
    with pytest.raises(ValueError, match="label with 0 cells to fit on"):
        probe(x, labels, train=labels == "ctrl")
    with pytest.raises(ValueError, match="label with 0 cells held out"):
        probe(x, labels, train=np.full(100, True))
    with pytest.raises(ValueError, match="lengths differ.*'train': 99"):
        probe(x, labels, train=np.full(99, True))
    with pytest.raises(ValueError, match="nor indices below 100"):
        probe(x, labels, train=[0, 1, 100])
    with pytest.raises(ValueError, match="n_permutations is 0"):
        probe(x, labels, n_permutations=0)
    with pytest.raises(ValueError, match="kinds is empty"):
        best_probe(x, labels, kinds=())
