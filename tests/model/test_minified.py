"""Minified data answer as the counts did, from the latents alone."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from discovr_sc import CVAE, DISCOVR, HCSVAE

QUIET = {"enable_progress_bar": False}


def train(adata, cls=DISCOVR, **setup):
    cls.setup_anndata(adata, "condition", batch_key="lane", **setup)
    model = cls(adata, n_latent_z=3, n_latent_w=3, n_hidden=8)
    model.train(2, **QUIET)
    return model


@pytest.mark.parametrize("cls", [DISCOVR, HCSVAE])
@pytest.mark.parametrize("layer", [None, "raw"])
def test_minified_data_answer_as_the_counts_did(counts, tmp_path, cls, layer):
    counts.layers["raw"] = counts.X.copy()
    model = train(counts, cls, layer=layer)
    z, w = (model.get_latent_representation(kind=kind, return_dist=True) for kind in ("z", "w"))
    expression = {kind: model.get_normalized_expression(kind=kind, n_samples=300) for kind in ("full", "marginal")}
    total = model.get_normalized_expression(library_size="latent", n_samples=300)
    model.minify_adata()
    assert model.minified_data_type == "latent_posterior_parameters"
    assert counts.X.nnz > 0
    assert not any(key.startswith("_scvi_latent") for key in counts.obsm)
    assert model.adata.X.nnz == model.adata.layers["raw"].nnz == 0
    model.save(tmp_path / "model", save_anndata=True)
    for minified in (model, cls.load(tmp_path / "model")):
        for kind, (mean, variance) in {"z": z, "w": w}.items():
            got = minified.get_latent_representation(kind=kind, return_dist=True)
            np.testing.assert_allclose(got[0], mean, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(got[1], variance, rtol=1e-5)
            samples = minified.get_latent_representation(kind=kind, use_mean=False)
            assert 0 < np.abs(samples - mean).mean() < 3 * np.sqrt(variance).mean()
        for kind, expected in expression.items():
            if cls is HCSVAE and kind == "full":
                continue  # its posteriors of z and w hang on u
            got = minified.get_normalized_expression(kind=kind, n_samples=300)
            np.testing.assert_allclose(got, expected, rtol=0.2)
        if cls is DISCOVR:
            got = minified.get_normalized_expression(library_size="latent", n_samples=300)
            np.testing.assert_allclose(got.sum(1), np.asarray(counts.X.sum(1)).ravel(), rtol=1e-3)
            np.testing.assert_allclose(got, total, rtol=0.2)
        assert minified.get_reconstruction(kind="marginal").shape == (120, 20)


def test_what_needs_counts_raises(counts):
    model = train(counts)
    query = counts.copy()
    model.minify_adata()
    for ask in (model.predict_condition, model.get_reconstruction_error, model.get_marginal_ll, model.get_elbo):
        with pytest.raises(ValueError, match="does not support minified data"):
            ask()
    with pytest.raises(ValueError, match="minified; load it with the data that it was trained on to train it"):
        model.train(1)
    with pytest.raises(ValueError, match="takes minified data only; load it with adata=False"):
        model.get_latent_representation(query)
    with pytest.raises(ValueError, match="minified already"):
        model.minify_adata()
    for ask in (partial(model.predict_counterfactual, target="control"), model.get_condition_effect):
        with pytest.raises(ValueError, match=f"{getattr(ask, 'func', ask).__name__} encodes counts"):
            ask()
    with pytest.raises(ValueError, match="differential_expression encodes counts"):
        model.differential_expression(target="treated_1", reference="control")
    with pytest.raises(ValueError, match="adata is minified: it has latents in place of counts"):
        train(query).get_latent_representation(model.adata)
    with pytest.raises(ValueError, match="no counts of the cells that it was trained on"):
        new = query[:40].copy()
        new.obs["condition"] = "new"
        model.add_condition(new)
    extended = model.add_condition(new, old_cells=query, max_epochs=1, enable_progress_bar=False)
    assert list(extended.conditions) == [*model.conditions, "new"]


def test_counts_can_be_kept(counts):
    model = train(counts)
    z, error = model.get_latent_representation(), model.get_reconstruction_error()
    model.minify_adata("latent_posterior_parameters_with_counts")
    assert model.adata.X.nnz > 0
    np.testing.assert_allclose(model.get_latent_representation(), z, rtol=1e-5, atol=1e-6)
    assert model.get_reconstruction_error() == pytest.approx(error, rel=0.02)
    assert np.isfinite(model.predict_condition(n_samples=2)).all().all()


def test_a_minified_model_without_data_takes_new_cells(counts, tmp_path):
    model = train(counts)
    z = model.get_latent_representation()
    model.minify_adata()
    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", adata=False)
    np.testing.assert_allclose(loaded.get_latent_representation(counts.copy()), z, rtol=1e-5, atol=1e-6)


def test_unknown_conditions_keep_their_averages(counts):
    counts.obs["condition"] = counts.obs["condition"].astype(str)
    counts.obs.loc[counts.obs_names[:20], "condition"] = "?"
    model = train(counts, unlabeled_category="?")
    w, variance = model.get_latent_representation(kind="w", return_dist=True)
    model.minify_adata()
    got = model.get_latent_representation(kind="w", return_dist=True)
    np.testing.assert_allclose(got[0], w, rtol=1e-5)
    np.testing.assert_allclose(got[1], variance, rtol=1e-5)
    assert np.isfinite(model.get_normalized_expression()).all().all()


def test_what_cannot_be_minified(counts, vectors):
    cvae = train(counts, CVAE)
    with pytest.raises(ValueError, match="keeps z and w; CVAE has no w"):
        cvae.minify_adata()
    DISCOVR.setup_anndata(vectors, "condition", tensor_key="x")
    model = DISCOVR(vectors, n_latent_z=2, n_latent_w=2, likelihood="gaussian", n_hidden=4)
    with pytest.raises(RuntimeError, match="train the model"):
        model.minify_adata()
    model.train(1, **QUIET)
    with pytest.raises(ValueError, match="not for an array in obsm"):
        model.minify_adata()
    counted = train(counts)
    with pytest.raises(NotImplementedError, match="nothing is not supported"):
        counted.minify_adata("nothing")
