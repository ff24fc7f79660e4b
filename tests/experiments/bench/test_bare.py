"""The bare loop learns over the model's networks, counts as well as vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc import DISCOVR
from discovr_sc.data import anndata_to_tensors, noisy_swiss_roll, simulate_counts
from discovr_sc.experiments.bench.bare import BareLoop


def test_all_parameters_of_the_module_are_trained():
    adata = noisy_swiss_roll(100)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    module = DISCOVR.paper(adata, "swiss-roll").module
    bare = BareLoop(module)
    groups = (bare.model_optimizer.param_groups[0]["params"], bare.adversary_optimizer.param_groups[0]["params"])
    assert sum(p.numel() for group in groups for p in group) == sum(p.numel() for p in module.parameters())


def test_a_module_without_adversary_is_refused():
    adata = noisy_swiss_roll(100)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    with pytest.raises(ValueError, match="no adversary"):
        BareLoop(DISCOVR(adata, likelihood="gaussian", weights={"adv": 0.0}).module)


def test_the_bare_loop_learns_counts():
    adata = simulate_counts(n_cells=300, n_genes=30, n_effect_genes=5, seed=0)
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_latent_z=3)
    model.is_trained_ = True
    before = model.get_reconstruction_error()
    bare = BareLoop(model.module)
    y = torch.as_tensor(adata.obs["_scvi_labels"].to_numpy(), dtype=torch.long)
    x = adata.X.tocsr().astype(np.float32)
    for _ in range(30):
        bare.train(x, y, batch_size=64)
    model.module.eval()
    assert model.get_reconstruction_error() < 0.9 * before


def test_the_bare_loop_learns_vectors():
    torch.manual_seed(0)
    adata = noisy_swiss_roll(2000)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    model = DISCOVR.paper(adata, "swiss-roll", noise_scale=0.2)
    model.is_trained_ = True

    def error():
        model.module.eval()
        return np.square(model.get_reconstruction() - adata.obsm["x"]).mean()

    before = error()
    bare = BareLoop(model.module)
    for _ in range(10):
        bare.train(*anndata_to_tensors(adata), batch_size=128)
    assert error() < 0.3 * before
