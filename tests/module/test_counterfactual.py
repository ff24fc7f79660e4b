"""Moving a cell as others are moved, against values by hand."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from discovr_sc.module.counterfactual import Decodable, Pair

GIVEN = SimpleNamespace(size_factor=None, cats=(None,))


def module(decode):
    """A module whose likelihood hands on what is decoded from z and w."""
    return SimpleNamespace(
        decoder_outputs=lambda z, w, given: {"loc": decode(torch.cat([z, w], -1))},
        likelihood=lambda outputs, size_factor, batch: outputs["loc"],
    )


def pair(z, w):
    return Pair(torch.tensor([[z]]), torch.tensor([[w]]))


OWN = pair(1.0, 2.0)
ANALOGIES = [(pair(0.0, 5.0), pair(0.5, 1.0)), (pair(2.0, 4.0), pair(1.5, 2.0))]


def test_a_cell_without_analogies_is_decoded_as_it_is():
    assert Decodable(OWN, GIVEN).decode(module(lambda latents: latents.sum(-1))) == 3.0


def test_under_a_linear_decoder_a_cell_moves_by_the_mean_difference():
    # differences (-0.5, 4) and (0.5, 2): on average (0, 3)
    moved = Decodable(OWN, GIVEN, ANALOGIES).decode(module(lambda latents: latents @ torch.tensor([10.0, 1.0])))
    assert moved.item() == 10 * 1 + (2 + 3)


def test_half_of_the_move_is_in_the_latents_half_in_what_is_decoded():
    moved = Decodable(OWN, GIVEN, ANALOGIES).decode(module(lambda latents: latents[..., 1] ** 2))
    in_latents = (2 + 3) ** 2
    in_outputs = 2**2 + ((5**2 - 1**2) + (4**2 - 2**2)) / 2
    assert moved.item() == (in_latents + in_outputs) / 2


def test_a_cell_that_is_in_the_target_condition_stays_as_it_is():
    generator = torch.Generator().manual_seed(0)
    z, w = (torch.randn(20, size, generator=generator) for size in (3, 2))
    own, still = Pair(z, w), [(Pair(z, w), Pair(z, w))] * 5
    decoder = module(lambda latents: torch.tanh(latents).sum(-1))
    assert torch.equal(Decodable(own, GIVEN, still).decode(decoder), Decodable(own, GIVEN).decode(decoder))
