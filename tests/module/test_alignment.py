"""The MMD against a loop over pairs, and against its closed form for Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc.module.alignment import mmd
from discovr_sc.settings import BANDWIDTHS


def by_loops(z, y, n_conditions):
    def kernel(a, b):
        d = ((a - b) ** 2).sum()
        return np.mean([np.exp(-d / (w * 2 * z.shape[1])) for w in BANDWIDTHS])

    total, weight = 0.0, 0
    for k in range(n_conditions):
        a, b = z[y == k], z[y != k]
        if len(a) < 2 or len(b) < 2:
            continue
        aa = np.mean([kernel(a[i], a[j]) for i in range(len(a)) for j in range(len(a)) if i != j])
        bb = np.mean([kernel(b[i], b[j]) for i in range(len(b)) for j in range(len(b)) if i != j])
        ab = np.mean([kernel(u, v) for u in a for v in b])
        total, weight = total + len(a) * (aa + bb - 2 * ab), weight + len(a)
    return total / weight


@pytest.mark.parametrize("sizes", [(7, 9), (4, 6, 5), (8, 1, 6)])
def test_mmd_equals_a_loop_over_pairs(sizes):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(sizes)), sizes)
    z = rng.normal(size=(len(y), 3)) + 0.5 * y[:, None]
    value = mmd(torch.as_tensor(z), torch.as_tensor(y), len(sizes)).item()
    assert value == pytest.approx(by_loops(z, y, len(sizes)), rel=1e-6)


def test_mmd_of_shifted_gaussians_equals_its_closed_form():
    rng = np.random.default_rng(0)
    n, d, shift = 2000, 2, 1.0
    z = torch.as_tensor(rng.normal(size=(2 * n, d)))
    y = torch.arange(2).repeat_interleave(n)
    z[n:, 0] += shift

    def expected_kernel(delta, width):
        # E exp(-|u|^2 / s) for u ~ N(delta, 2 I)
        s = width * 2 * d
        return (s / (s + 4)) ** (d / 2) * np.exp(-(delta**2) / (s + 4))

    exact = np.mean([2 * expected_kernel(0, w) - 2 * expected_kernel(shift, w) for w in BANDWIDTHS])
    assert mmd(z, y, 2).item() == pytest.approx(exact, abs=0.01)
    assert exact > 0.05


def test_fine_bandwidths_see_a_shift_across_a_thin_sheet():
    """Along the sheet both conditions are alike; across it they lie 0.06 apart, with a tenth of that in spread."""
    rng = np.random.default_rng(0)
    y = torch.arange(2).repeat_interleave(1000)
    z = torch.as_tensor(np.stack([np.tile(np.linspace(-1.7, 1.7, 1000), 2), rng.normal(0, 0.006, 2000)], 1))
    z[:, 1] += 0.06 * y
    fine, coarse = mmd(z, y, 2, bandwidths=(0.001,)).item(), mmd(z, y, 2).item()
    assert fine > 0.02 and fine > 10 * abs(coarse)


def test_equal_distributions_have_no_mmd_on_average():
    rng = np.random.default_rng(1)
    y = torch.as_tensor(np.repeat([0, 1], [40, 160]))
    values = [mmd(torch.as_tensor(rng.normal(size=(200, 5))), y, 2).item() for _ in range(200)]
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(200)


def test_a_batch_of_one_condition_gives_zero_with_gradients():
    z = torch.randn(5, 2, requires_grad=True)
    value = mmd(z, torch.zeros(5, dtype=torch.long), 3)
    value.backward()
    assert value.item() == 0
    assert torch.isfinite(z.grad).all()
