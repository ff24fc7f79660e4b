"""The model: every combination trains or raises, results come back in the promised shapes, nothing is lost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
import scvi
import torch

from discovr_sc import DISCOVR, Weights, data

LIKELIHOODS = ["zinb", "nb", "gaussian", "bernoulli"]
PRIORS = ["condition-mean", "mapped", "learned", "standard", "separable"]
ADVERSARIES = ["reconstruction", "latent", "both"]


@pytest.fixture
def sets(counts, vectors, images):
    """Data that fits each likelihood and network."""
    vectors.obsm["x"] = 1 / (1 + np.exp(-vectors.obsm["x"]))  # in [0, 1], for Bernoulli
    return {
        **{(likelihood, "mlp"): (counts, {}) for likelihood in ("zinb", "nb")},
        **{(likelihood, "mlp"): (vectors, {"tensor_key": "x"}) for likelihood in ("gaussian", "bernoulli")},
        **{(likelihood, "cnn"): (images, {"tensor_key": "x"}) for likelihood in ("gaussian", "bernoulli")},
    }


@pytest.fixture
def trained(counts):
    DISCOVR.setup_anndata(
        counts, "condition", batch_key="lane", categorical_covariate_keys=["sex"], continuous_covariate_keys=["age"]
    )
    model = DISCOVR(counts, n_latent_z=3, n_latent_w=2, n_hidden=16)
    model.train(max_epochs=3, enable_progress_bar=False)
    return model


def all_finite(history):
    return all(np.isfinite(values.to_numpy(dtype=float)).all() for values in history.values())


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    ("likelihood", "network"),
    [
        ("zinb", "mlp"),
        ("nb", "mlp"),
        ("gaussian", "mlp"),
        ("bernoulli", "mlp"),
        ("gaussian", "cnn"),
        ("bernoulli", "cnn"),
    ],
)
def test_every_valid_combination_trains_to_finite_values(sets, likelihood, network, prior, adversary):
    adata, setup = sets[likelihood, network]
    DISCOVR.setup_anndata(adata, "condition", **setup)
    model = DISCOVR(
        adata,
        n_latent_z=3,
        n_latent_w=3,
        likelihood=likelihood,
        network=network,
        prior=prior,
        adversary=adversary,
        n_hidden=8,
    )
    model.train(max_epochs=2, enable_progress_bar=False)
    assert all_finite(model.history_)
    for kind in ("full", "marginal"):
        reconstruction = model.get_reconstruction(kind=kind)
        assert reconstruction.shape == (adata.n_obs, *model.module.shape)
        assert np.isfinite(reconstruction).all()


def invalid_combinations():
    for prior, adversary in product(PRIORS, ADVERSARIES):
        for likelihood in ("zinb", "nb"):
            yield "images", {"likelihood": likelihood, "network": "cnn", "prior": prior, "adversary": adversary}
            yield "counts", {"likelihood": likelihood, "network": "cnn", "prior": prior, "adversary": adversary}
        for likelihood in LIKELIHOODS:
            yield "images", {"likelihood": likelihood, "network": "mlp", "prior": prior, "adversary": adversary}
        for likelihood in ("gaussian", "bernoulli"):
            yield "vectors", {"likelihood": likelihood, "network": "cnn", "prior": prior, "adversary": adversary}
    yield "counts", {"prior": "condition-mean", "n_latent_z": 10, "n_latent_w": 2}
    yield "counts", {"prior": "separable", "n_latent_w": 2}  # three conditions
    yield "counts", {"likelihood": "poisson"}
    yield "counts", {"network": "transformer"}
    yield "counts", {"prior": "flat"}
    yield "counts", {"adversary": "everywhere"}
    yield "counts", {"dispersion": "none"}
    yield "vectors", {"likelihood": "gaussian", "noise_scale": -1.0}
    yield "vectors", {"likelihood": "gaussian", "noise_scale_z": 0.0}
    yield "vectors", {"likelihood": "bernoulli"}  # values outside of [0, 1]
    yield "vectors", {"likelihood": "nb"}  # negative values
    for size in ("n_latent_z", "n_latent_w", "n_hidden", "n_layers"):
        yield "counts", {size: 0}


def test_every_invalid_combination_raises(counts, vectors, images):
    sets = {"counts": (counts, {}), "vectors": (vectors, {"tensor_key": "x"}), "images": (images, {"tensor_key": "x"})}
    tried = 0
    for name, settings in invalid_combinations():
        adata, setup = sets[name]
        DISCOVR.setup_anndata(adata, "condition", **setup)
        with pytest.raises(ValueError, match=r"; |shape") as error:
            DISCOVR(adata, **({"n_hidden": 4} | settings))
        assert any(name in str(error.value) for name in settings), (settings, error.value)
        tried += 1
    assert tried == 165


@pytest.mark.parametrize("weights", [{"adv": -1.0}, {"rec": float("nan")}, {"kl_z": float("inf")}])
def test_bad_weights_raise(weights):
    name = next(iter(weights))
    with pytest.raises(ValueError, match=rf"weights.{name} is .*at least 0"):
        Weights(**weights)


# Latents and reconstructions ------------------------------------------------------------------------------------


def test_counts_stored_as_sparse_rows_are_encoded_as_such(trained, counts, monkeypatch):
    dense = counts.copy()
    dense.X = counts.X.toarray()
    layouts, moments = [], trained.module.latent_moments

    def spy(tensors, latents):
        layouts.append(tensors["X"].layout)
        return moments(tensors, latents)

    monkeypatch.setattr(trained.module, "latent_moments", spy)
    z, z_of_dense = (trained.get_latent_representation(adata) for adata in (counts, dense))
    assert layouts == [torch.sparse_csr, torch.strided]
    np.testing.assert_allclose(z, z_of_dense, rtol=1e-5, atol=1e-5)
    # The encoder of w takes the condition, too, beside dense counts.
    trained.get_latent_representation(kind="w")
    assert layouts[-1] == torch.strided


def test_latents_have_the_promised_shapes(trained, counts):
    z, w = (trained.get_latent_representation(kind=kind) for kind in ("z", "w"))
    assert z.shape == (120, 3)
    assert w.shape == (120, 2)
    # z alone is computed from sparse rows, and rounded otherwise
    np.testing.assert_allclose(trained.get_latent_representation(kind="zw"), np.hstack([z, w]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(trained.get_latent_representation(indices=[5, 7]), z[[5, 7]], rtol=1e-5)
    mean, variance = trained.get_latent_representation(kind="w", return_dist=True)
    np.testing.assert_array_equal(mean, w)
    assert (variance > 0).all()
    samples = np.stack([trained.get_latent_representation(kind="w", use_mean=False) for _ in range(200)])
    np.testing.assert_allclose(samples.mean(0), mean, atol=5 * np.sqrt(variance.max() / 200))
    np.testing.assert_allclose(samples.var(0).mean(), variance.mean(), rtol=0.1)
    with pytest.raises(ValueError, match=r"kind='u'.*'zw'"):
        trained.get_latent_representation(kind="u")


def test_z_does_not_see_the_condition_and_w_does(trained, counts):
    swapped = counts.copy()
    swapped.obs["condition"] = counts.obs["condition"].cat.rename_categories(
        dict(zip(trained.conditions, np.roll(trained.conditions, 1), strict=True))
    )
    np.testing.assert_array_equal(trained.get_latent_representation(swapped), trained.get_latent_representation())
    w, w_swapped = (trained.get_latent_representation(a, kind="w") for a in (None, swapped))
    assert np.abs(w - w_swapped).max() > 1e-3


def test_normalized_expression(trained, counts):
    full = trained.get_normalized_expression()
    assert isinstance(full, pd.DataFrame)
    assert list(full.columns) == list(counts.var_names)
    assert list(full.index) == list(counts.obs_names)
    np.testing.assert_allclose(full.sum(1), 1, rtol=1e-4)
    marginal = trained.get_normalized_expression(kind="marginal", library_size=1e4)
    np.testing.assert_allclose(marginal.sum(1), 1e4, rtol=1e-4)
    genes = list(counts.var_names[[3, 1]])
    assert set(trained.get_normalized_expression(gene_list=genes).columns) == set(genes)
    several = trained.get_normalized_expression(n_samples=4, return_mean=False, indices=np.arange(10))
    assert several.shape == (4, 10, 20)
    averaged = trained.get_normalized_expression(n_samples=200, indices=np.arange(10))
    assert averaged.shape == (10, 20)
    assert trained._get_transform_batch_gen_kwargs(None)["kind"] == "full"  # nothing is left of the marginal one
    with pytest.raises(ValueError, match="kind='both' is not known"):
        trained.get_normalized_expression(kind="both")


def test_marginal_expression_is_that_of_the_decoder_of_z(trained):
    trained.module.z_encoder.raw_scale.weight.data.zero_()
    trained.module.z_encoder.raw_scale.bias.data.fill_(-30.0)  # z is now its mean, to 1e-4
    batch = next(iter(trained.batches(None, None, 120)))
    given = trained.module.given(batch)
    with torch.no_grad():
        z = torch.as_tensor(trained.get_latent_representation())
        expected = trained.module.decode_marginal(z, given).scale
    marginal = trained.get_normalized_expression(kind="marginal", return_numpy=True, batch_size=120)
    np.testing.assert_allclose(marginal, expected.numpy(), rtol=0.02)


def test_batch_conditions_the_decoders_and_only_on_request_the_encoders(trained, counts):
    a, b = (trained.get_normalized_expression(transform_batch=lane, n_samples=20) for lane in ("a", "b"))
    own = trained.get_normalized_expression(n_samples=20)
    in_a = (counts.obs["lane"] == "a").to_numpy()
    assert np.abs(own[in_a] - a[in_a]).mean().mean() < np.abs(own[in_a] - b[in_a]).mean().mean()
    swapped = counts.copy()
    swapped.obs["lane"] = np.where(in_a, "b", "a")
    np.testing.assert_array_equal(trained.get_latent_representation(swapped), trained.get_latent_representation())
    encoding = DISCOVR(counts, n_latent_z=3, n_hidden=16, encode_covariates=True)
    encoding.train(max_epochs=1, enable_progress_bar=False)
    difference = encoding.get_latent_representation(swapped) - encoding.get_latent_representation()
    assert np.abs(difference).max() > 1e-3


def test_size_factors_replace_the_total_counts(counts):
    counts.obs["size"] = 2.0 * np.asarray(counts.X.sum(1)).ravel()
    DISCOVR.setup_anndata(counts, "condition", size_factor_key="size")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    batch = next(iter(model.batches(None, None, 10)))
    np.testing.assert_allclose(model.module.given(batch).size_factor, 2 * batch["X"].sum(1, keepdim=True))


def test_reconstruction_errors_and_bounds_are_in_order(trained):
    elbo = float(trained.get_elbo())
    full, marginal = (trained.get_marginal_ll(kind=kind, n_mc_samples=200) for kind in ("full", "marginal"))
    per_cell = trained.get_marginal_ll(n_mc_samples=200, return_mean=False)
    assert per_cell.shape == (120,)
    # log p(x) = log sum_k p(x, k) is at least log p(x, y) >= ELBO + log p(y)
    assert full > elbo + np.log(1 / 3) - 0.5
    # E_q log p(x|z) - KL(q_z || p_z) bounds the likelihood of the model of z alone from below.
    mean, variance = trained.get_latent_representation(return_dist=True)
    kl_z = 0.5 * (variance + mean**2 - 1 - np.log(variance)).sum(1).mean()
    assert marginal >= -trained.get_reconstruction_error(kind="marginal") - kl_z - 0.5
    errors = trained.get_reconstruction_error(return_mean=False)
    assert errors.shape == (120,)
    assert errors.mean() == pytest.approx(trained.get_reconstruction_error(), rel=0.02)
    with pytest.raises(ValueError, match="kind='z' is not known"):
        trained.get_reconstruction_error(kind="z")


def test_reconstruction_of_images_is_in_the_unit_interval(images):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    model = DISCOVR(images, likelihood="bernoulli", network="cnn", n_hidden=16)
    model.train(max_epochs=2, enable_progress_bar=False)
    x = model.get_reconstruction(n_samples=3, return_mean=False)
    assert x.shape == (3, 40, 2, 9, 8)
    assert x.min() >= 0
    assert x.max() <= 1
    assert images.obsm["x"].dtype == np.uint8
    with pytest.raises(ValueError, match="use get_reconstruction"):
        model.get_normalized_expression()


def test_untrained_models_say_so(counts):
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.raises(RuntimeError, match="train the model"):
        DISCOVR(counts, n_hidden=4).get_latent_representation()


# Unknown conditions, queries ------------------------------------------------------------------------------------


def test_unknown_conditions_are_averaged(trained, counts):
    query = counts.copy()
    query.obs["condition"] = query.obs["condition"].astype(object)
    query.obs.loc[query.obs_names[:30], "condition"] = np.nan
    w, z = (trained.get_latent_representation(query, kind=kind) for kind in ("w", "z"))
    np.testing.assert_array_equal(w[30:], trained.get_latent_representation(kind="w")[30:])
    np.testing.assert_array_equal(z, trained.get_latent_representation())
    assert np.abs(w[:30] - trained.get_latent_representation(kind="w")[:30]).max() > 1e-4
    per_condition = []
    for condition in trained.conditions:
        labelled = counts[:30].copy()
        labelled.obs["condition"] = condition
        per_condition.append(trained.get_latent_representation(labelled, kind="w"))
    low, high = np.min(per_condition, axis=0), np.max(per_condition, axis=0)
    assert (w[:30] >= low - 1e-5).all()
    assert (w[:30] <= high + 1e-5).all()
    assert np.isfinite(trained.get_normalized_expression(query)).all().all()

    del query.obs["condition"]
    with pytest.warns(UserWarning, match="no column 'condition'.*unknown"):
        assert trained.get_latent_representation(query.copy(), kind="w").shape == (120, 2)


def test_predict_condition_gives_probabilities(trained):
    probs = trained.predict_condition(n_samples=8)
    assert list(probs.columns) == list(trained.conditions)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)


def test_unseen_categories_and_genes_raise(trained, counts):
    query = counts.copy()
    query.obs["condition"] = "frozen"
    with pytest.raises(ValueError, match=r"'condition'\] has the category 'frozen'.*it knows"):
        trained.get_latent_representation(query)
    query = counts.copy()
    query.obs["lane"] = "c"
    with pytest.raises(ValueError, match=r"'lane'\] has the category 'c'"):
        trained.get_latent_representation(query)
    with pytest.raises(ValueError, match="lacks 5 of the 20 genes"):
        trained.get_latent_representation(counts[:, :15].copy())
    renamed = counts.copy()
    renamed.var_names = [f"other_{i}" for i in range(20)]
    with pytest.raises(ValueError, match="lacks 20 of the 20 genes"):
        trained.get_latent_representation(renamed)
    with pytest.raises(ValueError, match=r"another order.*get_var_names"):
        trained.get_latent_representation(counts[:, ::-1].copy())


def test_a_query_tensor_of_another_shape_raises(images):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    model = DISCOVR(images, likelihood="bernoulli", network="cnn", n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    other = data.tensors_to_anndata(np.zeros((4, 2, 9, 9), np.uint8), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"shape \(2, 9, 9\).*\(2, 9, 8\)"):
        model.get_latent_representation(other)


# Reproducibility, saving ----------------------------------------------------------------------------------------


def test_one_seed_gives_one_result(counts):
    DISCOVR.setup_anndata(counts, "condition")

    def run(seed):
        scvi.settings.seed = seed
        model = DISCOVR(counts, n_hidden=16)
        model.train(max_epochs=3, enable_progress_bar=False)
        return model.get_latent_representation(kind="zw"), model.history_["train_loss"].to_numpy(dtype=float)

    (latent, loss), (latent_again, loss_again) = run(3), run(3)
    np.testing.assert_array_equal(latent, latent_again)
    np.testing.assert_array_equal(loss, loss_again)
    assert np.abs(run(4)[0] - latent).max() > 1e-3


@pytest.mark.parametrize("prior", ["condition-mean", "mapped", "learned"])
def test_save_and_load_give_the_same_model(counts, tmp_path, prior):
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    model = DISCOVR(counts, n_latent_z=3, n_latent_w=3, prior=prior, n_hidden=8, weights=Weights(adv=7.0))
    model.train(max_epochs=2, enable_progress_bar=False)
    model.save(tmp_path / "model", save_anndata=True)
    for loaded in (DISCOVR.load(tmp_path / "model"), DISCOVR.load(tmp_path / "model", adata=counts)):
        np.testing.assert_array_equal(
            loaded.get_latent_representation(kind="zw"), model.get_latent_representation(kind="zw")
        )
        assert loaded.module.weights == Weights(adv=7.0)
        state, expected = loaded.module.state_dict(), model.module.state_dict()
        assert state.keys() == expected.keys()
        assert any(key.startswith("adversary.") for key in state)
        assert all(torch.equal(state[key], expected[key]) for key in state)
    without_data = DISCOVR.load(tmp_path / "model", adata=False)
    np.testing.assert_array_equal(
        without_data.get_latent_representation(counts.copy()), model.get_latent_representation()
    )


def test_condition_means_are_those_of_the_training_cells(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=2, n_latent_w=2, prior="condition-mean", n_hidden=8)
    model.train(max_epochs=2, enable_progress_bar=False)
    z = model.get_latent_representation()[model.train_indices]
    codes = counts.obs["condition"].cat.codes.to_numpy()[model.train_indices]
    means = np.stack([z[codes == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(model.module.condition_means.means.numpy(), means, rtol=1e-4, atol=1e-6)


def test_early_stopping_stops(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    model.train(
        max_epochs=50, early_stopping=True, early_stopping_patience=2, early_stopping_min_delta=1e9,
        enable_progress_bar=False,
    )  # fmt: skip
    assert len(model.history_["validation_loss"]) == 3


# The paper's settings -------------------------------------------------------------------------------------------


def test_paper_settings(vectors):
    DISCOVR.setup_anndata(vectors, "condition", tensor_key="x")
    model = DISCOVR.paper(vectors, "parametric")
    assert model.module.weights == Weights(rec=0.75, rec_z=0.25, kl_z=0.9, kl_w=0.2, adv=0.8, classify=0)
    assert (model.module.n_latent_z, model.module.n_latent_w) == (1, 1)
    assert type(model.module.prior).__name__ == "ConditionMeanPrior"
    assert list(model.module.adversary.classifiers) == ["reconstruction"]
    assert model.plan_defaults_ == {"lr": 1e-3, "adversary_lr": 3e-3, "n_adversary_steps": 3}
    with pytest.raises(ValueError, match=r"experiment='penguins'.*'kang'"):
        DISCOVR.paper(vectors, "penguins")
    with pytest.raises(ValueError, match=r"method='csvae' is not a row of DISCOVR"):
        DISCOVR.paper(vectors, "parametric", method="csvae")


def test_parametric_posterior_matches_the_analytic_one():
    """With the paper's weights, sign-aligned KL(q(z|x) || N(x/2, 1/2)) <= 0.05 (the paper reports 0.17)."""
    adata = data.parametric_model(5000, seed=0)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    model = DISCOVR.paper(adata, "parametric", noise_scale=0.5)
    model.train(max_epochs=30, enable_progress_bar=False)
    mean, variance = (array.ravel() for array in model.get_latent_representation(return_dist=True))
    x = adata.obsm["x"].ravel()

    def kl(sign):
        return np.mean(0.5 * (np.log(0.5 / variance) + (variance + (sign * mean - x / 2) ** 2) / 0.5 - 1))

    assert min(kl(1), kl(-1)) <= 0.05


# What a review found ----------------------------------------------------------------------------------------------


def test_w_of_unknown_conditions_repeats_itself(trained, counts):
    query = counts.copy()
    query.obs["condition"] = np.nan
    first, second = (trained.get_latent_representation(query, kind="w") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    pd.testing.assert_frame_equal(trained.predict_condition(), trained.predict_condition())


def test_a_query_must_be_stored_as_the_training_data_were(images):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    model = DISCOVR(images, likelihood="bernoulli", network="cnn", n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    floats = images.copy()
    floats.obsm["x"] = (images.obsm["x"] / 255).astype(np.float32)
    with pytest.raises(ValueError, match=r"stored as float32, but the model was trained on bytes"):
        model.get_latent_representation(floats)


def test_counts_stored_as_bytes_stay_counts(counts):
    counts.obsm["bytes"] = counts.X.toarray().clip(max=255).astype(np.uint8)
    DISCOVR.setup_anndata(counts, "condition", tensor_key="bytes")
    model = DISCOVR(counts, n_hidden=4)
    batch = next(iter(model._make_data_loader(counts, batch_size=5)))
    np.testing.assert_array_equal(model.module.data(batch), counts.obsm["bytes"][:5])


def test_a_saved_model_loads_with_cells_of_unknown_condition(trained, counts, tmp_path):
    trained.save(tmp_path / "model")
    query = counts.copy()
    query.obs["condition"] = np.nan
    loaded = DISCOVR.load(tmp_path / "model", query)
    np.testing.assert_array_equal(loaded.get_latent_representation(), trained.get_latent_representation())
    torch.testing.assert_close(loaded.module.condition_probs, trained.module.condition_probs)


def test_scvi_methods_that_come_with_the_mixins(trained, counts):
    parameters = trained.get_likelihood_parameters(n_samples=1)
    assert parameters["mean"].shape == (120, 20)
    assert trained.get_feature_correlation_matrix(n_samples=2).shape == (20, 20)
    with pytest.raises(ValueError, match="weights='uniform'"):
        trained.get_normalized_expression(weights="importance", n_samples_overall=10)
    with pytest.raises(ValueError, match="observed, not latent"):
        trained.get_latent_library_size()


def test_querying_an_untrained_model_raises_and_changes_nothing(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=2, n_latent_w=2, prior="condition-mean", n_hidden=4)
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    for query in (model.get_elbo, model.get_reconstruction_error, model.get_marginal_ll, model.get_reconstruction):
        with pytest.raises(RuntimeError, match="train the model"):
            query()
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())


def test_mixed_precision_and_sparse_loading_train(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=2, n_latent_w=2, prior="condition-mean", n_hidden=8)
    model.train(max_epochs=1, precision="bf16-mixed", enable_progress_bar=False)
    model.train(max_epochs=1, load_sparse_tensor=True, enable_progress_bar=False)
    assert np.isfinite(model.get_latent_representation()).all()


def test_too_small_batches_raise(counts):
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.raises(ValueError, match="batch_size=1; give a whole number of at least 2"):
        DISCOVR(counts, n_hidden=4).train(1, batch_size=1)


# What a first user stumbled over ------------------------------------------------------------------------------------


def test_some_weights_can_be_changed_by_name(counts):
    DISCOVR.setup_anndata(counts, "condition")
    weights = DISCOVR(counts, n_hidden=4, weights={"adv": 8.0}).module.weights
    assert (weights.adv, weights.mmd, weights.rec_z) == (8.0, 1000.0, 0.1)
    assert DISCOVR(counts, n_hidden=4, weights=Weights(adv=8.0)).module.weights.mmd == 0
    with pytest.raises(ValueError, match=r"weights has 'adversary', which is no term .* 'adv'"):
        DISCOVR(counts, weights={"adversary": 8.0})
    with pytest.raises(TypeError, match="weights is a float"):
        DISCOVR(counts, weights=8.0)


def test_misspelt_arguments_raise(trained):
    with pytest.raises(TypeError, match="librarysize"):
        trained.get_normalized_expression(librarysize=1e4)
    with pytest.raises(ValueError, match="gene_list has 'nope', which is not among the model's 20 genes"):
        trained.get_normalized_expression(gene_list=["nope"])
    with pytest.raises(
        TypeError, match=r"plan_kwargs has 'lrr', which the plan does not take; it takes \['optimizer', 'lr'"
    ):
        trained.train(1, plan_kwargs={"lrr": 1})


def test_a_model_loaded_without_data_asks_for_them(trained, tmp_path):
    trained.save(tmp_path / "model")
    with pytest.raises(ValueError, match="loaded without data; pass adata"):
        DISCOVR.load(tmp_path / "model", adata=False).get_latent_representation()
