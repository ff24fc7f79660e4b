from __future__ import annotations

import anndata
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import entropy

from discovr_sc.data import noisy_swiss_roll, parametric_model, simulate_counts

N = 20_000


def log_profile(adata) -> np.ndarray:
    """Logarithm of the share of each gene in the pooled counts, (genes,)."""
    pooled = np.asarray(adata.X.sum(axis=0), dtype=np.float64).ravel()
    return np.log((pooled + 0.5) / pooled.sum())


def log_fold_change(adata, condition="treated_1") -> np.ndarray:
    """Log fold change of pooled counts against control, less the median, which normalisation leaves free."""
    change = log_profile(adata[adata.obs["condition"] == condition]) - log_profile(
        adata[adata.obs["condition"] == "control"]
    )
    return change - np.median(change)


def test_parametric_model_has_the_moments_of_its_formula():
    adata = parametric_model(N, seed=1)
    x, z, w = adata.obsm["x"][:, 0], adata.obs["z"].to_numpy(), adata.obs["w"].to_numpy()
    y = adata.obs["condition"].to_numpy() == "1"
    np.testing.assert_allclose(x, z + w, atol=1e-6)
    np.testing.assert_array_equal(y, w > 0)
    # Tolerances are four standard errors at N = 20,000.
    assert x.var() == pytest.approx(2, abs=4 * 2 * np.sqrt(2 / N))
    assert np.corrcoef(z, w)[0, 1] == pytest.approx(0, abs=4 / np.sqrt(N))
    assert (z - x / 2).var() == pytest.approx(0.5, abs=4 * 0.5 * np.sqrt(2 / N))
    assert ((x > 0) == y).mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / N))


def test_swiss_roll_geometry():
    adata = noisy_swiss_roll(N, standardize=False, seed=1)
    x, t, length = adata.obsm["x"], adata.obs["t"].to_numpy(), adata.obs["length"].to_numpy()
    np.testing.assert_allclose(np.hypot(x[:, 0], x[:, 2]), t, rtol=1e-5)
    np.testing.assert_allclose(x[:, 0] / t, np.cos(t), atol=1e-5)
    np.testing.assert_allclose(x[:, 1], length, rtol=1e-5)
    assert t.min() >= 1.5 * np.pi and t.max() <= 4.5 * np.pi
    assert t.mean() == pytest.approx(3 * np.pi, abs=4 * 3 * np.pi / np.sqrt(12 * N))
    assert length.min() >= 0 and length.max() <= 21
    np.testing.assert_array_equal(adata.obs["condition_clean"].to_numpy() == "1", length > 10.5)
    np.testing.assert_array_equal(adata.obsm["plane"], x[:, [0, 2]])


def test_swiss_roll_is_standardised():
    adata = noisy_swiss_roll(N)
    np.testing.assert_allclose(adata.obsm["x"].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(adata.obsm["x"].std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(adata.obsm["plane"], adata.obsm["x"][:, [0, 2]])


@pytest.mark.parametrize("flip", [0.0, 0.3, 1.0])
def test_swiss_roll_labels_are_flipped_at_the_rate(flip):
    obs = noisy_swiss_roll(N, flip=flip).obs
    flipped = (obs["condition"] != obs["condition_clean"]).to_numpy()
    for clean in ["0", "1"]:
        among = flipped[obs["condition_clean"] == clean]
        assert among.mean() == pytest.approx(flip, abs=4 * np.sqrt(flip * (1 - flip) / len(among)))


def test_swiss_roll_label_information():
    obs = noisy_swiss_roll(N, flip=0.3).obs
    joint = obs.groupby(["condition", "condition_clean"], observed=True).size().to_numpy() / N
    information = 2 * np.log(2) - entropy(joint)
    assert information == pytest.approx(0.0823, abs=0.01)


def test_swiss_roll_noise_has_its_scale():
    still = noisy_swiss_roll(N, standardize=False).obsm["x"]
    shaken = noisy_swiss_roll(N, noise=0.5, standardize=False).obsm["x"]
    np.testing.assert_allclose((shaken - still).std(axis=0), 0.5, rtol=0.03)


@pytest.mark.parametrize("simulate", [parametric_model, noisy_swiss_roll])
def test_tensor_simulators_repeat_for_a_seed(simulate):
    first, again, other = simulate(100, seed=3), simulate(100, seed=3), simulate(100, seed=4)
    np.testing.assert_array_equal(first.obsm["x"], again.obsm["x"])
    assert first.obs.equals(again.obs)
    assert not np.array_equal(first.obsm["x"], other.obsm["x"])


def test_counts_are_sparse_counts_without_empty_cells():
    adata = simulate_counts(500, 200, library_size=1.0, dropout=0.5)
    assert sparse.isspmatrix_csr(adata.X)
    assert adata.X.dtype == np.float32
    assert (adata.X.data == np.round(adata.X.data)).all() and adata.X.data.min() >= 1
    assert np.asarray(adata.X.sum(axis=1)).min() >= 1
    assert adata.X.has_sorted_indices and adata.X.has_canonical_format


def test_counts_repeat_for_a_seed_bit_for_bit():
    first, again, other = (simulate_counts(300, 100, n_batches=2, seed=seed) for seed in (5, 5, 6))
    for part in ["data", "indices", "indptr"]:
        np.testing.assert_array_equal(getattr(first.X, part), getattr(again.X, part))
    assert first.obs.equals(again.obs) and first.var.equals(again.var)
    assert not np.array_equal(first.X.toarray(), other.X.toarray())


def test_condition_effect_is_on_the_known_genes():
    # 10,000 x 500 entries take two blocks, so this also checks that blocks join up with their labels.
    adata = simulate_counts(10_000, 500, type_specific=0.0, response_spread=0.0, seed=1)
    found, truth = log_fold_change(adata), adata.var["effect_treated_1"].to_numpy()
    well_seen = np.asarray(adata.X.sum(axis=0)).ravel() > 2000
    on = adata.var["is_effect"].to_numpy()
    assert on.sum() == 50
    np.testing.assert_array_equal(on, truth != 0)
    np.testing.assert_array_equal(adata.varm["effect_treated_1"], np.repeat(truth[:, None], 4, axis=1))
    assert np.abs(truth[on]).min() >= 0.5 and np.abs(truth[on]).max() <= 1.5
    assert (on & well_seen).sum() > 20
    np.testing.assert_allclose(found[on & well_seen], truth[on & well_seen], atol=0.25)
    assert np.abs(found[~on & well_seen]).max() < 0.25


def test_type_specific_effects_are_found_in_their_type():
    adata = simulate_counts(10_000, 300, n_types=2, type_specific=0.6, response_spread=0.0, seed=2)
    effects = adata.varm["effect_treated_1"]
    np.testing.assert_allclose(adata.var["effect_treated_1"], effects.mean(axis=1))
    on = adata.var["is_effect"].to_numpy()
    assert np.abs(effects[on, 0] - effects[on, 1]).mean() > 0.3
    for t, name in enumerate(adata.obs["cell_type"].cat.categories):
        part = adata[adata.obs["cell_type"] == name]
        well_seen = on & (np.asarray(part.X.sum(axis=0)).ravel() > 2000)
        assert well_seen.sum() > 10
        np.testing.assert_allclose(log_fold_change(part)[well_seen], effects[well_seen, t], atol=0.3)


@pytest.mark.parametrize(("share", "correlation"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)])
def test_type_specific_share_sets_how_alike_the_types_respond(share, correlation):
    adata = simulate_counts(50, 2000, n_types=2, n_effect_genes=2000, type_specific=share, effect_size=2.0)
    effects = adata.varm["effect_treated_1"]
    assert np.corrcoef(effects.T)[0, 1] == pytest.approx(correlation, abs=4 / np.sqrt(2000))
    assert np.abs(effects).max() <= 3.0


def test_types_are_the_same_in_every_condition():
    adata = simulate_counts(10_000, 200, effect_size=0.0, seed=3)
    for name in adata.obs["cell_type"].cat.categories:
        part = adata[adata.obs["cell_type"] == name]
        well_seen = np.asarray(part.X.sum(axis=0)).ravel() > 2000
        assert np.abs(log_fold_change(part)[well_seen]).max() < 0.2
    # Different types differ by far more, or the check above would mean little.
    first, second = (log_profile(adata[adata.obs["cell_type"] == name]) for name in ["type_0", "type_1"])
    assert np.abs(first - second).max() > 1.0


def test_each_treatment_has_its_own_genes():
    adata = simulate_counts(300, 200, n_conditions=3, n_effect_genes=20)
    assert list(adata.obs["condition"].cat.categories) == ["control", "treated_1", "treated_2"]
    on = {name: set(np.flatnonzero(adata.var[f"effect_{name}"])) for name in ["treated_1", "treated_2"]}
    assert len(on["treated_1"]) == len(on["treated_2"]) == 20
    assert on["treated_1"] != on["treated_2"]
    assert set(np.flatnonzero(adata.var["is_effect"])) == on["treated_1"] | on["treated_2"]
    assert "effect_control" not in adata.var


def test_sizes_and_proportions_are_met():
    proportions = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    adata = simulate_counts(1000, 50, n_types=3, condition_sizes=[0.4, 0.6], type_proportions=proportions)
    table = adata.obs.groupby(["condition", "cell_type"], observed=True).size().to_numpy().reshape(2, 3)
    np.testing.assert_array_equal(table, [[280, 80, 40], [60, 120, 420]])
    assert adata.obs["condition"].iloc[:100].nunique() == 2


def test_response_has_its_mean_and_spread_and_drives_the_effect():
    adata = simulate_counts(8000, 200, type_specific=0.0, response_spread=0.5, seed=1)
    treated = adata[adata.obs["condition"] == "treated_1"]
    response = treated.obs["response"].to_numpy()
    assert (adata.obs["response"][adata.obs["condition"] == "control"] == 0).all()
    assert response.mean() == pytest.approx(1, abs=0.04)
    assert response.std() == pytest.approx(0.5, abs=0.04)
    rising = treated.var["effect_treated_1"].to_numpy() > 0
    share = np.asarray(treated.X[:, rising].sum(axis=1)).ravel() / np.asarray(treated.X.sum(axis=1)).ravel()
    assert np.corrcoef(response, share)[0, 1] > 0.5


def test_spread_of_zero_makes_all_responses_one():
    adata = simulate_counts(200, 60, response_spread=0.0)
    np.testing.assert_array_equal(adata.obs["response"] == 1, adata.obs["condition"] == "treated_1")


@pytest.mark.parametrize("dispersion", [0.0, 0.5])
def test_counts_have_the_variance_of_the_negative_binomial(dispersion):
    adata = simulate_counts(
        6000, 100, n_types=1, n_conditions=1, library_spread=0.0, dispersion=dispersion, library_size=3000.0
    )
    x = adata.X.toarray().astype(np.float64)
    mean = x.mean(axis=0)
    excess = (x.var(axis=0) - mean) / mean**2
    assert np.median(excess[mean > 5]) == pytest.approx(dispersion, abs=0.02)
    assert x.sum(axis=1).mean() == pytest.approx(3000, rel=0.02)


def test_library_size_is_the_median_and_spreads_as_told():
    adata = simulate_counts(5000, 200, n_effect_genes=0, dispersion=0.0, library_size=1500.0, library_spread=0.4)
    total = np.asarray(adata.X.sum(axis=1)).ravel()
    assert np.median(total) == pytest.approx(1500, rel=0.03)
    assert np.log(total).std() == pytest.approx(0.4, abs=0.02)


def test_dropout_removes_its_share_of_the_counts_and_changes_no_other():
    full = simulate_counts(1000, 200).X.toarray()
    thin = simulate_counts(1000, 200, dropout=0.3).X.toarray()
    kept = thin > 0
    np.testing.assert_array_equal(thin[kept], full[kept])
    assert kept.sum() / (full > 0).sum() == pytest.approx(0.7, abs=0.01)


def test_batches_shift_genes_and_are_spread_over_conditions():
    adata = simulate_counts(10_000, 200, n_batches=2, batch_effect=0.3, n_effect_genes=0, seed=1)
    first, second = (adata[adata.obs["batch"] == name] for name in ["batch_0", "batch_1"])
    assert first.n_obs == second.n_obs == 5000
    well_seen = np.asarray(adata.X.sum(axis=0)).ravel() > 2000
    shift = (log_profile(first) - log_profile(second))[well_seen]
    assert shift.std() == pytest.approx(0.3 * np.sqrt(2), rel=0.2)
    assert (first.obs["condition"] == "control").mean() == pytest.approx(0.5, abs=0.03)


def test_donors_shift_genes_and_respond_each_in_their_way():
    how = {"n_types": 1, "n_effect_genes": 0, "dispersion": 0.0, "library_size": 20_000, "library_spread": 0.0}
    adata = simulate_counts(3000, 200, n_donors=4, donor_effect=0.4, sample_effect=0.2, seed=1, **how)
    assert adata.obs.groupby(["donor", "condition"], observed=True).size().min() > 300
    profiles = {
        key: log_profile(adata[rows])
        for key, rows in adata.obs.groupby(["donor", "condition"], observed=True).indices.items()
    }
    donors = list(adata.obs["donor"].cat.categories)
    between = np.stack([profiles[donor, "control"] for donor in donors]).std(0, ddof=1)
    assert np.sqrt((between**2).mean()) == pytest.approx(np.hypot(0.4, 0.2), rel=0.15)
    response = np.stack([profiles[donor, "treated_1"] - profiles[donor, "control"] for donor in donors])
    assert response.std() == pytest.approx(0.2 * np.sqrt(2), rel=0.15)
    assert abs(np.corrcoef(response)[np.triu_indices(4, 1)]).max() < 0.3
    assert "donor" not in simulate_counts(50).obs


def test_one_batch_has_no_shift():
    with_shift, without = (simulate_counts(200, 60, batch_effect=size) for size in (0.5, 0.0))
    assert with_shift.obs["batch"].unique().tolist() == ["batch_0"]
    assert (with_shift.X != without.X).nnz == 0


def test_counts_survive_an_h5ad_file(tmp_path):
    adata = simulate_counts(100, 60)
    adata.write_h5ad(tmp_path / "counts.h5ad")
    back = anndata.read_h5ad(tmp_path / "counts.h5ad")
    assert (back.X != adata.X).nnz == 0
    assert back.uns["simulation"]["seed"] == 0
    np.testing.assert_array_equal(back.uns["simulation"]["type_proportions"], np.full((2, 4), 0.25))
    np.testing.assert_array_equal(back.varm["effect_treated_1"], adata.varm["effect_treated_1"])


@pytest.mark.parametrize(
    ("simulate", "arguments", "message"),
    [
        (parametric_model, {"n": 0}, "n is 0"),
        (noisy_swiss_roll, {"n": 1}, "n is 1"),
        (noisy_swiss_roll, {"flip": 1.2}, "flip is 1.2"),
        (noisy_swiss_roll, {"noise": -1}, "noise is -1"),
        (simulate_counts, {"n_cells": 0}, "n_cells is 0"),
        (simulate_counts, {"n_genes": 0}, "n_genes is 0"),
        (simulate_counts, {"n_types": 0}, "n_types is 0"),
        (simulate_counts, {"n_conditions": 0}, "n_conditions is 0"),
        (simulate_counts, {"n_batches": 0}, "n_batches is 0"),
        (simulate_counts, {"effect_size": -1.0}, "effect_size is -1.0"),
        (simulate_counts, {"response_spread": float("nan")}, "response_spread is nan"),
        (simulate_counts, {"dispersion": -0.1}, "dispersion is -0.1"),
        (simulate_counts, {"library_spread": float("inf")}, "library_spread is inf"),
        (simulate_counts, {"batch_effect": -1}, "batch_effect is -1"),
        (simulate_counts, {"type_specific": 2}, "type_specific is 2"),
        (simulate_counts, {"dropout": 1.0}, "dropout is 1.0"),
        (simulate_counts, {"library_size": 0}, "library_size is 0"),
        (simulate_counts, {"n_genes": 20}, "n_effect_genes is 50"),
        (simulate_counts, {"condition_sizes": [1.0]}, r"condition_sizes has shape \(1,\)"),
        (simulate_counts, {"condition_sizes": [0.5, 0.6]}, "condition_sizes is .* sum to 1"),
        (simulate_counts, {"condition_sizes": [1.5, -0.5]}, "at least 0"),
        (simulate_counts, {"type_proportions": [0.5, 0.5]}, "type_proportions has shape"),
    ],
)
def test_bad_arguments_are_named(simulate, arguments, message):
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)
