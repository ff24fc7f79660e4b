"""Metrics of images against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from discovr_sc import metrics


def test_color_gap_looks_at_the_digit_alone():
    shape = np.zeros((2, 4, 4))
    shape[:, 1:3, 1:3] = 0.8
    images = np.random.default_rng(0).random((2, 3, 4, 4))  # whatever lies around the digit
    images[0, :, 1:3, 1:3] = np.array([0.6, 0.2, 0.8])[:, None, None]
    images[1, :, 1:3, 1:3] = np.array([0.3, 0.5, 0.8])[:, None, None]
    assert metrics.color_gap(images, shape) == pytest.approx((0.4 + 0.2) / 2)
    images[:, 0] = images[:, 1]
    assert metrics.color_gap(images, shape) == 0


@pytest.mark.parametrize(
    ("images", "shape", "message"),
    [
        (np.zeros((2, 1, 4, 4)), np.ones((2, 4, 4)), r"pass images \(n, 3, height, width\)"),
        (np.zeros((2, 3, 4, 4)), np.ones((2, 3, 4)), "shape is of"),
        (np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4)), "no pixel of at least 0.5"),
    ],
)
def test_color_gap_refuses(images, shape, message):
    with pytest.raises(ValueError, match=message):
        metrics.color_gap(images, shape)


def test_half_squared_error_is_a_unit_gaussians_likelihood_without_its_constant():
    rng = np.random.default_rng(0)
    x, mean = rng.random((2, 50, 3, 5, 5))
    log_density = -0.5 * np.log(2 * np.pi) - (x - mean) ** 2 / 2
    constant = 0.5 * np.log(2 * np.pi) * 75
    assert metrics.half_squared_error(mean, x) == pytest.approx(-log_density.sum((1, 2, 3)).mean() - constant, rel=1e-5)
    with pytest.raises(ValueError, match="arrays of one shape"):
        metrics.half_squared_error(mean, x[:10])


def test_attribute_gap_is_the_difference_of_mean_scores():
    assert metrics.attribute_gap([0.2, 0.4, 0.9], ["without", "without", "with"]) == pytest.approx(0.6)
    assert metrics.attribute_gap([0.9, 0.2, 0.4], [True, False, False]) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, 0.2], [0, 0], "at least 2 are needed"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "labels has 3 kinds"),
        ([0.1, 0.2, 0.3], [0, 1], "lengths differ"),
    ],
)
def test_attribute_gap_refuses(scores, labels, message):
    with pytest.raises(ValueError, match=message):
        metrics.attribute_gap(scores, labels)
