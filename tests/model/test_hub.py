"""scvi-tools' hub, on disk: a model with minified data, its card and its metadata, and back."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

from discovr_sc import DISCOVR

pytest.importorskip("huggingface_hub", reason="scvi.hub needs huggingface_hub (pip install huggingface_hub)")


def test_a_model_goes_to_the_hub_folder_and_back(counts, tmp_path):
    from huggingface_hub import ModelCard
    from scvi.hub import HubMetadata, HubModel

    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    model = DISCOVR(counts, n_latent_z=3, n_hidden=8)
    model.train(2, enable_progress_bar=False)
    latents = model.get_latent_representation(kind="zw")
    model.minify_adata()
    folder = str(tmp_path / "model")
    model.save(folder, save_anndata=True)
    metadata = HubMetadata.from_dir(folder, anndata_version=version("anndata"), model_parent_module="discovr_sc")
    # scvi-tools' helper writes cards of its own models only
    card = ModelCard("---\nlicense: bsd-3-clause\nlibrary_name: discovr_sc\n---\n\n# DISCOVR of PBMCs\n")
    HubModel(folder, metadata=metadata, model_card=card).save()

    hub = HubModel(folder)
    assert hub.metadata.model_cls_name == "DISCOVR"
    assert "DISCOVR" in hub.model_card.content
    assert isinstance(hub.model, DISCOVR)
    np.testing.assert_allclose(hub.model.get_latent_representation(kind="zw"), latents, rtol=1e-5)
    assert hub.model.get_normalized_expression(kind="marginal").shape == (120, 20)
