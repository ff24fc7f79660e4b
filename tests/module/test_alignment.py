"""The MMD against a loop over pairs, and against its closed form for Gaussians; the dependence of two latents."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc.module.alignment import dependence, mmd
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


# Overlap weights ----------------------------------------------------------------------------------------------------


def weighted_by_loops(z, y, shares):
    """Every condition's cells against the others', each pair with the product of its cells' weights."""
    n = len(y)
    kernel = np.array(
        [[[np.exp(-((a - b) ** 2).sum() / (w * 2 * z.shape[1])) for w in BANDWIDTHS] for a in z] for b in z]
    )
    kernel = kernel.mean(-1)
    total = 0.0
    for k in range(shares.shape[1]):
        inside, outside = np.flatnonzero(y == k), np.flatnonzero(y != k)
        u, v = 1 - shares[:, k], shares[:, k]

        def mean(weights_a, a, weights_b, b):
            pairs = [(weights_a[i] * weights_b[j], kernel[i, j]) for i in a for j in b if i != j]
            return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)

        distance = mean(u, inside, u, inside) + mean(v, outside, v, outside) - 2 * mean(u, inside, v, outside)
        in_common = u[inside].sum() * n / (len(inside) * len(outside))
        total += len(inside) / n * in_common * distance
    return total


def composed(rng, n=300):
    """Cells of two kinds, 9 to 1 in one condition and 1 to 9 in the other, and the shares of the conditions in them."""
    y = rng.integers(2, size=n)
    kind = np.where(rng.random(n) < 0.9, y, 1 - y)
    shares = np.where(kind[:, None] == np.arange(2), 0.9, 0.1)
    return torch.as_tensor(y), kind, torch.as_tensor(shares)


@pytest.mark.parametrize("n_conditions", [2, 3])
def test_weighted_mmd_equals_a_loop_over_pairs(n_conditions):
    rng = np.random.default_rng(0)
    y = np.arange(14) % n_conditions
    z = rng.normal(size=(14, 3)) + 0.5 * y[:, None]
    shares = rng.dirichlet(np.ones(n_conditions), size=14)
    value = mmd(torch.as_tensor(z), torch.as_tensor(y), n_conditions, shares=torch.as_tensor(shares)).item()
    assert value == pytest.approx(weighted_by_loops(z, y, shares), rel=1e-6)


def test_weights_change_nothing_where_every_kind_has_the_conditions_in_their_own_shares():
    rng = np.random.default_rng(0)
    y = torch.as_tensor(np.repeat([0, 1, 2], [10, 20, 30]))
    z = torch.as_tensor(rng.normal(size=(60, 3))) + y.unsqueeze(-1)
    shares = torch.tensor([1 / 6, 2 / 6, 3 / 6], dtype=torch.float64).expand(60, 3)
    torch.testing.assert_close(mmd(z, y, 3, shares=shares), mmd(z, y, 3))


def test_composition_alone_has_no_weighted_mmd_on_average():
    """z depends on the condition only through the kind of cell."""
    rng = np.random.default_rng(0)
    plain, weighted = [], []
    for _ in range(200):
        y, kind, shares = composed(rng)
        z = torch.as_tensor(rng.normal(size=(len(y), 2)) + 4 * kind[:, None])
        plain.append(mmd(z, y, 2).item())
        weighted.append(mmd(z, y, 2, shares=shares).item())
    assert abs(np.mean(weighted)) < 3 * np.std(weighted) / np.sqrt(200)
    assert np.mean(plain) > 100 * abs(np.mean(weighted))


def test_a_shift_within_kinds_is_seen():
    rng = np.random.default_rng(0)
    y, kind, shares = composed(rng)
    z = torch.as_tensor(rng.normal(size=(len(y), 2)) + 4 * kind[:, None])
    assert mmd(z + y.unsqueeze(-1), y, 2, shares=shares) > 10 * abs(mmd(z, y, 2, shares=shares))


def test_a_kind_that_a_condition_lacks_contributes_nothing():
    rng = np.random.default_rng(0)
    y = torch.as_tensor(np.repeat([0, 1], 30))
    z = torch.as_tensor(rng.normal(size=(60, 2)))
    shares = torch.full((60, 2), 0.5, dtype=torch.float64)
    shares[50:] = torch.tensor([0.0, 1.0], dtype=torch.float64)  # these are of the second condition alone
    z.requires_grad_()
    mmd(z, y, 2, shares=shares).backward()
    assert (z.grad[50:] == 0).all()
    assert (z.grad[:50] != 0).any()
    moved = z.detach().clone()
    moved[50:] += 100
    torch.testing.assert_close(mmd(moved, y, 2, shares=shares), mmd(z.detach(), y, 2, shares=shares))


def test_conditions_without_a_kind_in_common_have_no_mmd_and_finite_gradients():
    y = torch.arange(2).repeat_interleave(10)
    z = torch.randn(20, 2, requires_grad=True)
    value = mmd(z, y, 2, shares=torch.nn.functional.one_hot(y, 2).float())
    value.backward()
    assert value.item() == 0
    assert torch.isfinite(z.grad).all()


# Dependence -----------------------------------------------------------------------------------------------------------


def independent(n, seed=0):
    """w and z that both depend on the condition, and on each other through it alone."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    w, z = (torch.as_tensor(rng.normal(size=(n, 2)) + 5 * y[:, None]) for _ in range(2))
    return w, z, torch.as_tensor(y)


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize("shape", ["normal", "outliers"])
def test_the_dependence_of_independent_latents_is_0_on_average_whatever_their_distribution(n, shape):
    values = []
    for seed in range(200):
        w, z, y = independent(n, seed)
        if shape == "outliers":  # nearly all of w in one place
            w = torch.where(torch.rand(n, 1) < 0.1, w, 5.0 * y.unsqueeze(-1))
        values.append(dependence(w, z, y, 2).item())
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))
    assert np.std(values) < 4 / n


def test_a_latent_depends_on_itself_and_on_what_is_made_of_it():
    _, z, y = independent(400)
    assert dependence(z, z, y, 2).item() == pytest.approx(1)
    assert dependence(7 * z + 3, z, y, 2).item() == pytest.approx(1)  # units do not count
    assert dependence((z - 5 * y.unsqueeze(-1)).square(), z, y, 2).item() > 0.1


def unbiased_hsic(k, m):
    """Estimate of Song et al. (2012), equation 5, of kernels whose diagonals do not count."""
    n = len(k)
    k, m = (kernel - np.diag(np.diag(kernel)) for kernel in (k, m))
    together = k.sum() * m.sum() / ((n - 1) * (n - 2))
    return ((k * m).sum() + together - 2 / (n - 2) * (k @ m).sum()) / (n * (n - 3))


def test_dependence_equals_the_normalised_unbiased_hsic_of_one_condition():
    rng = np.random.default_rng(0)
    w, z = rng.normal(size=(2, 12, 2))
    z += w

    def kernel(x):
        d = ((x[:, None] - x) ** 2).sum(-1)
        return np.exp(-d / d.mean())

    k, m = kernel(w), kernel(z)
    expected = unbiased_hsic(k, m) / np.sqrt(unbiased_hsic(k, k) * unbiased_hsic(m, m))
    value = dependence(torch.as_tensor(w), torch.as_tensor(z), torch.zeros(12, dtype=torch.long), 2)
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 50])
def test_dependence_and_its_gradients_are_finite_for_few_cells_and_for_cells_that_are_alike(n):
    for w in (torch.randn(n, 2), torch.ones(n, 2)):
        w.requires_grad_()
        value = dependence(w, torch.randn(n, 3), torch.arange(n) % 2, 3)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(w.grad).all()
