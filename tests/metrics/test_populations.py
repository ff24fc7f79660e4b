"""Agreement of populations, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from discovr_sc import metrics


def test_mean_score_against_closed_forms():
    real = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 5.0]])
    assert metrics.mean_score(real, real) == (pytest.approx(1.0), pytest.approx(1.0))
    scaled = metrics.mean_score(2 * real + 1, real)
    assert scaled.r2 == pytest.approx(1.0)
    means = real.mean(0)
    expected = 1 - ((means + 1) ** 2).sum() / ((means - means.mean()) ** 2).sum()
    assert scaled.determination == pytest.approx(expected)
    assert metrics.mean_score(np.ones((2, 4)), real).r2 == 0
    some = metrics.mean_score(real[:, ::-1], real, [1, 2])
    assert some.r2 == pytest.approx(1.0)
    assert some.determination == pytest.approx(-3.0)


def test_energy_distance_of_gaussians():
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| with |N(m, 2)| folded normals, in one dimension."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, (2, 3000, 1))
    x, y = x - x.mean(), y - y.mean() + 2
    folded_0 = 2 / np.sqrt(np.pi)
    folded_2 = 2 / np.sqrt(np.pi) * np.exp(-1) + 2 * 0.8427007929
    estimate = metrics.energy_distance(x, y, max_cells=3000)
    assert estimate == pytest.approx(2 * folded_2 - 2 * folded_0, abs=0.04)
    assert abs(metrics.energy_distance(x[:1500], x[1500:], max_cells=1500)) < 0.01


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="3 and 2 features"):
        metrics.mean_score(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="1 features to compare"):
        metrics.mean_score(np.ones((2, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="x has 1 cells; pass at least 2"):
        metrics.energy_distance(np.ones((1, 2)), np.ones((3, 2)))
