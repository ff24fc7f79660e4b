"""What all tests share: quiet libraries, one seed, small data."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import scvi
import torch

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
if "DISCOVR_SC_DATA" not in os.environ and SHARED_DATA.is_dir():
    os.environ["DISCOVR_SC_DATA"] = str(SHARED_DATA)


@pytest.fixture(autouse=True)
def _quiet_and_seeded():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("scvi").setLevel(logging.ERROR)
    scvi.settings.seed = 0
    torch.set_num_threads(1)  # for every test: numba, once it runs, raises the number


@pytest.fixture
def counts():
    """120 cells of 3 conditions and 2 types, 20 genes, a batch and covariates."""
    from discovr_sc.data import simulate_counts

    adata = simulate_counts(n_cells=120, n_genes=20, n_types=2, n_conditions=3, n_effect_genes=5, seed=1)
    rng = np.random.default_rng(0)
    adata.obs["lane"] = rng.choice(["a", "b"], adata.n_obs)
    adata.obs["sex"] = rng.choice(["f", "m"], adata.n_obs)
    adata.obs["age"] = rng.normal(size=adata.n_obs)
    return adata


@pytest.fixture
def vectors():
    """100 points of the parametric model."""
    from discovr_sc.data import parametric_model

    return parametric_model(100, seed=1)


@pytest.fixture
def images():
    """40 images (2, 9, 8) of two conditions, stored as bytes."""
    from discovr_sc.data import tensors_to_anndata

    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    x = rng.integers(0, 100, (40, 2, 9, 8))
    x[y == 1, 0] += 100
    return tensors_to_anndata(x.astype(np.uint8), y)
