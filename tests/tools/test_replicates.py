"""The test over replicates: calibrated, by hand on sums, and the simulated genes among donors that differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scvi
from anndata import AnnData
from scipy.stats import hmean, ttest_1samp, ttest_ind

from discovr_sc import CVAE, DISCOVR, HCSVAE, data
from discovr_sc.tools.differential import draw_counts
from discovr_sc.tools.replicates import Replicates, log2_per_million, moderated_t


def test_moderated_t_is_calibrated_and_tames_small_variances():
    rng = np.random.default_rng(0)
    # variances from the prior that the test assumes, a scaled inverse chi-squared; and all of them equal
    for scale in (np.sqrt(4 / rng.chisquare(4, 4000)), np.ones(4000)):
        differences = rng.normal(0, scale, (8, 4000))
        test = moderated_t(differences)
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


def test_two_groups_of_replicates():
    rng = np.random.default_rng(0)
    scale = np.sqrt(4 / rng.chisquare(4, 4000))
    values, others = rng.normal(0, scale, (5, 4000)), rng.normal(0, scale, (4, 4000))
    test = moderated_t(values, others)
    assert abs((test.p_value < 0.05).mean() - 0.05) < 0.015
    # Smyth's posterior variance, (d0 s0^2 + d s^2) / (d0 + d): linear in the pooled variance
    posterior = ((values.mean(0) - others.mean(0)) / test.t) ** 2 / (1 / 5 + 1 / 4)
    pooled = (4 * values.var(0, ddof=1) + 3 * others.var(0, ddof=1)) / 7
    prior_part = posterior - 7 / test.df * pooled
    np.testing.assert_allclose(prior_part, prior_part[0], rtol=1e-6)
    assert prior_part[0] * test.df / (test.df - 7) == pytest.approx(1, rel=0.1)  # s0^2
    # with one variance for all genes it is Student's test with that variance
    equal = moderated_t(values / scale, others / scale)
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
    replicates = Replicates(adata, "donor", [np.flatnonzero(part), np.flatnonzero(~part)])
    test = replicates.test(lambda cells: draw_counts(model, adata, cells))
    assert (test["p_value"].dropna() < 0.05).mean() < 0.1


def test_genes_without_counts_are_not_called_where_totals_differ():
    rng = np.random.default_rng(0)
    adata = AnnData(np.zeros((600, 400)), obs=pd.DataFrame({"donor": [f"d{i % 6}" for i in range(600)]}))
    rates = np.concatenate([np.full(300, 1e-3), rng.uniform(1, 5, 100)])
    replicates = Replicates(adata, "donor", [np.arange(540), np.arange(540, 600)])
    test = replicates.test(lambda cells: [rng.poisson(rates, (5, len(cells), 400)).astype(np.float32)])
    assert test["t"].iloc[:300].isna().all() and test["t"].iloc[300:].notna().all()
    assert (test["p_value"].iloc[300:] < 0.05).mean() < 0.12
    # nor does a gene with hardly any counts fall because there are more cells
    few, many = np.array([[[0.0, 1e4]]]), np.array([[[0.0, 1e6]]])
    totals = np.array([[1e4, 1e6]])
    np.testing.assert_allclose(log2_per_million(few, totals)[..., 0], log2_per_million(many, totals)[..., 0], atol=1e-3)


def test_drawn_counts_are_summed_by_donor(model):
    cells = [np.flatnonzero(model.adata.obs["condition"] == name) for name in ("treated_1", "control")]
    replicates = Replicates(model.adata, "donor", cells)
    x = model.adata.to_df().to_numpy()

    def draw(rows):
        """The measured counts, twice those in the second draw; 64 cells at a time."""
        for start in range(0, len(rows), 64):
            yield np.stack([x[rows[start : start + 64]], 2 * x[rows[start : start + 64]]])

    for which, rows in enumerate(cells):
        sums = replicates._sums(draw, which)
        donors = model.adata.obs["donor"].to_numpy()
        for i, name in enumerate(replicates.names[which]):
            expected = x[rows[donors[rows] == name]].sum(0)
            np.testing.assert_allclose(sums[:, i], [expected, 2 * expected], rtol=1e-6)


def test_same_seed_same_test(model):
    first, again, other = (
        model.differential_expression(replicate_key="donor", n_samples=50, seed=seed).set_index("gene")
        for seed in (0, 0, 1)
    )
    pd.testing.assert_series_equal(first["t"], again["t"])
    assert not first["t"].equals(other["t"])


@pytest.mark.parametrize("method", [CVAE, HCSVAE])
def test_baselines_have_it_too(model, method):
    adata = model.adata.copy()
    method.setup_anndata(adata, condition_key="condition")
    baseline = method(adata, n_hidden=8)
    baseline.train(max_epochs=1, enable_progress_bar=False)
    table = baseline.differential_expression(replicate_key="donor", n_samples=50)
    assert table["t"].notna().any()


def test_means_of_degrees_of_freedom():
    """Some draws have infinitely many: what scipy makes of them is not documented."""
    assert hmean([2.0, 4.0]) == pytest.approx(8 / 3)
    assert hmean([2.0, np.inf]) == 4.0
    assert hmean([np.inf, np.inf]) == np.inf


def test_wrong_replicates_are_named(model):
    with pytest.raises(KeyError, match="replicate_key.*'patient'"):
        model.differential_expression(replicate_key="patient")
    with pytest.raises(ValueError, match="of the values of replicate_key 'condition', 1 and 1 have cells of the two"):
        model.differential_expression(replicate_key="condition")
    with pytest.raises(TypeError, match="replicate_key=.*one column"):
        model.differential_expression(replicate_key=["donor", "batch"])
    with pytest.raises(ValueError, match="leave out batch_correction=True"):
        model.differential_expression(replicate_key="donor", batch_correction=True)
    with pytest.raises(ValueError, match="replicate_key='donor' is for mode='observed'"):
        model.differential_expression(replicate_key="donor", mode="counterfactual")
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
