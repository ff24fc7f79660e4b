"""Priors of w, exact on toy sets."""

from __future__ import annotations

import pytest
import torch

from discovr_sc.module.priors import PRIORS, ConditionMeans

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
