"""Predicted effects beside measured ones, and a warning where nothing changes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scvi
import torch

from discovr_sc import DISCOVR, data


@pytest.fixture(scope="module")
def model():
    adata = data.simulate_counts(n_cells=1000, n_genes=60, n_effect_genes=20, type_specific=0.0, seed=3)
    DISCOVR.setup_anndata(adata, condition_key="condition")
    scvi.settings.seed = 0
    model = DISCOVR(adata, n_hidden=32, likelihood="nb", weights={"adv": 10, "mmd": 0})
    model.train(max_epochs=60, plan_kwargs={"lr": 5e-3}, enable_progress_bar=False)
    return model


def test_predicted_effects_are_as_large_as_measured_ones(model, recwarn):
    table = model.compare_effects()
    assert list(table.index) == list(model.conditions)
    assert table["n_cells"].sum() == len(model.validation_indices)
    assert table["slope"].between(0.5, 1.3).all() and (table["correlation"] > 0.8).all()
    # a slope is the correlation times the ratio of sizes, where changes have no mean; here they nearly have none
    np.testing.assert_allclose(table["predicted"] * table["correlation"] / table["measured"], table["slope"], rtol=0.2)
    assert not [warning for warning in recwarn if "as they were" in str(warning.message)]
    again = model.compare_effects(model.adata[np.sort(model.validation_indices)].copy())
    assert (again["n_cells"] == table["n_cells"]).all()
    np.testing.assert_allclose(again["measured"], table["measured"], rtol=1e-6)


def test_cells_that_do_not_change_are_warned_of(model):
    broken = copy.deepcopy(model)
    first = next(broken.module.decoder.parameters())
    with torch.no_grad():
        first[:, broken.module.n_latent_z : broken.module.n_latent_z + broken.module.n_latent_w] = 0
    with pytest.warns(UserWarning, match="nearly the cells as they were"):
        table = broken.compare_effects()
    assert (table["slope"].abs() < 0.3).all()


def test_data_that_are_no_counts_are_refused(vectors):
    DISCOVR.setup_anndata(vectors, "condition", tensor_key="x")
    model = DISCOVR(vectors, likelihood="gaussian", n_hidden=4)
    model.train(max_epochs=1, enable_progress_bar=False)
    with pytest.raises(ValueError, match="compare_effects is for counts"):
        model.compare_effects()
