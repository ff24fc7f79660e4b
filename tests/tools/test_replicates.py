"""The test over replicates: calibrated, of sums of the measured counts, and it finds simulated genes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from scipy.stats import false_discovery_control, ttest_1samp, ttest_ind

from discovr_sc import CVAE, DISCOVR, HCSVAE, data
from discovr_sc.tools.replicates import Replicates, Side, log2_per_million, moderated_t


def exact(values: np.ndarray) -> Side:
    """Values without noise of counting."""
    return Side(values, np.zeros_like(values))


def test_moderated_t_is_calibrated_and_tames_small_variances():
    rng = np.random.default_rng(0)
    # variances from the prior that the test assumes, a scaled inverse chi-squared; and all of them equal
    for scale in (np.sqrt(4 / rng.chisquare(4, 4000)), np.ones(4000)):
        differences = rng.normal(0, scale, (8, 4000))
        test = moderated_t(exact(differences))
        assert abs((test.p_value < 0.05).mean() - 0.05) < 0.015
        student = np.abs(ttest_1samp(differences, 0).statistic)
        smallest = differences.var(0).argsort()[:100]
        assert (np.abs(test.t[smallest]) < student[smallest]).all()


@pytest.fixture(scope="module")
def model():
    adata = data.simulate_counts(
        n_cells=1000,
        n_genes=300,
        n_types=2,
        n_effect_genes=20,
        n_batches=6,
        response_spread=0.1,
        library_size=6000,
        seed=2,
    )
    adata.obs["donor"] = adata.obs["batch"]
    DISCOVR.setup_anndata(adata, condition_key="condition")
    scvi.settings.seed = 0  # the model must not hang on the tests before it
    model = DISCOVR(adata, n_hidden=32, likelihood="nb")
    model.train(max_epochs=150, batch_size=128, enable_progress_bar=False)
    return model


def test_values_of_few_counts_weigh_less():
    rng = np.random.default_rng(0)
    noise = np.array([0.1, 0.1, 0.1, 0.1, 0.1, 8.0])[:, None] * np.ones(3000)
    values = rng.normal(0, np.sqrt(noise + 0.1))
    weighted = moderated_t(Side(values, noise))
    assert abs((weighted.p_value < 0.05).mean() - 0.05) < 0.015
    plain = moderated_t(exact(values))
    assert weighted.effect.std() < 0.6 * plain.effect.std()
    changed = moderated_t(Side(values + 1, noise)), moderated_t(exact(values + 1))
    assert (changed[0].p_value < 0.01).mean() > 2 * (changed[1].p_value < 0.01).mean()


def test_two_groups_of_replicates():
    rng = np.random.default_rng(0)
    scale = np.sqrt(4 / rng.chisquare(4, 4000))
    values, others = rng.normal(0, scale, (5, 4000)), rng.normal(0, scale, (4, 4000))
    test = moderated_t(exact(values), exact(others))
    assert abs((test.p_value < 0.05).mean() - 0.05) < 0.015
    # Smyth's posterior variance, (d0 s0^2 + d s^2) / (d0 + d): linear in the pooled variance
    posterior = ((values.mean(0) - others.mean(0)) / test.t) ** 2 / (1 / 5 + 1 / 4)
    pooled = (4 * values.var(0, ddof=1) + 3 * others.var(0, ddof=1)) / 7
    prior_part = posterior - 7 / test.df * pooled
    np.testing.assert_allclose(prior_part, prior_part[0], rtol=1e-6)
    assert prior_part[0] * test.df / (test.df - 7) == pytest.approx(1, rel=0.1)  # s0^2
    # with one variance for all genes it is Student's test with that variance
    equal = moderated_t(exact(values / scale), exact(others / scale))
    student = ttest_ind(values / scale, others / scale).statistic
    assert np.corrcoef(equal.t, student)[0, 1] > 0.95


def test_simulated_genes_are_found_over_donors(model):
    table = model.differential_expression(groupby="cell_type", replicate_key="donor", n_samples=200)
    for i, (_, part) in enumerate(table.groupby("group")):
        assert part["t"].abs().fillna(0).is_monotonic_decreasing
        assert set(part["n_replicates"]) == {6}
        part = part.set_index("gene").loc[model.adata.var_names]
        truth = model.adata.varm["effect_treated_1"][:, i]
        t = part["t"].fillna(0).to_numpy()
        assert np.corrcoef(t, truth)[0, 1] > 0.6
        assert (truth[np.abs(t).argsort()[-8:]] != 0).all()
        called = part["is_de"].to_numpy()
        assert called.any()
        assert (truth[called] != 0).mean() > 0.8
    plain = model.differential_expression(groupby="cell_type", n_samples=200)
    assert "t" not in plain
    same = plain.merge(table, on=["group", "gene"])
    np.testing.assert_array_equal(same["lfc_x"], same["lfc_y"])


def test_patients_of_one_condition_each_are_compared(model):
    adata = model.adata.copy()
    adata.obs["patient"] = adata.obs["condition"].astype(str) + adata.obs["donor"].astype(str)
    table = model.differential_expression(adata, replicate_key="patient", n_samples=200).set_index("gene")
    assert set(table["n_replicates"]) == {12}
    truth = model.adata.varm["effect_treated_1"].mean(1)
    assert np.corrcoef(table["t"].fillna(0).loc[adata.var_names], truth)[0, 1] > 0.6
    assert (truth[table["is_de"].loc[adata.var_names]] != 0).mean() > 0.8


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_random_parts_of_a_condition_differ_in_no_gene(model, share):
    """Not even where one has ten times the counts of the other."""
    adata = model.adata[model.adata.obs["condition"] == "control"].copy()
    part = np.random.default_rng(0).random(adata.n_obs) < share
    test = Replicates(adata, "donor", [np.flatnonzero(part), np.flatnonzero(~part)]).test(adata.X)
    assert 0.01 < (test["p_value"].dropna() < 0.05).mean() < 0.09
    assert not (test["p_adjusted"] < 0.05).any()


def test_genes_without_counts_are_not_called_where_totals_differ():
    rng = np.random.default_rng(0)
    rates = np.concatenate([np.full(300, 1e-3), rng.uniform(1, 5, 100)])
    adata = AnnData(
        rng.poisson(rates, (600, 400)).astype(np.float32),
        obs=pd.DataFrame({"donor": [f"d{i % 6}" for i in range(600)]}),
    )
    test = Replicates(adata, "donor", [np.arange(540), np.arange(540, 600)]).test(adata.X)
    assert test["t"].iloc[:300].isna().all() and test["t"].iloc[300:].notna().all()
    assert (test["p_value"].iloc[300:] < 0.05).mean() < 0.12
    # nor does a gene with hardly any counts fall because there are more cells
    few, many = log2_per_million(np.array([[0.0, 1e4], [0.0, 1e6]]))
    np.testing.assert_allclose(few[0], many[0], atol=1e-3)
    nothing = Replicates(adata, "donor", [np.arange(540), np.arange(540, 600)]).test(adata.X[:, :300])
    assert nothing["p_value"].isna().all()


def test_a_few_strong_genes_do_not_move_the_others():
    """Their counts take a share of the total, which others seem to lose."""
    rng = np.random.default_rng(0)
    rates = np.full((600, 200), 2.0)
    rates[:300, :10] *= 30
    adata = AnnData(rng.poisson(rates).astype(float), obs=pd.DataFrame({"donor": [f"d{i % 6}" for i in range(600)]}))
    test = Replicates(adata, "donor", [np.arange(300), np.arange(300, 600)]).test(adata.X)
    assert (test["p_adjusted"].iloc[:10] < 1e-3).all()
    assert np.log2(30) == pytest.approx(test["lfc_replicates"].iloc[:10].mean(), abs=0.1)
    assert (test["p_adjusted"].iloc[10:] < 0.05).sum() <= 2


@pytest.mark.parametrize("dense", [False, True])
def test_measured_counts_are_summed_by_donor(model, dense):
    cells = [np.flatnonzero(model.adata.obs["condition"] == name) for name in ("treated_1", "control")]
    x = model.adata.to_df().to_numpy()
    sums = Replicates(model.adata, "donor", cells).pseudobulks(x if dense else model.adata.X)
    donors = model.adata.obs["donor"].to_numpy()
    for rows, part in zip(cells, sums, strict=True):
        for name, found in zip(np.unique(donors), part, strict=True):
            np.testing.assert_allclose(found, x[rows[donors[rows] == name]].sum(0), rtol=1e-6)


def test_the_test_is_of_the_measured_counts_and_the_effects_of_the_model(model):
    first, other, same_cells = (
        model.differential_expression(replicate_key="donor", n_samples=50, **how).set_index("gene")
        for how in ({}, {"seed": 1, "batch_correction": True}, {"mode": "counterfactual", "by": "prior"})
    )
    for table in (other, same_cells):
        pd.testing.assert_series_equal(first["t"], table["t"].loc[first.index])
        assert not first["lfc"].equals(table["lfc"].loc[first.index])
    tested = first[first["p_value"].notna()]
    np.testing.assert_allclose(tested["p_adjusted"], false_discovery_control(tested["p_value"]))
    assert (first["is_de"] == (first["p_adjusted"] <= 0.05)).all()
    assert set(same_cells["n_target"]) == {model.adata.n_obs}
    changed = first["is_de"].to_numpy()
    assert np.corrcoef(first["lfc"][changed], first["lfc_replicates"][changed])[0, 1] > 0.8


def test_a_layer_of_counts_is_what_is_tested(model):
    adata = model.adata.copy()
    adata.layers["counts"], adata.X = adata.X, (adata.X > 0).astype(np.float32)
    DISCOVR.setup_anndata(adata, condition_key="condition", layer="counts")
    other = DISCOVR(adata, n_hidden=8)
    other.train(max_epochs=1, enable_progress_bar=False)
    tables = (m.differential_expression(replicate_key="donor", n_samples=50).set_index("gene") for m in (model, other))
    one, two = tables
    pd.testing.assert_series_equal(one["t"], two["t"].loc[one.index])


@pytest.mark.parametrize("method", [CVAE, HCSVAE])
def test_baselines_have_it_too(model, method):
    adata = model.adata.copy()
    method.setup_anndata(adata, condition_key="condition")
    baseline = method(adata, n_hidden=8)
    baseline.train(max_epochs=1, enable_progress_bar=False)
    table = baseline.differential_expression(replicate_key="donor", n_samples=50)
    assert table["t"].notna().any()


def test_wrong_replicates_are_named(model):
    with pytest.raises(KeyError, match="replicate_key.*'patient'"):
        model.differential_expression(replicate_key="patient")
    with pytest.raises(ValueError, match="of the values of replicate_key 'condition', 1 and 1 have cells of the two"):
        model.differential_expression(replicate_key="condition")
    with pytest.raises(TypeError, match="replicate_key=.*one column"):
        model.differential_expression(replicate_key=["donor", "batch"])
    adata = model.adata.copy()
    adata.obs["two"] = np.where(adata.obs["donor"] == "batch_0", "a", "b")
    with pytest.raises(ValueError, match="replicate_key 'two', 2 have cells of both conditions.*at least 3"):
        model.differential_expression(adata, replicate_key="two")
    adata.obs["two_in_0"] = np.where(
        adata.obs["cell_type"] == "type_0", adata.obs["two"], adata.obs["donor"].astype(str)
    )
    with pytest.warns(UserWarning, match="group 'type_0'.*2 have cells of both.*left out"):
        table = model.differential_expression(adata, groupby="cell_type", replicate_key="two_in_0", n_samples=50)
    assert set(table["group"]) == {"type_1"}
    one_sided = (adata.obs["donor"] == "batch_0") & (adata.obs["condition"] == "control")
    adata.obs["some"] = np.where(one_sided, "only_control", adata.obs["donor"].astype(str))
    with pytest.warns(UserWarning, match="1 values of replicate_key 'some' have one condition.*only_control"):
        table = model.differential_expression(
            adata[adata.obs["some"] != "batch_0"].copy(), replicate_key="some", n_samples=50
        )
    assert set(table["n_replicates"]) == {5} and table["paired"].all()
    adata.obs["donor"] = adata.obs["donor"].astype(object)
    adata.obs.iloc[3, adata.obs.columns.get_loc("donor")] = np.nan
    with pytest.raises(ValueError, match="replicate_key 'donor' has missing values"):
        model.differential_expression(adata, replicate_key="donor")
