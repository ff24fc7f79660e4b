"""Real cells: the plain constructor on Kang's PBMCs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from discovr_sc import DISCOVR, data, metrics

KANG = Path(os.environ.get("DISCOVR_SC_DATA", "")) / "kang" / "kang_ifnb_13999.h5ad"


@pytest.mark.slow
@pytest.mark.skipif(not KANG.exists(), reason="needs Kang's cells; name their folder in DISCOVR_SC_DATA")
def test_defaults_separate_types_and_stimulation():
    """z gives the type and hides the stimulation, w gives the stimulation; on cells that the model has not seen."""
    adata = data.kang()
    DISCOVR.setup_anndata(adata, condition_key="stim")
    model = DISCOVR(adata)
    model.train(max_epochs=25, train_size=0.8, validation_size=0.1, enable_progress_bar=False)
    z, w = (model.get_latent_representation(kind=kind) for kind in ("z", "w"))
    stim, cell_type = (adata.obs[key].astype(str).to_numpy() for key in ("stim", "cell_type"))
    train = np.sort(model.train_indices)
    assert metrics.probe(z, cell_type, kind="knn", train=train).accuracy >= 0.75
    assert metrics.probe(w, stim, kind="knn", train=train).accuracy >= 0.95
    # scVI, with the condition as its batch, leaks 0.94 here; chance, given the types, is 0.53.
    assert metrics.probe(z, stim, kind="knn", train=train).accuracy <= 0.7
