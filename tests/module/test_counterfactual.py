"""Moving a cell as others are moved, against values by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from discovr_sc.module.counterfactual import ByNeighborShift, Decodable, Pair
from discovr_sc.module.likelihoods import LIKELIHOODS, Likelihood
from discovr_sc.settings import Settings

GIVEN = SimpleNamespace(size_factor=None, cats=(None,))


def module(decode):
    """A module whose likelihood hands on what is decoded from z and w."""
    return SimpleNamespace(
        decoder_outputs=lambda z, w, given: {"loc": decode(torch.cat([z, w], -1))}, likelihood=Decoded((1,), Settings())
    )


class Decoded(Likelihood):
    def forward(self, outputs, size_factor, batch_index):
        return outputs["loc"]


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
    counts = SimpleNamespace(
        decoder_outputs=lambda z, w, given: {"rho_logits": 4 * torch.cat([z, w], -1)},
        likelihood=LIKELIHOODS["nb"]((5,), Settings()),
    )
    given = SimpleNamespace(size_factor=torch.full((20, 1), 1e3), cats=(torch.zeros(20, 1),))
    moved, stayed = (Decodable(own, given, analogies).decode(counts) for analogies in (still, ()))
    torch.testing.assert_close(moved.mu, stayed.mu, rtol=1e-4, atol=1e-5)  # there and back again: to rounding


def test_expression_moves_as_log_counts_per_ten_thousand():
    # Genes: plentiful in the cell and rare in the like ones; switched on; the rest of the counts.
    own, there, here = (
        torch.tensor([[first, second, 1e4 - first - second]], dtype=torch.float64) / 1e4
        for first, second in ((40.0, 0.1), (0.02, 50.0), (0.1, 0.1))
    )
    decoded = {1.0: own, 2.0: there, 3.0: here, 0.0: own}  # by z; moved latents, at 1 + 2 - 3, are decoded as the own
    counts = SimpleNamespace(
        decoder_outputs=lambda z, w, given: {"rho_logits": decoded[z.item()].log()},
        likelihood=LIKELIHOODS["nb"]((3,), Settings()),
    )
    given = SimpleNamespace(size_factor=torch.ones(1, 1), cats=(torch.zeros(1, 1),))
    moved = Decodable(pair(1.0, 0.0), given, [(pair(2.0, 0.0), pair(3.0, 0.0))]).decode(counts).scale
    log_own, log_there, log_here = (torch.log1p(1e4 * rho) for rho in (own, there, here))
    by_hand = torch.expm1(log_own + (log_there - log_here) / 2)  # the half in the latents does not move it
    torch.testing.assert_close(moved, by_hand / by_hand.sum(), rtol=1e-6, atol=0)
    assert moved[0, 0] / own[0, 0] > 0.95  # on the scale of log rho it would be 0.45
    assert moved[0, 1] / own[0, 1] > 50


def test_a_gene_cannot_fall_below_nothing():
    likelihood = LIKELIHOODS["zinb"]((2,), Settings())
    outputs = {"rho_logits": torch.tensor([[-3.0, 5.0]]), "zero_logits": torch.tensor([[0.3, 0.4]])}
    back = likelihood.from_additive({"rho_logits": torch.tensor([[-3.0, 5.0]])})["rho_logits"]
    assert torch.isfinite(back).all() and back[0, 0] < -20
    same = likelihood.from_additive(likelihood.to_additive(outputs))
    torch.testing.assert_close(torch.softmax(same["rho_logits"], -1), torch.softmax(outputs["rho_logits"], -1))
    assert torch.equal(same["zero_logits"], outputs["zero_logits"])


def test_half_of_the_analogies_start_in_the_cells_own_condition():
    """A kind is missing from the target condition, where z has put it beside the wrong one of the others."""
    rng = np.random.default_rng(0)

    def around(z, w, n=200):
        return np.stack([rng.normal(z, 0.1, n), rng.normal(w, 0.1, n)], axis=1).astype(np.float32)

    # In the source the missing kind, "m", is near "a"; "a" moves away from it in z, "b" to its place. w rises by 5, 9.
    own = {"a": around(0.0, 0.0), "b": around(10.0, 0.0), "m": around(1.0, 0.0)}
    there = {"a": around(-9.0, 5.0), "b": around(1.0, 9.0)}
    moments, cell_types = {}, {}
    for code, parts in enumerate((own, there)):
        latents = np.concatenate(list(parts.values()))
        moments[code] = latents[:, :1], latents[:, 1:], np.full((len(latents), 1), 1e-4, dtype=np.float32)
        cell_types[code] = np.repeat(list(parts), 200)
    cell = {"z": torch.full((40, 1), 1.0), "w": torch.zeros(40, 1), "y": torch.zeros(40, dtype=torch.long)}

    def moves(way):
        analogies = way(None, None, GIVEN, cell, torch.ones(40, dtype=torch.long)).analogies
        return [float((target.w - source.w).mean()) for target, source in analogies]

    alike = {"target": 1, "n_neighbors": 20, "names": ["control", "treated"]}
    rises = moves(ByNeighborShift(moments, cell_types=cell_types, **alike))
    np.testing.assert_allclose(rises, [9, 5] * (len(rises) // 2), atol=0.4)  # of "b", and of "a"
    assert len(rises) == 6
    assert len(moves(ByNeighborShift(moments, **alike))) == 5
    # Where no kind is shared, there is one way only.
    foreign = cell_types | {1: np.repeat(["c", "d"], 200)}
    np.testing.assert_allclose(moves(ByNeighborShift(moments, cell_types=foreign, **alike)), [9] * 5, atol=1)
