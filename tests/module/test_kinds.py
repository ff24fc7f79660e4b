"""Shares of the conditions in kinds of cells, against shares counted by hand."""

from __future__ import annotations

import pytest
import torch

from discovr_sc.module.kinds import MOMENTUM, SMALLEST_SHARE, Kinds
from discovr_sc.module.priors import MixturePrior

#: Two kinds of cells, far apart, in two conditions: 3 to 1 in the first kind, 0 to 2 in the second.
Z = torch.tensor([[-20.0, 0.0]] * 4 + [[20.0, 0.0]] * 2)
Y = torch.tensor([0, 0, 0, 1, 1, 1])
KNOWN = torch.ones(6, dtype=torch.bool)


def two_components(n_types=0):
    prior = MixturePrior(2, 2, n_conditions=2, n_types=n_types)
    with torch.no_grad():
        prior.loc.copy_(torch.tensor([[-20.0, 0.0], [20.0, 0.0]]))
    return prior


def shares_of(kinds, prior, cell_type=None, known=KNOWN):
    return kinds(kinds.of(Z, cell_type, prior), Y, known)


def trained(kinds, prior, cell_type=None, known=KNOWN, n_steps=1000):
    for _ in range(n_steps):
        shares = shares_of(kinds, prior, cell_type, known)
    return shares


def test_shares_start_equal_and_become_those_of_the_cells():
    prior = two_components()
    kinds = Kinds(2, prior)
    torch.testing.assert_close(shares_of(kinds.eval(), prior), torch.full((6, 2), 0.5))
    shares = trained(kinds.train(), prior)
    torch.testing.assert_close(kinds.mass, torch.tensor([[3.0, 0.0], [1.0, 2.0]]) / 6, atol=1e-5, rtol=0)
    torch.testing.assert_close(shares[:4], torch.tensor([[0.75, 0.25]]).expand(4, 2), atol=1e-4, rtol=0)
    least = SMALLEST_SHARE / (1 + SMALLEST_SHARE)  # the second kind is not of the first condition, and says so
    torch.testing.assert_close(shares[4:], torch.tensor([[least, 1 - least]]).expand(2, 2))
    torch.testing.assert_close(shares.sum(-1), torch.ones(6))


def test_one_step_moves_the_masses_by_the_momentum():
    prior = two_components()
    kinds = Kinds(2, prior)
    before = kinds.mass.clone()
    shares_of(kinds, prior)
    expected = (1 - MOMENTUM) * before + MOMENTUM * torch.tensor([[3.0, 0.0], [1.0, 2.0]]) / 6
    torch.testing.assert_close(kinds.mass, expected)


def test_known_types_are_the_kinds_and_components_those_of_the_other_cells():
    prior = two_components(n_types=2)
    kinds = Kinds(2, prior, n_types=2)
    cell_type = torch.tensor([1, 1, 0, 0, 1, -1])  # against where z lies; the last is of the second component's type
    shares = trained(kinds, prior, cell_type)
    torch.testing.assert_close(kinds.mass, torch.tensor([[1.0, 2.0], [1.0, 2.0]]) / 6, atol=1e-5, rtol=0)
    torch.testing.assert_close(shares, torch.full((6, 2), 0.5), atol=1e-4, rtol=0)
    kinds.mass.copy_(torch.tensor([[4.0, 1.0], [1.0, 3.0]]))
    shares = shares_of(kinds.eval(), prior, cell_type)
    torch.testing.assert_close(shares[2], torch.tensor([0.8, 0.2]))
    torch.testing.assert_close(shares[5], torch.tensor([0.25, 0.75]))


def test_components_of_one_type_count_together():
    prior = MixturePrior(4, 2, n_conditions=2, n_types=2)  # components 0 and 2 are of the first type
    with torch.no_grad():
        prior.loc.copy_(torch.tensor([[-20.0, 0.0], [20.0, 50.0], [20.0, 0.0], [-20.0, 50.0]]))
    kinds = Kinds(2, prior, n_types=2)
    trained(kinds, prior, torch.full((6,), -1))
    torch.testing.assert_close(kinds.mass, torch.tensor([[3.0, 0.0], [3.0, 0.0]]) / 6, atol=1e-5, rtol=0)


def test_evaluation_counts_no_cells():
    prior = two_components()
    kinds = Kinds(2, prior).eval()
    before = kinds.mass.clone()
    trained(kinds, prior, n_steps=3)
    torch.testing.assert_close(kinds.mass, before, rtol=0, atol=0)


def test_cells_of_unknown_condition_are_not_counted():
    prior = two_components()
    kinds = Kinds(2, prior)
    known = torch.tensor([True, True, False, True, True, True])
    shares = trained(kinds, prior, known=known)
    torch.testing.assert_close(kinds.mass, torch.tensor([[2.0, 0.0], [1.0, 2.0]]) / 5, atol=1e-5, rtol=0)
    torch.testing.assert_close(shares[2], torch.tensor([2 / 3, 1 / 3]), atol=1e-4, rtol=0)
    before = kinds.mass.clone()
    shares_of(kinds, prior, known=torch.zeros(6, dtype=torch.bool))
    assert torch.isfinite(kinds.mass).all()
    torch.testing.assert_close(kinds.mass, (1 - MOMENTUM) * before)


def test_shares_carry_no_gradient():
    prior = two_components()
    kinds = Kinds(2, prior)
    of_cells = kinds.of(Z.clone().requires_grad_(), None, prior)
    assert not of_cells.requires_grad
    assert not kinds(of_cells.requires_grad_(), Y, KNOWN).requires_grad


@pytest.mark.parametrize("n_types", [0, 3])
def test_the_shares_are_probabilities_whatever_the_cells(n_types):
    torch.manual_seed(0)
    prior = MixturePrior(5, 4, n_conditions=3, n_types=n_types)
    kinds = Kinds(3, prior, n_types)
    cell_type = torch.randint(-1, n_types, (40,)) if n_types else None
    of_cells = kinds.of(3 * torch.randn(40, 4), cell_type, prior)
    shares = kinds(of_cells, torch.randint(3, (40,)), torch.rand(40) > 0.3)
    assert (shares > 0).all()
    torch.testing.assert_close(shares.sum(-1), torch.ones(40))


#: In the first kind the conditions' means are 3 apart; the second kind is of one condition.
SHIFTED = Z + torch.tensor([[0.0, 1.0]] * 3 + [[0.0, -2.0]] + [[0.0, 7.0]] * 2)


def settled(n_steps=1000):
    prior = two_components()
    kinds = Kinds(2, prior)
    of_cells = kinds.of(SHIFTED, None, prior)
    for _ in range(n_steps):
        kinds(of_cells, Y, KNOWN)
        distance = kinds.displacement(SHIFTED, of_cells, Y, KNOWN)
    return kinds, of_cells, distance


def test_the_displacement_is_that_of_means_within_kinds_that_conditions_have_in_common():
    kinds, of_cells, distance = settled()
    torch.testing.assert_close(kinds.sums[0, 0], torch.tensor([-20.0, 1.0]) * 3 / 6, atol=1e-4, rtol=0)
    in_common = (3 / 6) * (1 / 6) / (4 / 6)  # the same for both conditions
    torch.testing.assert_close(distance, torch.tensor(2 * in_common * 3.0**2), atol=1e-3, rtol=0)
    before = kinds.sums.clone()
    torch.testing.assert_close(kinds.eval().displacement(SHIFTED, of_cells, Y, KNOWN), distance)
    torch.testing.assert_close(kinds.sums, before, rtol=0, atol=0)


def test_the_gradient_of_the_displacement_is_that_of_means_over_all_cells_and_spares_a_kind_of_one_condition():
    kinds, of_cells, _ = settled()
    z = SHIFTED.clone().requires_grad_()
    kinds(of_cells, Y, KNOWN)
    kinds.displacement(z, of_cells, Y, KNOWN).backward()
    over_all = SHIFTED.clone().requires_grad_()
    in_common = (3 / 6) * (1 / 6) / (4 / 6)
    (2 * in_common * (over_all[:3].mean(0) - over_all[3]).square().sum()).backward()
    torch.testing.assert_close(z.grad, over_all.grad, atol=1e-3, rtol=0)
    assert (z.grad[4:] == 0).all()


def test_cells_of_unknown_condition_do_not_move_the_means():
    kinds, of_cells, _ = settled()
    before = kinds.sums.clone()
    z = SHIFTED.clone().requires_grad_()
    kinds.displacement(z, of_cells, Y, torch.zeros(6, dtype=torch.bool)).backward()
    assert (z.grad == 0).all()
    torch.testing.assert_close(kinds.sums, (1 - MOMENTUM) * before)
