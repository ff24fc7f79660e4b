"""Answers about many cells hold little beyond the answer itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from discovr_sc import DISCOVR
from discovr_sc.data import tensors_to_anndata
from discovr_sc.experiments.engine.clock import peak_memory_mb, reset_peak_memory

N_GENES = 2000


def model_of(n_cells: int) -> DISCOVR:
    """A model that has not learned anything, of sparse counts."""
    adata = tensors_to_anndata(np.zeros((n_cells, 1), dtype=np.float32), np.arange(n_cells) % 2)
    rng = np.random.default_rng(0)
    x = sparse.random(n_cells, N_GENES, 0.02, format="csr", dtype=np.float32, rng=rng)
    x.data = np.ceil(3 * x.data)
    from anndata import AnnData

    cells = AnnData(x, obs=adata.obs)
    DISCOVR.setup_anndata(cells, "condition")
    model = DISCOVR(cells, n_hidden=16, n_components_z=2)
    model.is_trained_, model.train_indices = True, np.arange(n_cells)
    model.module.eval()
    return model


def extra_mb(ask) -> float:
    """Peak memory of a call, beyond what was there before."""
    reset_peak_memory()
    before = peak_memory_mb()
    kept = ask()
    extra = peak_memory_mb() - before
    del kept
    return extra


@pytest.mark.long
def test_expression_is_averaged_as_it_comes():
    model = model_of(20_000)
    model.get_normalized_expression(indices=np.arange(500), n_samples=2)  # what stays allocated after a first call
    result = 20_000 * N_GENES * 4 / 2**20
    assert extra_mb(lambda: model.get_normalized_expression(n_samples=5)) < 1.2 * result


@pytest.mark.long
def test_counterfactuals_take_no_more_memory_for_more_cells():
    model = model_of(12_000)
    target = model.conditions[1]
    few = extra_mb(lambda: model.predict_counterfactual(target=target, indices=np.arange(1000), n_samples=5))
    many = extra_mb(lambda: model.predict_counterfactual(target=target, n_samples=5))
    assert many - few < 1.2 * 11_000 * N_GENES * 4 / 2**20
