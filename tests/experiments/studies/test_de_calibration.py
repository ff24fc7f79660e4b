"""The study of calibration on simulated cells in the place of Kang's; scores against known answers."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from discovr_sc import data
from discovr_sc.experiments import STUDIES, run_study
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.studies import de_calibration

STUDY = STUDIES["de-calibration"]
TINY = replace(STUDY.presets["full"], n_train=1200, max_epochs=2)


@pytest.fixture
def controls(monkeypatch):
    """Cells of eight donors that do not differ in any condition."""
    adata = data.simulate_counts(2000, 100, n_types=1, n_conditions=1, n_effect_genes=0, n_donors=8, seed=1)
    adata.obs = adata.obs.drop(columns="condition").assign(stim="CTRL")
    adata.obs["cell_type"] = "B cells"
    monkeypatch.setattr(de_calibration, "load_kang", lambda: adata)
    return adata


def test_donors_are_split_in_halves_each_split_once(controls):
    task = de_calibration.make_task(TINY, 0, "B cells")
    splits = task.train.obs.filter(like="split_")
    assert splits.shape[1] == de_calibration.N_SPLITS
    by_donor = splits.groupby(task.train.obs["donor"], observed=True)
    assert (by_donor.nunique() == 1).all(axis=None)
    halves = by_donor.first() == "a"
    assert (halves.sum() == 4).all()
    assert len({frozenset([tuple(column), tuple(~column)]) for _, column in halves.items()}) == 10


def test_scores_of_known_calls():
    truth = np.r_[np.ones(10), np.zeros(90)]
    p_values = np.r_[np.full(8, 1e-6), 0.9, np.nan, 1e-6, np.full(89, 0.5)]
    table = pd.DataFrame({"p_value": p_values, "lfc": truth + 0.5})
    scores = de_calibration.against_truth(table, truth)
    assert scores["power"] == 0.8
    assert scores["false_share"] == pytest.approx(1 / 9)
    assert scores["below_0.05"] == pytest.approx(1 / 90)
    assert scores["lfc_rmse"] == pytest.approx(0.5)


def test_the_study_runs_and_draws(controls, tmp_path, monkeypatch):
    monkeypatch.setitem(STUDY.presets, "tiny", TINY)
    methods = ["discovr", "pseudobulk", "wilcoxon"]
    chosen = {"preset": "tiny", "n_seeds": 1, "methods": methods, "variants": ["null=B cells", "simulated"], "jobs": 1}
    results = run_study(STUDY, tmp_path, **chosen)
    table = results.table.pivot(index=["variant", "method"], columns="metric", values="value")
    null = table.loc["null=B cells"]
    assert null.loc[["discovr", "pseudobulk"], "below_0.05"].between(0.02, 0.08).all()
    assert null.loc["wilcoxon", "below_0.05"] > 0.2  # donors differ, and cells are not independent
    simulated = table.loc["simulated"]
    assert simulated.loc[["discovr", "pseudobulk"], "power_abundant"].between(0.05, 0.9).all()
    assert (simulated.loc[["discovr", "pseudobulk"], "false_share_abundant"] < 0.2).all()
    assert "de_calibration_qq.png" in write_report(results, "tiny")


def test_deseq2_says_what_to_install(controls, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydeseq2", None)
    with pytest.raises(ImportError, match=r"DESeq2 needs pydeseq2: pip install .*\[references\]"):
        STUDY.methods["deseq2"].fit(de_calibration.make_task(TINY, 0, "B cells"), TINY, 0)
