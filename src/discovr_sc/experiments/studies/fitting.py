"""Trainings that several studies share: the plain models, for as long as a preset says."""

import scvi
from anndata import AnnData

from discovr_sc.experiments.engine.study import Preset
from discovr_sc.model import DISCOVR


def train_discovr(adata: AnnData, preset: Preset, condition_key: str, **settings) -> DISCOVR:
    """The plain constructor; further settings are those of ``train``."""
    DISCOVR.setup_anndata(adata, condition_key=condition_key)
    return trained(DISCOVR(adata), preset, **settings)


def train_scvi(adata: AnnData, preset: Preset, **setup) -> scvi.model.SCVI:
    """ScVI, trained as long as the others; further arguments are those of ``setup_anndata``."""
    scvi.model.SCVI.setup_anndata(adata, **setup)
    return trained(scvi.model.SCVI(adata), preset)


def trained(model, preset: Preset, **settings):
    """A model after its training."""
    model.train(preset.max_epochs, batch_size=preset.batch_size, enable_progress_bar=False, **settings)
    return model
