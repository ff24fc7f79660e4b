"""The judge against known answers, and the study on simulated cells in the place of Kang's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from discovr_sc import data
from discovr_sc.experiments import STUDIES, run_study
from discovr_sc.experiments.engine.study import Preset
from discovr_sc.experiments.studies import differential


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
        study.presets, "tiny", Preset(n_train=None, n_eval=None, max_epochs=2, patience=5, batch_size=128)
    )
    results = run_study(study, tmp_path, preset="tiny", n_seeds=1, variants=["type=B cells"], jobs=1)
    table = results.table.pivot(index="method", columns="metric", values="value")
    assert set(table.index) == set(study.methods)
    assert table.loc["wilcoxon", "spearman_lfc"] > 0.8
    assert (table["false_calls"] <= 0.05).all()
    for way in ("by_cells", "by_donors"):
        known = table[f"overlap_top50_{way}"].notna().to_dict()
        assert known == {"discovr": True, "scvi": True, "wilcoxon": False}
    assert table.loc["discovr", "overlap_top50"] == table.loc["discovr", "overlap_top50_by_donors"]
    assert table.loc["scvi", "overlap_top50"] == table.loc["scvi", "overlap_top50_by_cells"]
