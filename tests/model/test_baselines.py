"""Baselines under DISCOVR's API: counts, vectors and images."""

from __future__ import annotations

import numpy as np
import pytest
import scvi
import torch

from discovr_sc import CCVAE, CSVAE, CVAE, DISCOVR, DIVA, HCSVAE, Weights

BASELINES = [CSVAE, HCSVAE, DIVA, CCVAE, CVAE]
DATA = {
    "counts": ({}, {"likelihood": "zinb"}),
    "vectors": ({"tensor_key": "x"}, {"likelihood": "gaussian", "n_latent_z": 2}),
    "images": ({"tensor_key": "x"}, {"likelihood": "bernoulli", "network": "cnn"}),
}


def build(model_cls, adata, name, **settings):
    setup, model_settings = DATA[name]
    model_cls.setup_anndata(adata, "condition", **setup)
    return model_cls(adata, **({"n_hidden": 8, "n_latent_z": 4, "n_latent_w": 3} | model_settings | settings))


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("model_cls", BASELINES)
def test_every_baseline_has_the_whole_api(request, tmp_path, model_cls, name):
    adata = request.getfixturevalue(name)
    model = build(model_cls, adata, name)
    model.train(max_epochs=2, enable_progress_bar=False)
    assert all(np.isfinite(values.to_numpy(dtype=float)).all() for values in model.history_.values())
    z = model.get_latent_representation()
    assert z.shape == (adata.n_obs, model.module.n_latent_z)
    assert np.isfinite(z).all()
    for kind in ("full", "marginal"):
        reconstruction = model.get_reconstruction(kind=kind)
        assert reconstruction.shape == (adata.n_obs, *model.module.shape)
        assert np.isfinite(reconstruction).all()
    if name != "counts":  # for counts see the sums below
        full, marginal = (model.get_reconstruction(kind=kind, n_samples=20) for kind in ("full", "marginal"))
        assert np.abs(full - marginal).max() > 1e-4
    assert np.isfinite(model.get_reconstruction_error())
    assert np.isfinite(model.get_marginal_ll(n_mc_samples=4))
    assert np.isfinite(float(model.get_elbo()))
    if name == "counts":
        marginal = model.get_normalized_expression(kind="marginal", library_size=1e4)
        np.testing.assert_allclose(marginal.sum(1), 1e4, rtol=1e-4)
    model.save(tmp_path / "model")
    loaded = model_cls.load(tmp_path / "model", adata)
    np.testing.assert_array_equal(loaded.get_latent_representation(), z)


@pytest.mark.parametrize("model_cls", [CSVAE, HCSVAE, DIVA, CCVAE])
def test_w_and_unknown_conditions(counts, model_cls):
    model = build(model_cls, counts, "counts")
    model.train(max_epochs=2, enable_progress_bar=False)
    known = model.get_latent_representation(kind="w")
    assert known.shape == (120, 3)
    query = counts.copy()
    query.obs["condition"] = np.nan
    hidden = model.get_latent_representation(query, kind="w")
    if model_cls in (DIVA, CCVAE):  # w never sees the condition
        np.testing.assert_array_equal(hidden, known)
    else:
        assert np.isfinite(hidden).all()
        assert np.abs(hidden - known).max() > 1e-4


def test_cvae_has_no_w(counts):
    model = build(CVAE, counts, "counts")
    model.train(max_epochs=1, enable_progress_bar=False)
    for kind in ("w", "zw"):
        with pytest.raises(ValueError, match=rf"kind='{kind}': CVAE has no w"):
            model.get_latent_representation(kind=kind)
    query = counts.copy()
    query.obs["condition"] = np.nan
    assert np.abs(model.get_latent_representation(query) - model.get_latent_representation()).max() > 1e-4


@pytest.mark.parametrize("model_cls", [CSVAE, HCSVAE])
def test_no_adversary_is_weight_zero_exactly(counts, model_cls):
    """Weight 0 is the paper's "No Adv." row: no adversary, the same latents bit for bit; a strong one changes them."""
    counts = counts[counts.obs["condition"] != "treated_2"].copy()

    def latents(**settings):
        scvi.settings.seed = 0
        model = build(model_cls, counts, "counts", **settings)
        model.train(max_epochs=2, enable_progress_bar=False)
        return model, model.get_latent_representation()

    zero = Weights(rec=1, rec_z=0, kl_z=1e-4, kl_w=1, adv=0, classify=0)
    model, z = latents(weights=zero)
    assert model.module.adversary is None
    assert "adv_train" not in model.history_
    scvi.settings.seed = 0
    model_cls.setup_anndata(counts, "condition")
    paper = model_cls.paper(
        counts, "kang", method=f"{model_cls._paper_name}-noadv", n_hidden=8, n_latent_z=4, n_latent_w=3, dropout_rate=0
    )
    assert paper.module.weights == zero
    paper.train(max_epochs=2, enable_progress_bar=False)
    np.testing.assert_array_equal(paper.get_latent_representation(), z)
    _, strong = latents(weights=Weights(kl_z=1e-4, adv=100))
    assert np.abs(strong - z).max() > 1e-3


def test_default_weights_are_the_papers(counts, vectors):
    assert build(CSVAE, counts, "counts").module.weights.adv == 100
    assert build(CSVAE, vectors, "vectors").module.weights.rec == 2.5
    assert build(DIVA, counts, "counts").module.weights.kl_w == 1e-4
    with pytest.raises(ValueError, match=r"method='cvae' is not in the paper's table"):
        CVAE.paper(counts, "kang")
    DISCOVR.setup_anndata(counts, "condition")
    dropouts = {cls: cls.paper(counts, "kang", n_latent_w=3).module.networks.dropout_rate for cls in (DISCOVR, DIVA)}
    assert len(set(dropouts.values())) == 1
    with pytest.raises(ValueError, match=r"DIVAModule has no adversary"):
        build(DIVA, counts, "counts", adversary="reconstruction")


def test_methods_without_a_decoder_of_z_say_so(counts):
    model = build(CSVAE, counts, "counts")
    model.train(max_epochs=1, enable_progress_bar=False)
    with pytest.raises(ValueError, match=r"library_size='latent': CSVAE averages.*give library_size a number"):
        model.get_normalized_expression(kind="marginal", library_size="latent")
    with pytest.raises(ValueError, match="CSVAE has no likelihood of x given z alone"):
        model.get_reconstruction_error(kind="marginal")
    with pytest.raises(ValueError, match="has no likelihood of x given z alone"):
        model.get_marginal_ll(kind="marginal")


def test_the_classifier_trains_with_the_model(counts):
    model = build(DIVA, counts, "counts")
    before = model.module.classifier.logits.weight.detach().clone()
    model.train(max_epochs=1, enable_progress_bar=False)
    assert not torch.equal(model.module.classifier.logits.weight, before)
