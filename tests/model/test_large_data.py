"""Data that stay on disk: a backed AnnData, and mini-batches from anywhere."""

from __future__ import annotations

import anndata
import lightning.pytorch as lightning
import numpy as np
import pytest
from scvi import REGISTRY_KEYS

from discovr_sc import DISCOVR

QUIET = {"max_epochs": 2, "enable_progress_bar": False}


@pytest.fixture
def backed(counts, tmp_path):
    counts.write_h5ad(tmp_path / "counts.h5ad")
    adata = anndata.read_h5ad(tmp_path / "counts.h5ad", backed="r")
    yield adata
    adata.file.close()


def test_a_backed_anndata_trains_and_answers_as_one_in_memory(counts, backed):
    models = []
    for adata in (counts, backed):
        DISCOVR.setup_anndata(adata, "condition", batch_key="lane")
        models.append(DISCOVR(adata, n_latent_z=3))
    in_memory, model = models
    in_memory.train(**QUIET)
    model.module.load_state_dict(in_memory.module.state_dict())
    model.module.eval()
    model.is_trained_ = True
    latents = [m.get_latent_representation(kind="zw") for m in models]
    np.testing.assert_allclose(*latents, rtol=1e-4, atol=1e-5)

    before = in_memory.get_reconstruction_error()
    model.train(max_epochs=20, enable_progress_bar=False)
    assert model.get_reconstruction_error() < before
    assert backed.isbacked


class Batches(lightning.LightningDataModule):
    """Mini-batches that some store on disk would give."""

    def __init__(self, loader):
        super().__init__()
        self.loader = loader

    def train_dataloader(self):
        return self.loader


def test_a_datamodule_takes_the_place_of_an_anndata(counts):
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    with_data = DISCOVR(counts)
    loader = with_data._make_data_loader(counts, batch_size=40)
    model = DISCOVR(registry=with_data.registry, n_latent_z=3, prior="mapped")
    model.train(datamodule=Batches(loader), **QUIET)
    z = model.get_latent_representation(dataloader=loader)
    assert z.shape == (counts.n_obs, 3)
    # The condition means come from the datamodule's cells.
    codes = counts.obs[f"_scvi_{REGISTRY_KEYS.LABELS_KEY}"].to_numpy()
    expected = [z[codes == k].mean(0) for k in range(3)]
    np.testing.assert_allclose(model.module.condition_means.means, expected, rtol=1e-4, atol=1e-5)
