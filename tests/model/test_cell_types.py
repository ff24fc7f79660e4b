"""Cell types that a user gives: some cells' may be missing, and a query needs none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import discovr_sc
from discovr_sc import DISCOVR
from discovr_sc.data import simulate_counts
from discovr_sc.module.evidence import CELL_TYPE_SLOT

QUIET = {"enable_progress_bar": False}


def cells(n_cells=240, seed=0):
    adata = simulate_counts(n_cells, 20, n_types=3, n_conditions=2, n_effect_genes=5, seed=seed)
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(object)
    adata.obs["lane"] = "a"
    return adata


@pytest.fixture(scope="module")
def model():
    """Every fifth cell is of unknown type."""
    adata = cells()
    adata.obs.iloc[::5, adata.obs.columns.get_loc("cell_type")] = np.nan
    DISCOVR.setup_anndata(adata, "condition", cell_type_key="cell_type", batch_key="lane")
    model = DISCOVR(adata, n_hidden=8, n_hidden_adversary=8, n_components_z=4)
    model.train(4, train_size=0.6, **QUIET)
    return model


def test_a_missing_type_is_unknown_and_every_type_has_components(model):
    stored = model.adata_manager.get_from_registry(CELL_TYPE_SLOT).ravel()
    expected = pd.Categorical(model.adata.obs["cell_type"], ["type_0", "type_1", "type_2"]).codes
    np.testing.assert_array_equal(stored, expected)
    assert (stored[::5] == -1).all()
    assert model.module.prior_z.type_of.tolist() == [0, 1, 2]  # one each, whatever n_components_z is
    assert model.module.kinds.mass.shape == (2, 3)
    assert model.module.kinds.mass.sum().item() > 0.05  # training has counted cells


def test_a_query_needs_no_types_and_z_does_not_depend_on_them(model):
    query = cells(30, seed=1)
    z = model.get_latent_representation(query.copy())
    without, strange, missing = query.copy(), query.copy(), query.copy()
    del without.obs["cell_type"]
    strange.obs["cell_type"] = "type_of_another_tissue"
    missing.obs["cell_type"] = np.nan
    for other in (without, strange, missing):
        np.testing.assert_array_equal(model.get_latent_representation(other), z)
        assert np.isfinite(model.get_elbo(other))
        assert (other.obs[f"_scvi_{CELL_TYPE_SLOT}"] == -1).all()


def test_a_saved_model_knows_its_types(model, tmp_path):
    model.save(tmp_path / "model", overwrite=True)
    loaded = DISCOVR.load(tmp_path / "model", model.adata)
    assert loaded.module.n_cell_types == 3
    for name, value in model.module.state_dict().items():
        torch.testing.assert_close(loaded.module.state_dict()[name], value, rtol=0, atol=0)
    np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())
    assert DISCOVR.load(tmp_path / "model", False).module.n_cell_types == 3


def test_minified_data_answer_as_the_counts_did(model, tmp_path):
    model.save(tmp_path / "model", overwrite=True, save_anndata=True)
    small = DISCOVR.load(tmp_path / "model")
    z = small.get_latent_representation()
    small.minify_adata()
    np.testing.assert_allclose(small.get_latent_representation(), z, rtol=1e-5, atol=1e-5)
    assert small.get_normalized_expression(n_samples=1).shape == (240, 20)


@pytest.mark.parametrize("old_cells", [True, False])
def test_a_condition_is_added(model, old_cells):
    new = cells(40, seed=2)
    new.obs["condition"] = "treated_2"
    extended = model.add_condition(new, old_cells=old_cells, max_epochs=4, **QUIET)
    module = extended.module
    assert module.kinds.mass.shape == (3, 3)
    assert module.prior_z.logits.shape == (3, 3)
    assert np.isfinite(extended.get_latent_representation(new)).all()
    if not old_cells:  # what the old conditions have stays
        before = model.module
        torch.testing.assert_close(module.prior_z.loc, before.prior_z.loc, rtol=0, atol=0)
        torch.testing.assert_close(module.prior_z.logits[:2], before.prior_z.logits, rtol=0, atol=0)
        torch.testing.assert_close(module.kinds.mass[:2], before.kinds.mass, rtol=0, atol=0)
        torch.testing.assert_close(module.kinds.mass[2], before.kinds.mass.mean(0))


def test_a_new_batch_is_learned_from_cells_without_types(model):
    query = cells(40, seed=3)
    query.obs["lane"] = "b"
    del query.obs["cell_type"]
    adapted = DISCOVR.load_query_data(query, model)
    adapted.train(4, **QUIET)
    torch.testing.assert_close(adapted.module.prior_z.loc, model.module.prior_z.loc, rtol=0, atol=0)
    torch.testing.assert_close(adapted.module.kinds.mass, model.module.kinds.mass, rtol=0, atol=0)


def test_a_model_without_types_has_components_as_kinds_and_grows_too():
    adata = cells()
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_hidden=8, n_hidden_adversary=8, n_components_z=4)
    model.train(2, **QUIET)
    assert model.module.kinds.mass.shape == (2, 4)
    new = cells(40, seed=2)
    new.obs["condition"] = "treated_2"
    extended = model.add_condition(new, old_cells=False, max_epochs=2, **QUIET)
    assert extended.module.kinds.mass.shape == extended.module.prior_z.logits.shape == (3, 4)


def test_the_report_takes_the_types_of_the_setup(model):
    report = model.disentanglement_report(probes=["linear"])
    found = report[report["metric"].isin(["composition_floor", "leak_within_types", "type_transfer"])]
    assert len(found) == 3
    assert found["value"].between(0, 1).all()
    assert (found["latent"] == "z").all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.nan, "cell_type_key 'bad' has no value for any cell"),
        ([f"cell_{i}" for i in range(240)], "cell_type_key 'bad' has 240 different values for 240 cells"),
        ([("T", 1)] * 240, "cell_type_key 'bad' has the label .* a tuple; use adata.obs"),
    ],
)
def test_a_column_that_is_no_type_is_refused(values, message):
    adata = cells()
    adata.obs["bad"] = pd.Series(values, index=adata.obs_names, dtype=object)
    with pytest.raises((ValueError, TypeError), match=message):
        DISCOVR.setup_anndata(adata, "condition", cell_type_key="bad")
    assert not any(column.startswith("_scvi") for column in adata.obs)


def test_a_key_that_is_no_column_or_is_the_condition_is_refused():
    adata = cells()
    with pytest.raises(KeyError, match="cell_type_key 'nope' is not a column of adata.obs; it has .*'cell_type'"):
        DISCOVR.setup_anndata(adata, "condition", cell_type_key="nope")
    with pytest.raises(TypeError, match=r"cell_type_key=\['cell_type'\]; give the name of a column"):
        DISCOVR.setup_anndata(adata, "condition", cell_type_key=["cell_type"])
    with pytest.raises(ValueError, match="cell_type_key and condition_key both name 'condition'"):
        DISCOVR.setup_anndata(adata, "condition", cell_type_key="condition")


def test_types_that_no_two_conditions_share_are_said():
    adata = cells()
    adata.obs["other"] = "of " + adata.obs["condition"].astype(str)
    with pytest.warns(UserWarning, match="cell_type_key 'other' has no type that two conditions have"):
        DISCOVR.setup_anndata(adata, "condition", cell_type_key="other")


@pytest.mark.parametrize("name", ["CSVAE", "HCSVAE", "DIVA", "CCVAE", "CVAE"])
def test_baselines_refuse_types(name):
    adata = cells()
    with pytest.raises(ValueError, match=f"cell_type_key='cell_type': {name} uses no cell types. Leave it out"):
        getattr(discovr_sc, name).setup_anndata(adata, "condition", cell_type_key="cell_type")
