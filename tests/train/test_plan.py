"""The game: who is updated when, and on what."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from discovr_sc import DISCOVR, Weights
from discovr_sc.module.adversary import adversary_loss
from discovr_sc.train.plan import EpochTotals

#: A learning rate that changes nothing in single precision; the plan refuses 0.
AT_REST = 1e-60


def small_model(counts, **settings):
    DISCOVR.setup_anndata(counts, "condition")
    return DISCOVR(counts, n_hidden=8, **settings)


def snapshot(module):
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def moved(module, before):
    return {name for name, parameter in module.named_parameters() if not torch.equal(parameter, before[name])}


def train(model, **plan):
    model.train(max_epochs=1, enable_progress_bar=False, plan_kwargs={"weight_decay": 0.0} | plan)


@pytest.mark.parametrize("adversary", ["latent", "reconstruction", "both"])
def test_each_optimiser_moves_only_its_own_parameters(counts, adversary):
    model = small_model(counts, adversary=adversary)
    before = snapshot(model.module)
    train(model, lr=AT_REST, prior_lr=0.0, adversary_lr=0.01)
    only_adversary = moved(model.module, before)
    assert only_adversary == {name for name in before if name.startswith("adversary.")}

    before = snapshot(model.module)
    train(model, lr=0.01, adversary_lr=0.0)
    only_model = moved(model.module, before)
    assert only_model == {name for name in before if not name.startswith("adversary.")}


def test_means_of_learned_priors_have_a_learning_rate_of_their_own(counts):
    model = small_model(counts, prior="learned", n_components_z=3)
    before = snapshot(model.module)
    train(model, lr=AT_REST, adversary_lr=0.0, prior_lr=0.01)
    assert moved(model.module, before) == {"prior.loc", "prior_z.loc"}


def test_a_network_that_gives_the_prior_learns_as_the_other_networks_do(counts):
    model = small_model(counts, prior="mapped", n_components_z=1)
    before = snapshot(model.module)
    train(model, lr=AT_REST, adversary_lr=0.0, prior_lr=0.01)
    assert not moved(model.module, before)


def test_one_forward_a_step_and_the_model_meets_the_updated_adversary(counts, monkeypatch):
    model = small_model(counts, prior="learned", adversary="reconstruction")
    adversary = model.module.adversary
    events = []
    forward, loss = model.module.inference, model.module.loss

    def state():
        return torch.cat([p.detach().ravel() for p in adversary.parameters()]).clone()

    def spy(name, function):
        def call(*args, **kwargs):
            if model.module.training:
                events.append((name, state()))
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(model.module, "inference", spy("forward", forward))
    for where in ("train.plan", "module.skeleton"):
        monkeypatch.setattr(f"discovr_sc.{where}.adversary_loss", spy("adversary", adversary_loss))
    monkeypatch.setattr(model.module, "loss", spy("loss", loss))
    model.train(max_epochs=1, batch_size=200, enable_progress_bar=False, plan_kwargs={"n_adversary_steps": 2})
    # The loss itself asks for the adversary's loss once more, to log it.
    assert [name for name, _ in events] == ["forward", "adversary", "adversary", "loss", "adversary"]
    assert not torch.equal(events[1][1], events[2][1])
    assert not torch.equal(events[2][1], events[3][1])
    assert torch.equal(events[3][1], state())


def test_the_encoder_is_pushed_against_the_adversary(counts):
    """The gradient of the adversarial term on z raises the adversary's cross-entropy."""
    model = small_model(counts, adversary="latent", weights=Weights(rec=0, rec_z=0, kl_z=0, kl_w=0, adv=1))
    module = model.module.train()
    batch = next(iter(model._make_data_loader(counts)))
    q, p, losses = module(batch)
    mean = q["qz"].loc
    mean.retain_grad()
    losses = module.loss(batch, q, p)
    losses.loss.backward()
    with torch.no_grad():
        views = ({"latent": mean}, {"latent": mean - 10 * mean.grad})
        before, after = (adversary_loss(module.adversary(view), q["y"], q["known"]) for view in views)
    assert after > before


def test_without_adversary_there_is_none(counts):
    model = small_model(counts, weights=Weights(adv=0))
    assert model.module.adversary is None
    train(model)
    assert "adversary_loss_train" not in model.history_
    assert np.isfinite(model.history_["train_loss"].to_numpy(dtype=float)).all()


def test_history_has_every_term_for_train_and_validation(counts):
    model = small_model(counts)
    model.train(max_epochs=3, enable_progress_bar=False)
    terms = ["rec", "rec_z", "kl_z", "kl_w", "adv", "adversary_loss", "adversary_accuracy", "elbo"]
    for term in terms:
        for mode in ("train", "validation"):
            values = model.history_[f"{term}_{mode}"].to_numpy(dtype=float)
            assert values.shape == (3, 1)
            assert np.isfinite(values).all()
    assert np.isfinite(model.history_["validation_loss"].to_numpy(dtype=float)).all()


def test_epoch_means_weigh_cells_equally():
    class Losses:
        def __init__(self, value, n):
            self.loss = torch.tensor(value)
            self.n_obs_minibatch = n
            self.reconstruction_loss_sum = torch.tensor(value * n)
            self.kl_local_sum = torch.tensor(0.0)
            self.extra_metrics = {"rec": torch.tensor(value)}

    totals = EpochTotals()
    totals.add(Losses(1.0, 3))
    totals.add(Losses(5.0, 1))
    means, n = totals.means(), len(totals)
    assert n == 4
    assert means["loss"].item() == means["rec"].item() == means["elbo"].item() == pytest.approx(2.0)
    totals.reset()
    assert (totals.means(), len(totals)) == ({}, 0)


def test_gradients_are_clipped(counts):
    class Norms(Callback):
        seen = []

        def on_before_optimizer_step(self, trainer, plan, optimizer):
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            self.seen.append(torch.cat([g.ravel() for g in gradients]).norm().item())

    model = small_model(counts)
    model.train(max_epochs=1, enable_progress_bar=False, callbacks=[Norms()], plan_kwargs={"gradient_clip": None})
    assert min(Norms.seen) > 0.01
    Norms.seen.clear()
    clipped = {"gradient_clip": 0.01}
    model.train(max_epochs=1, enable_progress_bar=False, callbacks=[Norms()], plan_kwargs=clipped)
    assert max(Norms.seen) <= 0.01 * 1.001
    with pytest.raises(ValueError, match="gradient_clip is 0"):
        train(model, gradient_clip=0)


def test_training_goes_on_in_training_mode(counts):
    class Mode(Callback):
        seen = []

        def on_train_batch_end(self, trainer, plan, *args):
            self.seen.append(plan.module.training)

    model = small_model(counts)
    for _ in range(2):
        model.train(max_epochs=1, enable_progress_bar=False, callbacks=[Mode()])
        assert not model.module.training
    assert Mode.seen == [True, True]


def test_warm_up_of_the_kl_terms(counts):
    model = small_model(counts)
    seen = []
    loss = model.module.loss

    def spy(*args, kl_weight=1.0, **kwargs):
        seen.append(float(kl_weight))
        return loss(*args, kl_weight=kl_weight, **kwargs)

    decoded = []
    generative = model.module.generative

    def spy_on_decoding(*args, kl_weight=None, **kwargs):
        decoded.append(kl_weight)
        return generative(*args, kl_weight=kl_weight, **kwargs)

    model.module.loss, model.module.generative = spy, spy_on_decoding
    model.train(max_epochs=3, batch_size=200, enable_progress_bar=False, plan_kwargs={"n_epochs_kl_warmup": 2})
    assert seen[::2] == [0.0, 0.5, 1.0]  # every other call is the validation's
    assert [float(weight) for weight in decoded if weight is not None] == [0.0, 0.5, 1.0]
    decoded.clear()
    model.train(max_epochs=1, batch_size=200, enable_progress_bar=False)
    assert set(decoded) == {None}


@pytest.mark.parametrize("kl_weight", [0.0, 0.25, 1.0])
def test_in_a_warm_up_z_learns_as_much_of_its_own_reconstruction_as_of_the_kl_terms(counts, kl_weight):
    model = small_model(counts)
    module, batch = model.module, next(iter(model._make_data_loader(counts, batch_size=60)))
    q = module.inference(**module.inference_input(batch))
    given = module.given(batch)

    def gradients(**kwargs):
        px_z = module.generative(q, given, **kwargs)["px_z"]
        error = -module.likelihood_z.score(px_z, module.likelihood_z.observe(module.data(batch))).mean()
        wrt = (q["z"], next(module.decoder_z.parameters()))
        return error, *torch.autograd.grad(error, wrt, retain_graph=True)

    (error, of_z, of_decoder), (warm_error, warm_of_z, warm_of_decoder) = gradients(), gradients(kl_weight=kl_weight)
    torch.testing.assert_close(warm_error, error, rtol=0, atol=0)
    torch.testing.assert_close(warm_of_decoder, of_decoder, rtol=0, atol=0)
    torch.testing.assert_close(warm_of_z, kl_weight * of_z)


def test_a_last_batch_of_one_cell_does_not_crash(counts):
    model = small_model(counts)
    model.train(max_epochs=1, train_size=81 / 120, batch_size=40, enable_progress_bar=False)
    assert len(model.train_indices) % 40 == 1
    assert np.isfinite(model.get_latent_representation()).all()


def test_too_few_adversary_steps_raise(counts):
    with pytest.raises(ValueError, match=r"n_adversary_steps is 0.*adv=0"):
        train(small_model(counts), n_adversary_steps=0)


@pytest.mark.parametrize("setting", ["reduce_lr_on_plateau", "update_only_decoder", "n_steps_kl_warmup"])
def test_settings_that_two_players_cannot_have_raise(counts, setting):
    with pytest.raises(ValueError, match=f"{setting} does not work with two players"):
        train(small_model(counts), **{setting: 5})


def test_the_models_learning_rate_falls_to_zero_and_the_adversarys_does_not(counts):
    rates = []

    class Watch(Callback):
        def on_train_batch_end(self, trainer, *_):
            rates.append([group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups])

    model = small_model(counts, prior="learned")
    model.train(
        4,
        batch_size=len(counts) // 2,
        train_size=1.0,
        enable_progress_bar=False,
        callbacks=[Watch()],
        plan_kwargs={"lr": 1e-3, "adversary_lr": 2e-3, "prior_lr": 1e-2, "final_decay": 0.5},
    )
    ours, of_priors, adversarys = np.array(rates).T
    decay = np.array([1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    np.testing.assert_allclose(ours, 1e-3 * decay)
    np.testing.assert_allclose(of_priors, 1e-2 * decay)
    np.testing.assert_allclose(adversarys, 2e-3)


def test_a_decay_of_more_than_all_epochs_raises(counts):
    with pytest.raises(ValueError, match="final_decay is 1.5; give a number .*the part of the epochs"):
        train(small_model(counts), final_decay=1.5)
