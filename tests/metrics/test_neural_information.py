"""The neural estimate against closed forms at the size of the experiments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc.metrics import mine

N = 20_000


def gaussian_pair(d, rho, seed, n=N):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(n, d)), -0.5 * d * np.log(1 - rho**2)


@pytest.mark.parametrize("d", [1, 5])
def test_independent(d):
    x, y, _ = gaussian_pair(d, 0.0, seed=0)
    assert 0 <= mine(x, y) <= 0.003


def test_tells_weak_dependence_from_none():
    x, y, truth = gaussian_pair(1, 0.2, seed=1)
    assert truth == pytest.approx(0.020, abs=5e-4)
    assert mine(x, y) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize(("d", "rho"), [(1, 0.95), (4, 0.8)])
def test_strong_dependence(d, rho):
    x, y, truth = gaussian_pair(d, rho, seed=2)
    assert truth > 1
    assert mine(x, y) == pytest.approx(truth, abs=0.1)


def test_labels():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=6000)
    x = np.column_stack([rng.normal(size=6000), rng.normal(size=6000) + 20 * labels])
    expected = pytest.approx(np.log(3), abs=0.03)
    assert mine(x, labels) == expected
    assert mine(x, labels.astype(float), discrete=True) == expected


def test_given_labels():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=N)
    # The group shifts both variables, which is dependence only as long as the group is unknown ...
    x, y = 3 * group + rng.normal(size=(2, N))
    assert mine(x, y) > 0.3
    assert mine(x, y, given=group) <= 0.005
    # ... while in a quarter of the cells they go together within the group.
    x, y, strong = gaussian_pair(1, 0.9, seed=3)
    group = np.where(rng.random(N) < 0.25, "coupled", "free")
    y[group == "free"] = rng.normal(size=((group == "free").sum(), 1))
    assert mine(x, y, given=group) == pytest.approx(strong / 4, abs=0.03)


def test_repeats_and_leaves_torch_alone():
    x, y, _ = gaussian_pair(1, 0.7, seed=4, n=1000)
    before = torch.get_rng_state()
    first = mine(x, y, max_epochs=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert mine(x, y, max_epochs=5) == first
    assert mine(x, y, max_epochs=5, seed=1) != first


def test_ignores_units_and_constant_columns():
    x, y, truth = gaussian_pair(1, 0.95, seed=5, n=3000)
    padded = np.column_stack([1e5 * x, np.full(len(x), 7.0)])
    assert mine(padded, 1e-5 * y) == pytest.approx(truth, abs=0.15)


def test_refuses_bad_input():
    x, labels = np.linspace(0, 1, 100), np.arange(100) % 2
    with pytest.raises(ValueError, match="lengths differ"):
        mine(x, x[:-1])
    with pytest.raises(ValueError, match="y has NaN"):
        mine(x, np.where(x == 0, np.inf, x))
    with pytest.raises(ValueError, match="y has 1 distinct labels"):
        mine(x, np.zeros(100, dtype=int))
    with pytest.raises(ValueError, match="has 49 rows; mine needs at least 50"):
        mine(x[:49], labels[:49])
    with pytest.raises(ValueError, match="has 25 rows; mine needs at least 50"):
        mine(x, x, given=np.arange(100) % 4)
    with pytest.raises(ValueError, match="given is continuous"):
        mine(x, x, given=x)
    with pytest.raises(ValueError, match="hidden is 0"):
        mine(x, labels, hidden=0)
