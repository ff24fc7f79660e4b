"""Priors of w, exact on toy sets; the mixture against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from discovr_sc.module.gaussians import log_prob
from discovr_sc.module.priors import PRIORS, ConditionMeans, LearnedPrior, MixturePrior

Z = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, -1.0]])
Y = torch.tensor([0, 0, 2])
KNOWN = torch.ones(3, dtype=torch.bool)


def test_condition_means_of_a_batch_are_exact_and_carry_gradients():
    means = ConditionMeans(3, 2)
    z = Z.clone().requires_grad_()
    result = means(z, Y, KNOWN)
    torch.testing.assert_close(result, torch.tensor([[2.0, 1.0], [0.0, 0.0], [5.0, -1.0]]))
    result[0, 0].backward()
    torch.testing.assert_close(z.grad, torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 0.0]]))


def test_an_absent_condition_falls_back_to_the_running_mean():
    means = ConditionMeans(3, 2, momentum=0.1)
    means(Z, Y, KNOWN)
    result = means(Z + 10, Y, torch.tensor([True, True, False]))
    torch.testing.assert_close(result[2], Z[2])  # absent: as first seen
    torch.testing.assert_close(result[0], torch.tensor([12.0, 11.0]))
    torch.testing.assert_close(means.means[0], 0.9 * torch.tensor([2.0, 1.0]) + 0.1 * torch.tensor([12.0, 11.0]))


def test_evaluation_uses_the_mean_over_the_whole_set():
    means = ConditionMeans(3, 2).eval()
    means.fit([(Z[:1], Y[:1]), (Z[1:], Y[1:])])
    torch.testing.assert_close(means(Z * 100, Y, KNOWN), torch.tensor([[2.0, 1.0], [0.0, 0.0], [5.0, -1.0]]))
    assert means.seen.tolist() == [True, False, True]


def test_condition_mean_prior_is_a_unit_gaussian_around_the_means():
    means = torch.randn(3, 2)
    prior = PRIORS["condition-mean"](3, 2, 2)(means)
    torch.testing.assert_close(prior.loc, means)
    torch.testing.assert_close(prior.scale, torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"n_latent_z=10 and n_latent_w=2.*'mapped'"):
        PRIORS["condition-mean"](3, 10, 2)


def test_separable_prior_is_on_in_its_own_block():
    prior = PRIORS["separable"](2, 3, 4)(None)
    assert prior.loc.tolist() == [[3, 3, 0, 0], [0, 0, 3, 3]]
    torch.testing.assert_close(prior.scale, torch.tensor([[1, 1, 0.1, 0.1], [0.1, 0.1, 1, 1]]))
    small = PRIORS["separable"](2, 3, 1)(None)
    assert small.loc.tolist() == [[0], [3]]
    with pytest.raises(ValueError, match="n_latent_w to at least 3"):
        PRIORS["separable"](3, 3, 2)


def test_mapped_and_learned_priors_can_tell_classes_apart_and_standard_cannot():
    torch.manual_seed(0)
    means = torch.randn(2, 10)
    for name in ("mapped", "learned"):
        prior = PRIORS[name](2, 10, 3)(means)
        assert prior.loc.shape == (2, 3)
        assert (prior.loc[0] - prior.loc[1]).abs().max() > 0.01
        assert (prior.scale > 0).all()
    standard = PRIORS["standard"](2, 10, 3)(means)
    assert (standard.loc == 0).all()
    assert (standard.scale == 1).all()


def test_means_are_set_apart_around_their_centre():
    torch.manual_seed(0)
    prior = LearnedPrior(5, 10, 3)
    prior.set_apart(3.0)
    torch.testing.assert_close(prior.loc.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    assert prior.loc.norm(dim=-1).mean().item() == pytest.approx(3)
    assert prior.loc.requires_grad


# The mixture ----------------------------------------------------------------------------------------------------------

#: Three conditions with shares of their own of four components.
SHARES = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])


def mixture(n_types=0):
    torch.manual_seed(0)
    prior = MixturePrior(4, 2, n_conditions=3, n_types=n_types)
    with torch.no_grad():
        prior.logits.copy_(SHARES.log() + 7)  # a constant does not count
    return prior


def by_torch(prior, shares, z):
    components = Independent(Normal(prior.loc, torch.ones_like(prior.loc)), 1)
    return MixtureSameFamily(Categorical(shares), components).log_prob(z)


def test_every_condition_has_its_own_shares_of_the_components():
    prior, z, y = mixture(), torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = torch.stack([by_torch(prior, SHARES[k], x) for x, k in zip(z, y, strict=True)])
    torch.testing.assert_close(log_prob(prior(y, torch.ones(6, dtype=torch.bool)), z), expected)


def test_an_unknown_condition_has_the_shares_of_all_together():
    prior, z = mixture(), torch.randn(4, 2)
    known = torch.tensor([True, False, False, True])
    found = log_prob(prior(torch.tensor([1, 1, 0, 0]), known), z)
    torch.testing.assert_close(found[1:3], by_torch(prior, SHARES.mean(0), z[1:3]))
    torch.testing.assert_close(found[0], by_torch(prior, SHARES[1], z[0]))
    torch.testing.assert_close(log_prob(prior.together(), z), by_torch(prior, SHARES.mean(0), z))


def test_a_known_type_has_its_own_components_only():
    prior, z = mixture(n_types=2), torch.randn(3, 2)
    y, known = torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.bool)
    found = log_prob(prior(y, known, torch.tensor([0, 1, -1])), z)
    for cell, own in ((0, [0, 2]), (1, [1, 3]), (2, [0, 1, 2, 3])):
        shares = torch.zeros(4)
        shares[own] = SHARES[y[cell], own]
        torch.testing.assert_close(found[cell], by_torch(prior, shares, z[cell]))
    found.sum().backward()
    assert torch.isfinite(prior.logits.grad).all()


def test_there_is_a_component_for_each_type():
    assert MixturePrior(2, 3, n_conditions=2, n_types=5).type_of.tolist() == [0, 1, 2, 3, 4]
    assert MixturePrior(5, 3, n_conditions=2, n_types=2).type_of.tolist() == [0, 1, 0, 1, 0]
    assert MixturePrior(3, 3, n_conditions=2).type_of.tolist() == [0, 0, 0]


def test_responsibilities_are_bayes_rule():
    prior, z = mixture(), torch.randn(5, 2)
    densities = torch.exp(-(z.unsqueeze(1) - prior.loc).square().sum(-1) / 2) * SHARES.mean(0)
    torch.testing.assert_close(prior.responsibilities(z), densities / densities.sum(-1, keepdim=True))


@pytest.mark.parametrize("n_types", [0, 2])
def test_components_start_where_cells_are(n_types):
    """Four clouds; the first condition has two of them, three cells to one, and the second has the others."""
    prior = mixture(n_types)
    centres = torch.tensor([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0], [30.0, 30.0]])
    cloud = torch.tensor([0] * 30 + [1] * 10 + [2] * 20 + [3] * 20)
    z = centres[cloud] + 0.01 * torch.randn(80, 2)
    y, cell_type = (cloud >= 2).long(), cloud % 2
    prior.start_at(z, y, cell_type if n_types else None)
    nearest = torch.cdist(centres, prior.loc).argmin(-1)
    assert sorted(nearest.tolist()) == [0, 1, 2, 3]
    torch.testing.assert_close(prior.loc[nearest], centres, atol=0.05, rtol=0)
    if n_types:
        assert prior.type_of[nearest].tolist() == [0, 1, 0, 1]
    shares = torch.softmax(prior.logits, -1)[:, nearest]
    expected = torch.tensor([[31, 11, 1, 1], [1, 1, 21, 21], [1, 1, 1, 1]])  # one cell more, so that none is 0
    torch.testing.assert_close(shares, expected / expected.sum(-1, keepdim=True))
