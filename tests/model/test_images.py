"""Images through the models: bytes, widths, the adversary's network, and the paper's weights per pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discovr_sc import DISCOVR, HCSVAE
from discovr_sc.settings import paper_weights

SMALL = {"network": "cnn", "likelihood": "image-gaussian", "n_hidden": 16, "channels": (4, 4, 6, 8), "n_latent_z": 3}


def trained(images, model_cls=DISCOVR, **settings):
    model_cls.setup_anndata(images, "condition", tensor_key="x")
    model = model_cls(images, **SMALL | settings)
    model.train(1, batch_size=16, enable_progress_bar=False)
    return model


def test_widths_and_the_adversarys_network_reach_the_module(images, tmp_path):
    model = trained(images, network_adversary="mlp", narrow_z=2)
    convolutions = {
        part: [m.out_channels for m in getattr(model.module, part).modules() if isinstance(m, torch.nn.Conv2d)]
        for part in ("z_encoder", "decoder", "decoder_z", "adversary")
    }
    assert convolutions["z_encoder"] == [4, 4, 6, 8]
    assert (convolutions["decoder"], convolutions["decoder_z"]) == ([6, 4, 4, 2], [3, 2, 2, 2])
    assert convolutions["adversary"] == []
    assert any(isinstance(m, torch.nn.Conv2d) for m in trained(images).module.adversary.modules())
    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", images)
    np.testing.assert_allclose(loaded.get_latent_representation(), model.get_latent_representation(), rtol=1e-5)


@pytest.mark.parametrize("model_cls", [DISCOVR, HCSVAE])
def test_reconstructions_at_posterior_means_repeat_themselves(images, model_cls):
    model = trained(images, model_cls)
    first, second = (model.get_reconstruction(use_mean=True) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.min() >= 0
    assert first.max() <= 1
    assert np.abs(model.get_reconstruction() - first).max() > 0
    with pytest.raises(ValueError, match="n_samples=3: there is one posterior mean"):
        model.get_reconstruction(use_mean=True, n_samples=3)


def test_images_stay_bytes(images):
    model = trained(images)
    assert images.obsm["x"].dtype == np.uint8
    loaded = next(iter(model._make_data_loader(images)))["X"]
    assert model.module.data({"X": loaded}).max() <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": (8, 8)}, "this network has 4 convolutions"),
        ({"network_adversary": "transformer"}, "network_adversary='transformer' is not known"),
        ({"narrow_z": 0}, "narrow_z is 0"),
        ({"mmd_bandwidths": (0.1, 0.0)}, "mmd_bandwidths is"),
        ({"network": "larsen", "channels": None}, "multiples of 8"),
    ],
)
def test_wrong_settings(images, settings, message):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    with pytest.raises(ValueError, match=message):
        DISCOVR(images, **SMALL | settings)


def test_the_papers_image_weights_are_per_pixel():
    discovr, hcsvae = (paper_weights(method, "colored-mnist") for method in ("discovr", "hcsvae"))
    assert discovr.rec == pytest.approx(0.5 / (3 * 28 * 28))
    assert discovr.rec_z == pytest.approx(0.5 / (3 * 28 * 28))
    assert (discovr.kl_z, discovr.kl_w, discovr.adv) == (1e-4, 1e-4, 0.1)
    assert hcsvae.rec == pytest.approx(1e4 / (3 * 28 * 28))
    assert paper_weights("discovr", "celeba-glasses").rec_z == pytest.approx(1e5 / (3 * 64 * 64))
    assert paper_weights("discovr", "kang").rec == 0.9
