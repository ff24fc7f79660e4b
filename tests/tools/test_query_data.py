"""New data: what can be asked of new cells, new batches (scArches), new conditions."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import torch

from discovr_sc import CSVAE, DISCOVR, DIVA, data

QUIET = {"enable_progress_bar": False}


@pytest.fixture
def adata():
    """180 cells, 3 conditions, 3 batches with an effect."""
    return data.simulate_counts(
        180, 20, n_types=2, n_conditions=3, n_effect_genes=5, n_batches=3, batch_effect=0.5, seed=1
    )


def split(adata, key, value):
    chosen = (adata.obs[key] == value).to_numpy()
    return adata[~chosen].copy(), adata[chosen].copy()


def train(adata, epochs=2, cls=DISCOVR, batch_key="batch", **settings):
    cls.setup_anndata(adata, "condition", batch_key=batch_key)
    model = cls(adata, **({"n_latent_z": 3, "n_latent_w": 3, "n_hidden": 8} | settings))
    model.train(epochs, **QUIET)
    return model


def assert_same(got, expected):
    """Up to the rounding of sums over one more column of zeros."""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def state(model):
    return {name: value.clone() for name, value in model.module.state_dict().items()}


def unchanged(model, before):
    return all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())


# Cells that are asked about -------------------------------------------------------------------------------------


def test_cells_read_anew_get_the_same_latents(adata, tmp_path):
    model = train(adata)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(
        model.get_latent_representation(again, kind="zw"), model.get_latent_representation(kind="zw")
    )
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")[::2].copy()
    again.obs["condition"] = again.obs["condition"].where(np.arange(again.n_obs) % 2 == 0)
    w = model.get_latent_representation(again, kind="w")
    np.testing.assert_allclose(w[::2], model.get_latent_representation(kind="w")[::4], rtol=1e-4, atol=1e-5)
    assert np.isfinite(w).all()


def test_other_genes_raise_and_can_be_prepared(adata, tmp_path):
    model = train(adata)
    model.save(tmp_path / "model")
    shuffled = adata[:, np.random.default_rng(0).permutation(20)].copy()
    with pytest.raises(ValueError, match="another order"):
        model.get_latent_representation(shuffled)
    z = model.get_latent_representation(DISCOVR.prepare_query_anndata(shuffled, model, inplace=False))
    np.testing.assert_array_equal(z, model.get_latent_representation())
    fewer = adata[:, 2:].copy()
    with pytest.raises(ValueError, match="lacks 2 of the 20 genes .* prepare_query_anndata"):
        model.get_latent_representation(fewer)
    DISCOVR.prepare_query_anndata(fewer, tmp_path / "model")
    assert list(fewer.var_names) == list(adata.var_names)
    zeroed = adata.copy()
    zeroed.X[:, :2] = 0
    np.testing.assert_array_equal(model.get_latent_representation(fewer), model.get_latent_representation(zeroed))


# New batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"encode_covariates": True, "dispersion": "gene-batch", "prior": "condition-mean"},
        {"n_layers": 2, "prior": "mapped"},
        {"weights": {"adv": 0.0}},
    ],
)
def test_a_new_batch_leaves_old_cells_alone(adata, tmp_path, settings):
    old, new = split(adata, "batch", "batch_2")
    reference = train(old, **settings)
    before = state(reference)
    model = DISCOVR.load_query_data(new.copy(), reference)
    start = state(model)
    model.train(3, **QUIET)
    assert unchanged(reference, before)
    for name, value in model.module.state_dict().items():
        if not name.startswith("adversary."):
            new_entries = model.trainable_.get(name, torch.zeros_like(value, dtype=torch.bool))
            assert torch.equal(value[~new_entries], start[name][~new_entries]), name
    body = "decoder.body.fc_layers.Layer 0.0.weight"
    changed = (model.module.state_dict()[body] != start[body]).any(0)
    assert changed.nonzero().ravel().tolist() == [6 + 2]  # the column of the third batch
    copy = old.copy()
    for kind in ("z", "w"):
        assert_same(model.get_latent_representation(copy, kind=kind), reference.get_latent_representation(kind=kind))
    batch = next(iter(reference.batches(None, np.arange(50), 50)))
    q = reference.module.inference(**reference.module.inference_input(batch), use_mean=True)
    with torch.no_grad():
        for decode in ("decode", "decode_marginal"):
            latents = (q["z"], q["w"]) if decode == "decode" else (q["z"],)
            mu_old, mu_new = (getattr(m.module, decode)(*latents, m.module.given(batch)).mu for m in (reference, model))
            torch.testing.assert_close(mu_new, mu_old)
    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", new.copy())
    np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())
    weights = state(loaded)
    loaded.train(1, **QUIET)  # still frozen
    frozen = "z_encoder.loc.weight"
    assert torch.equal(loaded.module.state_dict()[frozen], weights[frozen])


def test_a_new_batch_is_learned():
    """The decoders' columns of the new batch alone bring most of what a model of all batches gains."""
    adata = data.simulate_counts(900, 40, n_types=2, n_effect_genes=8, n_batches=3, batch_effect=0.7, seed=2)
    old, new = split(adata, "batch", "batch_2")
    fit, test = new[::2].copy(), new[1::2].copy()
    reference = train(old, 60, n_hidden=32)
    model = DISCOVR.load_query_data(fit, reference)
    model.is_trained_ = True
    at_the_mean = model.get_reconstruction_error(test.copy())
    model.train(300, plan_kwargs={"lr": 1e-2}, **QUIET)  # of one mini-batch each
    learned = model.get_reconstruction_error(test.copy())
    whole = train(adata[~adata.obs_names.isin(test.obs_names)].copy(), 60, n_hidden=32)
    known = whole.get_reconstruction_error(test.copy())
    assert known < at_the_mean
    assert learned < at_the_mean - 0.5 * (at_the_mean - known)


def test_a_reference_from_disk_and_without_batches(adata, tmp_path):
    old, new = split(adata, "batch", "batch_2")
    old.obs["batch"] = "one"
    reference = train(old)
    reference.save(tmp_path / "reference")
    model = DISCOVR.load_query_data(new.copy(), tmp_path / "reference")
    model.train(2, **QUIET)
    assert_same(model.get_latent_representation(old.copy()), reference.get_latent_representation())
    free = DISCOVR.load_query_data(new.copy(), str(tmp_path / "reference"), unfrozen=True)
    free.train(2, **QUIET)
    assert np.abs(free.get_latent_representation(old.copy()) - reference.get_latent_representation()).max() > 1e-4


def test_queries_without_conditions_and_with_other_genes(adata):
    old, new = split(adata, "batch", "batch_2")
    reference = train(old)
    new.obs["condition"] = np.nan
    shuffled = new[:, ::-1].copy()
    model = DISCOVR.load_query_data(shuffled, reference, inplace_subset_query_vars=True)
    model.train(1, **QUIET)
    assert np.isfinite(model.get_latent_representation(kind="zw")).all()


def test_queries_that_cannot_be_loaded(adata):
    old, new = split(adata, "batch", "batch_2")
    reference, untrained = train(old), DISCOVR(old, n_hidden=4)
    with pytest.raises(ValueError, match="nothing to learn; pass adata to the reference's methods"):
        DISCOVR.load_query_data(old.copy(), reference)
    with pytest.raises(TypeError, match="reference_model is a int; give a trained DISCOVR"):
        DISCOVR.load_query_data(new.copy(), 3)
    with pytest.raises(ValueError, match="lacks 20 of the 20 genes|lacks 10 of the 20 genes"):
        DISCOVR.load_query_data(new[:, :10].copy(), reference)
    frozen = new.copy()
    frozen.obs["condition"] = "frozen"
    with pytest.raises(ValueError, match="category 'frozen'.*add_condition"):
        DISCOVR.load_query_data(frozen, reference)
    with pytest.raises(RuntimeError, match="train the model"):
        DISCOVR.load_query_data(new.copy(), untrained)


@pytest.mark.parametrize("cls", [CSVAE, DIVA])
def test_baselines_take_new_batches(adata, cls):
    old, new = split(adata, "batch", "batch_2")
    reference = train(old, cls=cls)
    model = cls.load_query_data(new, reference)
    model.train(1, **QUIET)
    assert_same(model.get_latent_representation(old.copy()), reference.get_latent_representation())


# New conditions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "settings"),
    [(DISCOVR, {"prior": prior}) for prior in ("condition-mean", "mapped", "learned", "standard")] + [(DIVA, {})],
)
def test_a_new_condition(adata, tmp_path, cls, settings):
    old, new = split(adata, "condition", "treated_2")
    reference = train(old, cls=cls, **settings)
    before = state(reference)
    model = reference.add_condition(new, max_epochs=2, **QUIET)
    assert unchanged(reference, before)
    assert not any(column.startswith("_scvi") for column in new.obs)
    assert list(reference.conditions) == ["control", "treated_1"]
    assert list(model.conditions) == ["control", "treated_1", "treated_2"]
    assert model.adata.n_obs == len(reference.train_indices) + new.n_obs
    n_old = len(reference.train_indices)
    expected = np.append(n_old * before["condition_probs"].numpy(), new.n_obs) / (n_old + new.n_obs)
    np.testing.assert_allclose(model.module.condition_probs, expected, rtol=1e-5)
    probs = model.predict_condition(new.copy(), n_samples=2)
    assert list(probs.columns) == list(model.conditions)
    model.save(tmp_path / "model", save_anndata=True)
    loaded = cls.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.get_latent_representation(kind="zw"), model.get_latent_representation(kind="zw")
    )
    assert list(loaded.conditions) == list(model.conditions)
    assert loaded.disentanglement_report(probes=["linear"], estimators=()).shape[0] > 0


@pytest.mark.parametrize("prior", ["condition-mean", "learned"])
def test_without_old_cells_these_keep_their_answers(adata, prior):
    old, new = split(adata, "condition", "treated_2")
    reference = train(old, prior=prior)
    model = reference.add_condition(new, old_cells=False, max_epochs=2, **QUIET)
    for kind in ("z", "w"):
        got = model.get_latent_representation(old.copy(), kind=kind)
        assert_same(got, reference.get_latent_representation(kind=kind))
    start = reference.module.w_encoder.features.fc_layers[0][0].weight
    after = model.module.w_encoder.features.fc_layers[0][0].weight
    assert torch.equal(after[:, :-1], start)
    assert not torch.equal(after[:, -1], start[:, -2:].mean(1))
    if prior == "condition-mean":
        means = model.module.condition_means.means
        assert torch.equal(means[:2], reference.module.condition_means.means)
        z = model.get_latent_representation(new.copy())
        np.testing.assert_allclose(means[2], z.mean(0), rtol=1e-4, atol=1e-5)


def test_a_model_without_data_takes_old_cells(adata, tmp_path):
    old, new = split(adata, "condition", "treated_2")
    train(old).save(tmp_path / "model")
    model = DISCOVR.load(tmp_path / "model", adata=False)
    with pytest.raises(ValueError, match="no counts of the cells that it was trained on; give them as old_cells"):
        model.add_condition(new, max_epochs=1)
    extended = model.add_condition(new, old_cells=old[:60], max_epochs=1, **QUIET)
    assert extended.adata.n_obs == 60 + new.n_obs


def test_two_conditions_at_once_and_names_that_overlap(adata):
    old = adata[adata.obs["condition"] != "treated_2"].copy()
    new = adata[adata.obs["condition"] != "control"].copy()
    new.obs["condition"] = new.obs["condition"].cat.rename_categories({"treated_1": "a", "treated_2": "b"})
    model = train(old).add_condition(new, max_epochs=1, **QUIET)
    assert list(model.conditions) == ["control", "treated_1", "a", "b"]
    assert model.adata.obs_names.is_unique


@pytest.mark.parametrize("old_cells", [True, False])
def test_a_new_condition_may_come_in_a_new_batch(adata, old_cells):
    old, new = split(adata, "condition", "treated_2")
    new.obs["batch"] = "batch_9"
    reference = train(old)
    model = reference.add_condition(new, old_cells=old_cells, max_epochs=2, **QUIET)
    assert list(model.conditions) == ["control", "treated_1", "treated_2"]
    assert model.summary_stats.n_batch == 4
    predicted = model.predict_counterfactual(old.copy(), target="treated_2", by="prior")
    assert np.isfinite(predicted.X).all()
    if not old_cells:
        assert_same(model.get_latent_representation(old.copy()), reference.get_latent_representation())


def test_conditions_that_cannot_be_added(adata):
    old, new = split(adata, "condition", "treated_2")
    model = train(old)
    before = state(model)
    with pytest.raises(ValueError, match="cells of 'control', which the model knows"):
        model.add_condition(adata.copy())
    with pytest.raises(ValueError, match="19 cells of 'treated_2'; a new condition needs at least 20"):
        model.add_condition(new[:19].copy())
    with pytest.raises(ValueError, match="lacks 5 of the 20 genes"):
        model.add_condition(new[:, 5:].copy())
    unknown = new.copy()
    unknown.obs["condition"] = unknown.obs["condition"].where(np.arange(new.n_obs) > 2)
    with pytest.raises(ValueError, match="no label for 3 of 60 cells"):
        model.add_condition(unknown)
    unlabelled = new.copy()
    del unlabelled.obs["condition"]
    with pytest.raises(KeyError, match="condition_key 'condition' is not a column"):
        model.add_condition(unlabelled)
    negative = new.copy()
    negative.X = -negative.X
    with pytest.raises(ValueError, match="negative values"):
        model.add_condition(negative)
    with pytest.raises(ValueError, match="prior='separable' gives each condition a block of w"):
        train(old, prior="separable").add_condition(new)
    with pytest.raises(RuntimeError, match="train the model"):
        DISCOVR(old, n_hidden=4).add_condition(new)
    assert unchanged(model, before)
