"""The same cell gets the same answer, whichever cells are asked about with it and however they are split."""

from __future__ import annotations

import numpy as np
import pytest
import scvi

from discovr_sc import CVAE, DISCOVR, HCSVAE, data

ROWS = [77, 3, 40]


def train(cls, seed=0):
    scvi.settings.seed = seed
    adata = data.simulate_counts(n_cells=100, n_genes=10, n_types=2, n_conditions=3, n_effect_genes=5, seed=1)
    cls.setup_anndata(adata, "condition")
    model = cls(adata, n_hidden=8, n_latent_z=3, n_latent_w=3)
    model.train(2, enable_progress_bar=False)
    return model


@pytest.fixture(scope="module", params=[DISCOVR, HCSVAE, CVAE])
def model(request):
    return train(request.param)


def check(model, ask, **tolerance):
    """The answer of all cells against that of some, of some in a mini-batch each, and of copies of them."""
    whole = ask(model, None)
    some = model.adata[ROWS].copy()
    for answer in (ask(model, None, indices=ROWS), ask(model, None, indices=ROWS, batch_size=1), ask(model, some)):
        np.testing.assert_allclose(answer, whole[ROWS], **({"rtol": 1e-4, "atol": 1e-6} | tolerance))
    assert not np.allclose(ask(model, None, seed=1), whole)


@pytest.mark.parametrize("kind", ["scale", "counts", "drawn"])
def test_counterfactuals(model, kind):
    how = {"kind": "scale", "n_samples": 3} if kind == "scale" else {"kind": "counts", "keep_noise": kind == "counts"}
    for by in model.counterfactual_ways:
        check(
            model, lambda m, adata, by=by, **kw: m.predict_counterfactual(adata, target="control", by=by, **how, **kw).X
        )


def test_counterfactuals_by_cell_type(model):
    if "neighbor-shift" in model.counterfactual_ways:
        ask = {"target": "treated_1", "by": "neighbor-shift", "cell_type_key": "cell_type", "n_samples": 3}
        check(model, lambda m, adata, **kw: m.predict_counterfactual(adata, **ask, **kw).X)


def test_conditions(model, monkeypatch):
    monkeypatch.setattr("discovr_sc.module.evidence._MAX_FLOATS_PER_PASS", 2_000)  # samples in several passes
    check(model, lambda m, adata, **kw: m.predict_condition(adata, n_samples=5, **kw).to_numpy(), rtol=1e-3)


def test_cells_of_unknown_condition(model):
    def ask(m, adata, **kw):
        cells = (m.adata if adata is None else adata).copy()
        cells.obs["condition"] = np.nan
        return m.predict_counterfactual(cells, target="control", by=m.counterfactual_ways[-1], n_samples=3, **kw).X

    check(model, ask)


def test_effects():
    check(
        train(DISCOVR), lambda m, adata, **kw: m.get_condition_effect(adata, n_samples=4, **kw).X, rtol=1e-3, atol=1e-4
    )
