"""A training that diverges stops, says why, and leaves weights that can be used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc import DISCOVR
from discovr_sc.errors import DivergenceError

QUIET = {"enable_progress_bar": False, "batch_size": 32}


@pytest.fixture
def model(counts):
    DISCOVR.setup_anndata(counts, "condition")
    return DISCOVR(counts, n_hidden=8, n_latent_z=3)


def is_finite(model) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in model.module.state_dict().values())


def test_a_rate_that_is_far_too_high_is_named(model):
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    with pytest.raises(
        DivergenceError, match=r"diverged in epoch \d+: .* is not finite.*learning rate, 1e\+06"
    ) as caught:
        model.train(5, plan_kwargs={"lr": 1e6, "adversary_lr": 1e6, "prior_lr": 1e6}, **QUIET)
    assert is_finite(model)
    if caught.value.n_good_epochs == 0:
        assert not model.is_trained
        assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())


def test_the_last_good_epoch_is_kept(model, monkeypatch):
    """The loss of a term turns NaN in the third epoch, as do running means on the way to it."""
    objective, good = model.module.objective, {}

    def diverging(x, q, p, logits):
        terms = objective(x, q, p, logits)
        if model.module.training and diverging.plan.current_epoch == 2:
            terms["kl_w"] = (terms["kl_w"][0], terms["kl_w"][1] * float("nan"))
        return terms

    class Spy(model._training_plan_cls):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            diverging.plan = self

        def on_train_epoch_end(self):
            super().on_train_epoch_end()
            good[self.current_epoch] = {name: value.clone() for name, value in self.module.state_dict().items()}

    monkeypatch.setattr(model.module, "objective", diverging)
    monkeypatch.setattr(type(model), "_training_plan_cls", Spy)
    with pytest.raises(DivergenceError, match="epoch 3: the term 'kl_w' is not finite.*keeps the weights of epoch 2"):
        model.train(5, **QUIET)
    state = model.module.state_dict()
    for name, value in good[1].items():
        if "condition_means" not in name:  # fitted to these weights
            assert torch.equal(state[name], value), name
    assert model.is_trained
    assert np.isfinite(model.get_latent_representation()).all()
    assert len(model.history_["train_loss"]) == 2


def test_weights_that_are_not_finite_are_not_asked(model, tmp_path):
    model.train(1, **QUIET)
    with torch.no_grad():
        next(model.module.z_encoder.parameters())[0] = float("nan")
    model.save(tmp_path / "model", save_anndata=True)
    loaded = DISCOVR.load(tmp_path / "model")
    for ask in (
        loaded.get_latent_representation,
        loaded.get_normalized_expression,
        loaded.get_elbo,
        loaded.predict_condition,
        lambda: loaded.differential_expression(target="treated_1", reference="control"),
        lambda: loaded.predict_counterfactual(target="control"),
    ):
        with pytest.raises(DivergenceError, match="weights 'z_encoder.* are not finite.*train it anew"):
            ask()
