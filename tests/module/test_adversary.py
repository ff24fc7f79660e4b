"""Whom the adversary trains."""

from __future__ import annotations

import pytest
import torch

from discovr_sc import DISCOVR
from discovr_sc.module import DISCOVRModule
from discovr_sc.module.adversary import OnlyTo
from discovr_sc.settings import DISCOVRSettings

MODES = ("encoder", "encoder and decoder")


def test_a_gradient_reaches_its_source_and_no_parameter_on_the_way():
    torch.manual_seed(0)
    z, layer = torch.randn(5, 2, requires_grad=True), torch.nn.Linear(2, 3)
    view = layer(z).exp()
    through = OnlyTo.apply(z, view)
    assert torch.equal(through, view)
    loss, other = through.pow(2).sum(), view.sum()
    (expected,) = torch.autograd.grad(view.pow(2).sum() + other, z, retain_graph=True)
    (of_other,) = torch.autograd.grad(other, layer.weight, retain_graph=True)
    (loss + other).backward()
    torch.testing.assert_close(z.grad, expected)
    torch.testing.assert_close(layer.weight.grad, of_other)


def test_a_source_without_gradient_is_left_alone():
    z, layer = torch.randn(5, 2), torch.nn.Linear(2, 3)
    OnlyTo.apply(z, layer(z)).sum().backward()
    assert z.grad is None and layer.weight.grad is None


def gradients(counts, trains: str, weights: dict) -> tuple[float, dict[str, torch.Tensor | None], dict]:
    """The loss of one mini-batch, its gradient by parameter, and the state after the pass."""
    torch.manual_seed(0)
    DISCOVR.setup_anndata(counts, "condition")
    settings = {"n_hidden": 8, "adversary": "reconstruction", "classifier_batch_norm": True}
    model = DISCOVR(counts, adversary_trains=trains, weights=weights, **settings)
    module, batch = model.module.train(), next(iter(model.batches(counts, batch_size=60)))
    q, p = module(batch, compute_loss=False)
    loss = module.loss(batch, q, p).loss
    loss.backward()
    return loss.item(), {name: p.grad for name, p in module.named_parameters()}, module.state_dict()


def test_in_encoder_mode_the_adversary_moves_the_encoder_and_not_the_decoder_of_z(counts):
    alone = dict.fromkeys(("rec", "rec_z", "kl_z", "kl_w", "mmd"), 0.0) | {"adv": 1.0}
    (loss, spared, _), (same, unspared, _) = (gradients(counts, mode, alone) for mode in MODES)
    assert loss == same
    of_decoder = [name for name in spared if name.startswith(("decoder_z.", "likelihood_z."))]
    assert of_decoder
    assert not any(spared[name] is not None and spared[name].any() for name in of_decoder)
    assert any(unspared[name] is not None and unspared[name].any() for name in of_decoder)
    for name in spared:
        if name.startswith("z_encoder."):
            assert torch.equal(spared[name], unspared[name]), name
    assert any(spared[name].any() for name in spared if name.startswith("z_encoder."))


def test_with_all_terms_only_the_decoder_of_z_learns_otherwise_and_statistics_are_counted_once(counts):
    (loss, spared, state), (same, unspared, other) = (gradients(counts, mode, {"adv": 50.0}) for mode in MODES)
    _, without, _ = gradients(counts, "encoder", {"adv": 1e-12})  # at 0 there would be no adversary, and other noise
    assert loss == same
    assert all(torch.equal(state[name], other[name]) for name in state if "running" in name or "tracked" in name)
    for name, gradient in spared.items():
        if name.startswith("decoder_z."):
            torch.testing.assert_close(gradient, without[name])
            assert not torch.equal(gradient, unspared[name])
        elif gradient is not None:
            torch.testing.assert_close(gradient, unspared[name], rtol=1e-3, atol=1e-4)


def test_an_unknown_mode_raises():
    with pytest.raises(ValueError, match=r"adversary_trains='decoder' is not known; choose from \['encoder'"):
        DISCOVRModule((3,), 2, DISCOVRSettings(adversary_trains="decoder"))
