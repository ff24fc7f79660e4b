"""Effects of the condition: the simulated genes restore variance, responses are found; scvi-tools' own queries work."""

from __future__ import annotations

import numpy as np
import pytest
import scvi
from scipy.stats import spearmanr

from discovr_sc import CSVAE, DISCOVR, data


@pytest.fixture(scope="module")
def cells():
    return data.simulate_counts(
        n_cells=1000, n_genes=60, n_types=2, n_effect_genes=20, type_specific=0.0, response_spread=0.5, seed=2
    )


@pytest.fixture(scope="module")
def model(cells):
    adata = cells.copy()
    DISCOVR.setup_anndata(adata, condition_key="condition")
    scvi.settings.seed = 0  # the model must not hang on the tests before it
    model = DISCOVR(adata, n_hidden=32, likelihood="nb", weights={"adv": 10, "mmd": 0})
    model.train(
        max_epochs=150, batch_size=128, plan_kwargs={"lr": 5e-3, "n_adversary_steps": 1}, enable_progress_bar=False
    )
    return model


def test_simulated_genes_restore_variance_and_have_the_simulated_sign(model, cells):
    effect = model.get_condition_effect(n_samples=10)
    assert effect.shape == cells.shape
    is_effect = cells.var["is_effect"].to_numpy()
    restored = effect.var["variance_restored"]
    assert restored[is_effect].mean() > 2 * abs(restored[~is_effect]).mean()
    treated = (cells.obs["condition"] != "control").to_numpy()
    truth = cells.var["effect_treated_1"].to_numpy()
    change = effect.X[treated].mean(0) - effect.X[~treated].mean(0)
    assert np.corrcoef(change, truth)[0, 1] > 0.9
    assert (effect.layers["low"] <= effect.X + 1e-4).mean() > 0.99
    assert (effect.layers["low"] <= effect.layers["high"]).all()
    np.testing.assert_allclose(effect.var["mean_data"], data.log_counts(cells.X).mean(0), rtol=1e-5)
    np.testing.assert_allclose(effect.var["variance_data"], data.log_counts(cells.X).var(0), rtol=1e-5)
    np.testing.assert_allclose(effect.var["lfc"], effect.X.mean(0), atol=1e-5)
    in_blocks = model.get_condition_effect(n_samples=10, per_cell=False, batch_size=300)
    np.testing.assert_allclose(in_blocks.var["variance_data"], effect.var["variance_data"], rtol=1e-9)
    np.testing.assert_allclose(in_blocks.var["variance_full"], effect.var["variance_full"], rtol=0.05)


def test_treated_cells_respond_and_controls_do_not(model, cells):
    effect = model.get_condition_effect(reference="control", n_samples=10, per_cell=False)
    assert effect.X is None
    assert effect.uns["condition_effect"]["against"] == "control"
    assert {"mean_reference", "variance_reference"} < set(effect.var)
    assert not {"mean_marginal", "variance_restored"} & set(effect.var)
    treated = (cells.obs["condition"] != "control").to_numpy()
    response = effect.obs["response"].to_numpy()
    np.testing.assert_allclose(response[~treated], 0, atol=1e-4)  # their own condition is the reference
    # the simulated change of each gene, in the profile that all cells share, is what a treated cell has moved by
    change = effect.var["lfc"].to_numpy() / treated.mean()
    assert np.corrcoef(change, cells.var["effect_treated_1"])[0, 1] > 0.9
    assert response[treated].min() > 0.01
    # each cell's own strength of response, as simulated, is in how far it has moved
    assert spearmanr(response[treated], cells.obs["response"][treated]).statistic > 0.4


def test_some_cells_and_genes(model, cells):
    genes = list(cells.var_names[[7, 2]])
    effect = model.get_condition_effect(indices=[4, 1], gene_list=genes, n_samples=5)
    assert list(effect.var_names) == genes
    assert list(effect.obs_names) == list(cells.obs_names[[4, 1]])
    assert list(effect.obs["condition"]) == list(cells.obs["condition"].iloc[[4, 1]])
    mask = np.isin(np.arange(cells.n_obs), [1, 4])
    masked = model.get_condition_effect(indices=mask, gene_list=genes, n_samples=5)
    assert list(masked.obs_names) == list(cells.obs_names[[1, 4]])
    np.testing.assert_allclose(masked.var["mean_data"], effect.var["mean_data"], rtol=1e-5)


def test_methods_without_a_decoder_of_z_have_effects_too(counts):
    CSVAE.setup_anndata(counts, "condition")
    model = CSVAE(counts, n_latent_w=3, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    assert np.isfinite(model.get_condition_effect(n_samples=2).X).all()


def test_wrong_arguments_raise(model):
    cases = {
        "n_samples=1; give a whole number of at least 2": {"n_samples": 1},
        "level=1; give": {"level": 1},
        "pseudocount=0; give": {"pseudocount": 0},
        "reference='x' is not one": {"reference": "x"},
        "gene_list has 'x'": {"gene_list": ["x"]},
    }
    for message, arguments in cases.items():
        with pytest.raises(ValueError, match=message):
            model.get_condition_effect(**arguments)


# scvi-tools' own queries ------------------------------------------------------------------------------------------


def test_posterior_predictive_samples_have_the_data_s_moments(model, cells):
    samples = model.posterior_predictive_sample(n_samples=3)
    assert samples.shape == (*cells.shape, 3)
    drawn = samples.todense()
    np.testing.assert_array_equal(drawn, np.round(drawn))
    r = np.corrcoef(np.log1p(drawn.mean((0, 2))), np.log1p(np.asarray(cells.X.mean(0)).ravel()))[0, 1]
    assert r > 0.98
    assert model.posterior_predictive_sample(indices=[0, 1], gene_list=["gene_3"]).shape == (2, 1)


def test_likelihood_parameters_are_those_of_the_full_decoder(model, cells):
    parameters = model.get_likelihood_parameters(n_samples=20, give_mean=True)
    assert set(parameters) == {"mean", "dispersions"}
    assert all(values.shape == cells.shape for values in parameters.values())
    assert (parameters["dispersions"] > 0).all()
    expected = model.get_normalized_expression(n_samples=20, library_size="latent", return_numpy=True)
    assert np.corrcoef(parameters["mean"].ravel(), expected.ravel())[0, 1] > 0.99


def test_posterior_predictive_checks_of_scvi_tools(model):
    from scvi.criticism import PosteriorPredictiveCheck

    # scvi-tools 1.4 cannot take sparse counts that are stored as floats
    model.adata.layers["whole"] = model.adata.X.astype(int)
    check = PosteriorPredictiveCheck(model.adata, {"discovr": model}, count_layer_key="whole", n_samples=2)
    check.coefficient_of_variation("cells")
    check.zero_fraction()
    cv = check.metrics["cv_gene"]
    assert spearmanr(cv["discovr"], cv["Raw"]).statistic > 0.5
    zeros = check.metrics["zero_fraction"]
    assert spearmanr(zeros["discovr"], zeros["Raw"]).statistic > 0.5
