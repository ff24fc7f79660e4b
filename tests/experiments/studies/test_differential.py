"""The judge against known answers, and the study on simulated cells in the place of Kang's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma, polygamma

from discovr_sc import data
from discovr_sc.experiments import STUDIES, run_study
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import run_row
from discovr_sc.experiments.engine.study import Preset, Row
from discovr_sc.experiments.studies import differential

KANG = Path(os.environ.get("DISCOVR_SC_DATA", "")) / "kang" / "kang_ifnb_13999.h5ad"
RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def cells():
    adata = data.simulate_counts(n_cells=800, n_genes=60, n_types=2, n_effect_genes=15, n_batches=8, seed=1)
    adata.obs["stim"] = adata.obs["condition"].cat.rename_categories({"control": "CTRL", "treated_1": "STIM"})
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories(["CD14+ Monocytes", "B cells"])
    adata.obs["donor"] = adata.obs["batch"].astype(str)
    return adata


def test_the_judge_finds_the_simulated_genes(cells):
    part = cells[cells.obs["cell_type"] == "B cells"]
    judge = differential.paired_pseudobulk_test(part, "stim", "donor", "CTRL", "STIM")
    truth = pd.Series(cells.varm["effect_treated_1"][:, 1] / np.log(2), index=cells.var_names).loc[judge.index]
    assert np.corrcoef(judge["lfc"], truth)[0, 1] > 0.95
    assert (truth.loc[judge.nsmallest(8, "rank").index] != 0).all()
    with pytest.raises(ValueError, match="1 donors have cells of both conditions"):
        one = part[part.obs["donor"] == "batch_0"]
        differential.paired_pseudobulk_test(one, "stim", "donor", "CTRL", "STIM")


def test_squeezed_variances_equal_the_closed_form():
    """Log variances with the mean and spread that a prior of 6 degrees of freedom and scale 2 gives them."""
    df, prior_df, scale = 7, 6.0, 2.0
    shape = np.linspace(-1, 1, 101)
    spread = np.sqrt((polygamma(1, df / 2) + polygamma(1, prior_df / 2)) / shape.var(ddof=1))
    mean = np.log(scale) + digamma(df / 2) - np.log(df / 2) - digamma(prior_df / 2) + np.log(prior_df / 2)
    variance = np.exp(mean + spread * shape)
    squeezed, total = differential.squeezed_variance(variance, df)
    assert total == pytest.approx(df + prior_df)
    np.testing.assert_allclose(squeezed, (prior_df * scale + df * variance) / (prior_df + df), rtol=1e-6)
    same, total = differential.squeezed_variance(np.full(50, 3.0), df)
    assert np.isinf(total)
    np.testing.assert_allclose(same, 3.0 * df / 2 / np.exp(digamma(df / 2)))


@pytest.mark.skipif(not KANG.exists(), reason="needs Kang's cells; name their folder in DISCOVR_SC_DATA")
@pytest.mark.parametrize("cell_type", ["B cells", "CD14+ Monocytes"])
def test_the_judge_gives_the_committed_numbers(cell_type):
    study = STUDIES["differential-expression"]
    row = Row(f"type={cell_type}", "full", "wilcoxon", 0)
    values, _ = run_row(study, row)
    table = Results.open(study, RESULTS).table
    committed = table[(table[list(row._fields)] == list(row)).all(axis=1)].set_index("metric")["value"].to_dict()
    for metric in ("overlap_top50", "spearman_lfc", "n_tested", "n_called", "false_calls"):
        assert values[metric] == pytest.approx(committed[metric], abs=1e-12)


def test_agreement_with_the_judge():
    genes = [f"g{i}" for i in range(200)]
    judge = pd.DataFrame({"rank": np.arange(200) + 1, "lfc": np.linspace(3, -3, 200)}, index=genes)
    same = differential.compare(judge.assign(called=True), judge)
    assert (same["overlap_top50"], same["spearman_lfc"], same["n_called"]) == (1.0, pytest.approx(1.0), 200.0)
    reverse = judge.assign(rank=judge["rank"].to_numpy()[::-1], lfc=-judge["lfc"], called=False)
    assert differential.compare(reverse, judge)["overlap_top50"] == 0
    assert differential.compare(reverse, judge)["spearman_lfc"] == pytest.approx(-1.0)


def test_the_study_runs_all_methods(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(differential, "load_kang", lambda: cells)
    study = STUDIES["differential-expression"]
    monkeypatch.setitem(
        study.presets, "tiny", Preset(n_train=None, n_eval=None, max_epochs=20, patience=20, batch_size=128)
    )
    results = run_study(study, tmp_path, preset="tiny", n_seeds=1, variants=["type=B cells"], jobs=1)
    table = results.table.pivot(index="method", columns="metric", values="value")
    assert set(table.index) == set(study.methods)
    assert table.loc["wilcoxon", "spearman_lfc"] > 0.8
    assert (table["false_calls"] <= 0.05).all()
