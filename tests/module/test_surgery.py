"""Grown modules: old categories keep what they had, wherever their rows and columns are; only new entries train."""

from __future__ import annotations

import pytest
import torch

from discovr_sc.module import CCVAEModule, CVAEModule, DISCOVRModule
from discovr_sc.module.evidence import Given
from discovr_sc.module.surgery import grow, set_training_mode, training_only

SETTINGS = {
    "n_latent_z": 3,
    "n_latent_w": 3,
    "n_hidden": 8,
    "n_layers": 2,
    "likelihood": "nb",
    "encode_covariates": True,
    "dropout_rate": 0.1,
    "prior": "mapped",
}

ONE_COMPONENT = {DISCOVRModule: {"n_components_z": 1}}


def build(cls=DISCOVRModule, n_conditions=2, n_batch=2, n_cats_per_cov=(2, 3), seed=0, **settings):
    torch.manual_seed(seed)
    numbers = {"n_batch": n_batch, "n_cats_per_cov": n_cats_per_cov, "n_continuous_cov": 1}
    return cls(
        (6,), n_conditions, cls.settings_cls(**SETTINGS | ONE_COMPONENT.get(cls, {}) | settings), **numbers
    ).eval()


def outputs(module, seed=1):
    """Everything that a module says of cells of the first categories."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 9, (10, 6), generator=generator).float() + 1
    codes = [torch.randint(0, n, (10, 1), generator=generator) for n in (2, 3)]
    batch = torch.randint(0, 2, (10, 1), generator=generator) if module.n_cats[-1] > 1 else torch.zeros(10, 1).long()
    given = Given(x.sum(1, keepdim=True), (*codes, batch), torch.randn(10, 1, generator=generator))
    y = torch.randint(0, 2, (10,), generator=generator)
    q = module.inference(x, y, given, use_mean=True)
    joint = module.joint(q, given)
    parts = [q["z"], q["w"][:, :2], joint["px"].mu, joint["px"].theta.expand(10, 6), joint["pz"].loc]
    return parts + ([joint["pw"].loc, joint["pw"].scale] if "pw" in joint else [])


@pytest.mark.parametrize(
    "grown",
    [{"n_conditions": 3}, {"n_batch": 4}, {"n_cats_per_cov": (3, 4)}, {"n_conditions": 4, "n_batch": 3}],
)
@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (DISCOVRModule, {"prior": "condition-mean"}),
        (DISCOVRModule, {"prior": "mapped"}),
        (DISCOVRModule, {"prior": "learned", "dispersion": "gene-batch"}),
        (DISCOVRModule, {"prior": "standard"}),
        (CCVAEModule, {"prior": "learned"}),
        (CVAEModule, {"prior": "standard"}),
    ],
)
def test_old_categories_keep_their_answers(cls, settings, grown):
    old, new = build(cls, **settings), build(cls, seed=5, **(settings | grown))
    before = [part.clone() for part in outputs(old)]
    is_new = grow(old, new)
    assert is_new
    for part, expected in zip(outputs(new), before, strict=True):
        torch.testing.assert_close(part, expected)
    for part, expected in zip(outputs(old), before, strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=0)


def test_one_batch_that_becomes_two_keeps_its_answers():
    old, new = build(n_batch=1), build(n_batch=2, seed=5)
    grow(old, new)
    x, given = torch.ones(4, 6), Given(torch.full((4, 1), 6.0), (torch.zeros(4, 1).long(),) * 3, torch.zeros(4, 1))
    q_old, q_new = (module.inference(x, torch.zeros(4).long(), given, use_mean=True) for module in (old, new))
    torch.testing.assert_close(q_new["z"], q_old["z"])
    torch.testing.assert_close(
        new.decode(q_new["z"], q_new["w"], given).mu, old.decode(q_old["z"], q_old["w"], given).mu
    )


def test_new_entries_are_counted_and_start_at_the_mean():
    old, new = build(prior="learned"), build(prior="learned", n_conditions=3, seed=5)
    is_new = grow(old, new)
    assert is_new["prior.loc"].tolist() == [[False] * 3, [False] * 3, [True] * 3]
    torch.testing.assert_close(new.prior.loc[2], old.prior.loc.mean(0))
    # genes, one continuous covariate, then the condition: of its three columns the last is new
    first = is_new["w_encoder.features.fc_layers.Layer 0.0.weight"]
    assert first.any(0).nonzero().ravel().tolist() == [6 + 1 + 2]
    assert "z_encoder.features.fc_layers.Layer 0.0.weight" not in is_new


def test_only_some_entries_train():
    old, new = build(prior="learned"), build(prior="learned", n_conditions=3, seed=5)
    is_new = {name: mask for name, mask in grow(old, new).items() if name == "prior.loc"}
    before = {name: value.clone() for name, value in new.state_dict().items()}
    with training_only(new, is_new):
        trained = [parameter for parameter in new.parameters() if parameter.requires_grad]
        assert len(trained) == 1
        (new.prior.loc.square().sum() + new.prior.loc.sum()).backward()
        torch.optim.SGD(trained, lr=0.1).step()
    assert all(parameter.requires_grad for parameter in new.parameters())
    changed = {name for name, value in new.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"prior.loc"}
    assert torch.equal(new.prior.loc[:2], before["prior.loc"][:2])
    new.zero_grad()
    new.prior.loc.sum().backward()
    assert (new.prior.loc.grad == 1).all()  # the mask is gone


def test_what_is_not_trained_keeps_its_statistics():
    module = build()
    set_training_mode(module, {"decoder.body.fc_layers.Layer 0.1.weight": None})
    assert module.training
    assert not module.condition_means.training
    norms = {name: part.training for name, part in module.named_modules() if isinstance(part, torch.nn.BatchNorm1d)}
    assert {name for name, training in norms.items() if training} == {"decoder.body.fc_layers.Layer 0.1"}
    set_training_mode(module, None)
    assert all(part.training for part in module.modules())
