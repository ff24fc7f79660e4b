"""Nearest-neighbour informations against closed forms, numerical integration and an independent package."""

from __future__ import annotations

import ennemi
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from discovr_sc.metrics import (
    knn_conditional_mutual_information,
    knn_mutual_information,
    sample_parametric_posterior,
)

N = 10_000


def gaussian_pair(d, rho, seed=0, n=N):
    """Two d-dimensional standard normals whose columns correlate pairwise, and their information in nats."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(n, d))
    return x, y, -0.5 * d * np.log(1 - rho**2)


def mixture(weights, means, seed=0, n=N):
    """Unit normals around label-specific means, the labels, and their information by numerical integration."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(weights), p=weights, size=n)
    x = rng.normal(size=n) + np.asarray(means)[labels]

    def density(value):
        return sum(w * norm.pdf(value, m) for w, m in zip(weights, means, strict=True))

    entropy = quad(lambda v: -density(v) * np.log(density(v)), -10, 10 + max(means), limit=200)[0]
    return x, labels, entropy - 0.5 * np.log(2 * np.pi * np.e)


@pytest.mark.parametrize(("d", "rho"), [(1, 0.3), (1, 0.6), (1, 0.9), (2, 0.3), (2, 0.6)])
def test_gaussian(d, rho):
    x, y, truth = gaussian_pair(d, rho)
    assert knn_mutual_information(x, y) == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("labelled", [False, True])
def test_independent(d, labelled):
    x, y, _ = gaussian_pair(d, 0.0)
    y = np.random.default_rng(1).integers(3, size=N) if labelled else y
    assert 0 <= knn_mutual_information(x, y) <= 0.01


@pytest.mark.parametrize(
    ("weights", "means"), [((0.5, 0.5), (0, 1)), ((0.2, 0.8), (0, 3)), ((0.3, 0.3, 0.4), (0, 2, 8))]
)
def test_labels_against_integration(weights, means):
    x, labels, truth = mixture(weights, means)
    assert truth > 0.05
    assert knn_mutual_information(x, labels) == pytest.approx(truth, abs=0.015)


def test_agrees_with_ennemi():
    x, y, _ = gaussian_pair(1, 0.7, n=2000)
    x, y = x[:, 0], y[:, 0]
    labels, given = (y > 0.5).astype(int), x + y + np.random.default_rng(1).normal(size=2000)
    expected = ennemi.estimate_mi(y, x, k=20)[0, 0]
    assert knn_mutual_information(x, y) == pytest.approx(expected, abs=1e-6)
    expected = ennemi.estimate_mi(labels, x, k=20, discrete_y=True)[0, 0]
    assert knn_mutual_information(x, labels) == pytest.approx(expected, abs=1e-6)
    expected = ennemi.estimate_mi(y, x, k=20, cond=given)[0, 0]
    assert knn_conditional_mutual_information(x, y, given) == pytest.approx(expected, abs=1e-6)


def test_parametric_posterior():
    rng = np.random.default_rng(3)
    latent_w = rng.normal(size=N)
    x, y = latent_w + rng.normal(size=N), (latent_w > 0).astype(int)
    z, w = sample_parametric_posterior(x, y, seed=4)
    assert knn_mutual_information(z, y) == pytest.approx(0.0868, abs=0.015)
    assert knn_mutual_information(w, y) == pytest.approx(0.6931, abs=0.015)
    assert knn_mutual_information(w, z) == pytest.approx(0.1438, abs=0.015)
    assert knn_conditional_mutual_information(w, z, y) == pytest.approx(0.0571, abs=0.015)
    # The paper's row "True Posterior".
    assert knn_mutual_information(z, y, count="paper") == pytest.approx(0.058, abs=0.015)
    assert knn_mutual_information(w, y, count="paper") == pytest.approx(0.643, abs=0.015)
    # Neither of its other two columns is touched by the miscount.
    assert knn_mutual_information(w, z, count="paper") == knn_mutual_information(w, z)


def test_paper_count_is_low_by_one_over_k():
    labels = np.arange(1000) % 2
    x = 100 * labels + np.random.default_rng(0).normal(size=1000)
    right, paper = (knn_mutual_information(x, labels, k=8, count=count) for count in ("ross", "paper"))
    assert right - paper == pytest.approx(1 / 8)


def test_chain_is_conditionally_independent():
    first, step, other_step = np.random.default_rng(0).normal(size=(3, N))
    middle = first + step
    last = middle + other_step
    assert knn_mutual_information(first, last) > 0.15
    assert knn_conditional_mutual_information(first, last, middle) <= 0.02


def test_common_effect_is_conditionally_dependent():
    x, y, noise = np.random.default_rng(0).normal(size=(3, N))
    effect = x + y + noise
    # Given the effect, x and y have variance 2/3 and covariance -1/3.
    truth = -0.5 * np.log(1 - 0.25)
    assert knn_conditional_mutual_information(x, y, effect) == pytest.approx(truth, abs=0.03)


def test_given_labels_is_the_weighted_average():
    x, y, strong = gaussian_pair(1, 0.8)
    given = np.where(np.arange(N) < N // 4, "coupled", "free")
    y[given == "free"] = np.random.default_rng(5).normal(size=(N - N // 4, 1))
    assert knn_conditional_mutual_information(x, y, given) == pytest.approx(strong / 4, abs=0.02)


def test_labels_given_labels():
    x, labels, within = mixture((0.5, 0.5), (0, 2))
    group = np.random.default_rng(6).integers(3, size=N)
    labels[group == 2] = 0  # one label only: nothing to know there
    shared = np.mean(group != 2)
    estimate = knn_conditional_mutual_information(x + 50 * group, labels, group)
    assert estimate == pytest.approx(shared * within, abs=0.015)


def test_guesses_what_a_label_is():
    x, labels, _ = mixture((0.5, 0.5), (0, 3), n=600)
    expected = knn_mutual_information(x, labels)
    for same in (labels.astype(bool), labels.astype(str), pd.Series(labels.astype(float)).astype("category")):
        assert knn_mutual_information(x, same) == expected
    assert knn_mutual_information(x, labels.astype(float), discrete=True) == expected
    assert knn_mutual_information(x, labels, discrete=False) != expected


def test_does_not_depend_on_units_or_order():
    x, y, _ = gaussian_pair(2, 0.6, n=1000)
    expected = knn_mutual_information(x, y)
    assert knn_mutual_information(x * [1e4, 1e-2] + 7, 1e-4 * y) == pytest.approx(expected, abs=1e-6)
    assert knn_mutual_information(y, x) == pytest.approx(expected, abs=1e-6)


def test_duplicates_and_constants():
    rng = np.random.default_rng(0)
    coarse = rng.integers(3, size=2000).astype(float)
    assert knn_mutual_information(coarse, rng.permutation(coarse)) < 0.02
    assert knn_mutual_information(coarse, coarse.astype(int)) == pytest.approx(np.log(3), abs=0.01)
    assert knn_mutual_information(np.zeros(200), rng.normal(size=200)) == 0
    assert knn_mutual_information(np.zeros(200), rng.integers(2, size=200)) < 0.05


def test_refuses_bad_input():
    x, labels = np.linspace(0, 1, 60), np.arange(60) % 2
    with pytest.raises(ValueError, match="lengths differ.*'x': 60, 'y': 59"):
        knn_mutual_information(x, labels[:-1])
    with pytest.raises(ValueError, match="x has NaN or infinite values in 1 rows"):
        knn_mutual_information(np.where(x == 0, np.nan, x), labels)
    with pytest.raises(ValueError, match="k is 60 but the data has 60 rows"):
        knn_mutual_information(x, x, k=60)
    with pytest.raises(ValueError, match="k is 30 but the smallest label of y has 30 rows"):
        knn_mutual_information(x, labels, k=30)
    with pytest.raises(ValueError, match="k is 0"):
        knn_mutual_information(x, labels, k=0)
    with pytest.raises(ValueError, match="y has one distinct label"):
        knn_mutual_information(x, np.zeros(60, dtype=int))
    with pytest.raises(ValueError, match="count is 'rosss'"):
        knn_mutual_information(x, labels, count="rosss")
    with pytest.raises(ValueError, match=r"x has shape \(2, 3, 4\)"):
        knn_mutual_information(np.zeros((2, 3, 4)), labels)
    with pytest.raises(ValueError, match=r"y has shape \(60, 2\); pass one label per row"):
        knn_mutual_information(x, np.zeros((60, 2), dtype=int))
    with pytest.raises(ValueError, match="y has 1 missing labels"):
        knn_mutual_information(x, [None, *["a"] * 59])
    with pytest.raises(ValueError, match="k is 20 but a label of given has 20 rows"):
        knn_conditional_mutual_information(x, x, np.arange(60) % 3)
    with pytest.raises(ValueError, match="y holds labels and given is continuous"):
        knn_conditional_mutual_information(x, labels, x)
