"""The adversary's health: hand-computed values, and a warning where it is dead."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from discovr_sc import CSVAE, DISCOVR
from discovr_sc.module.adversary import Adversary
from discovr_sc.module.networks import Classifier
from discovr_sc.train.health import AdversaryHealth

KEYS = ("adversary_living_units", "adversary_logit_sd", "adversary_gain")


def classifier(bias: float) -> Classifier:
    """Hidden units relu(x + bias), relu(-x + bias), and the logits +- their difference."""
    features = nn.Sequential(nn.Linear(1, 2), nn.ReLU(inplace=True))
    found = Classifier(features, 2, 2)
    with torch.no_grad():
        features[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        features[0].bias.fill_(bias)
        found.logits.weight.copy_(torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))
        found.logits.bias.zero_()
    return found


def watched(adversary, views, y, known) -> AdversaryHealth:
    health = AdversaryHealth()
    for rows in (slice(0, 2), slice(2, None)):  # two mini-batches
        with health.watching(adversary, y[rows], known[rows]):
            adversary({name: view[rows] for name, view in views.items()})
    adversary(views)  # nobody looks
    return health


def test_values_equal_hand_computation():
    x = torch.tensor([[1.0], [2.0], [3.0], [6.0]])  # the second unit never lives, the logits are (-x, x)
    y, known = torch.tensor([1, 0, 1, 1]), torch.tensor([True, True, True, False])
    health = watched(Adversary({"latent": classifier(0.0)}), {"latent": x}, y, known)
    assert health.complaints() == {}
    found = health.pop_metrics()
    assert found["adversary_living_units"].item() == 0.5
    assert found["adversary_logit_sd"].item() == pytest.approx(np.std([1, 2, 3, 6]))
    assert found["adversary_gain"].item() == 0.0  # it says 1 of all, as a constant guess does
    assert health.pop_metrics() == {} and health.complaints() == {}


def test_of_two_places_the_worse_is_told_and_the_better_guess():
    x, y = torch.tensor([[-1.0], [2.0], [-3.0], [1.0]]), torch.tensor([0, 1, 0, 1])
    adversary = Adversary({"latent": classifier(0.0), "reconstruction": classifier(-5.0)})
    health = watched(adversary, {"latent": x, "reconstruction": x}, y, torch.ones(4, dtype=torch.bool))
    assert health.complaints() == {"reconstruction": "is dead: no hidden unit is active on any cell"}
    found = {name: value.item() for name, value in health.pop_metrics().items()}
    assert found == {"adversary_living_units": 0.0, "adversary_logit_sd": 0.0, "adversary_gain": 0.5}


def test_an_adversary_without_hidden_units_may_be_constant():
    linear = Classifier(nn.Identity(), 1, 2)
    with torch.no_grad():
        linear.logits.weight.fill_(3.0)  # shifts both logits alike: the probabilities are constant
    x, y = torch.randn(4, 1), torch.tensor([0, 1, 0, 1])
    health = watched(Adversary({"latent": linear}), {"latent": x}, y, torch.ones(4, dtype=torch.bool))
    assert health.complaints() == {"latent": "is constant: it says the same of every cell"}
    assert "adversary_living_units" not in health.pop_metrics()


def test_one_bad_epoch_is_not_warned_of():
    x, y, health = torch.tensor([[-1.0], [2.0]]), torch.tensor([0, 1]), AdversaryHealth()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch, place in enumerate((classifier(-5.0), classifier(0.0), classifier(-5.0))):
            adversary = Adversary({"latent": place})
            with health.watching(adversary, y, torch.tensor([True, True])):
                adversary({"latent": x})
            health.warn(epoch)
            health.pop_metrics()


def test_channels_of_images_are_units():
    layer, health = nn.ReLU(), AdversaryHealth()
    found = Classifier(nn.Sequential(layer, nn.Flatten()), 12, 2)
    images = -torch.ones(2, 3, 2, 2)
    images[1, 1, 0, 1] = 1.0
    with health.watching(Adversary({"latent": found}), torch.tensor([0, 1]), torch.tensor([True, True])):
        found(images)
    assert health.pop_metrics()["adversary_living_units"].item() == pytest.approx(1 / 3)


def kill(adversary) -> None:
    """Biases so low that no unit is ever active."""
    for layer in adversary.modules():
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.bias, -1e4)


def heard(model, **settings) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.train(3, batch_size=40, enable_progress_bar=False, **settings)
    return [str(warning.message) for warning in caught if "adversary has not worked" in str(warning.message)]


@pytest.mark.parametrize("place", ["latent", "reconstruction", "both"])
def test_a_dead_adversary_is_warned_of_once_and_a_living_one_is_not(counts, place):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8, adversary=place)
    assert heard(model) == []
    for key in KEYS:
        for mode in ("train", "validation"):
            assert model.history_[f"{key}_{mode}"].shape == (3, 1)
    assert (model.history_["adversary_living_units_train"].to_numpy(dtype=float) > 0.1).all()

    killed = place if place != "both" else "latent"
    kill(model.module.adversary.classifiers[killed])
    (message,) = heard(model, plan_kwargs={"adversary_lr": 1e-9, "weight_decay": 0.0})
    assert message.startswith(f"The adversary has not worked since epoch 1: that on the {killed} is dead")
    assert "classifier_batch_norm=True" in message and "adversary_trains='encoder'" in message
    assert (model.history_["adversary_living_units_train"].to_numpy(dtype=float)[-3:] == 0).all()


def test_images_and_baselines_have_their_health_told(images, counts):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    networks = {"likelihood": "bernoulli", "network": "cnn", "n_hidden": 8, "channels": (2, 2, 2, 2)}
    CSVAE.setup_anndata(counts, "condition")
    for model in (DISCOVR(images, **networks), CSVAE(counts, n_hidden=8, n_latent_w=3)):
        model.train(1, enable_progress_bar=False)
        assert 0 < model.history_["adversary_living_units_train"].to_numpy(dtype=float).item() <= 1


def test_the_accuracy_stands_in_the_progress_bar(counts, capsys):
    DISCOVR.setup_anndata(counts, "condition")
    DISCOVR(counts, n_hidden=8).train(2, enable_progress_bar=True)  # an epoch is shown in the next
    assert "adversary_accuracy_train=" in capsys.readouterr().out
