"""The study of an added condition, on few cells and with few epochs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from discovr_sc.experiments import STUDIES, Preset
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.runner import run_study
from discovr_sc.experiments.studies import new_condition
from discovr_sc.tools import query_data

TINY = Preset(n_train=200, n_eval=80, max_epochs=2, patience=2, batch_size=64)


def test_the_new_condition_is_rare_in_training_and_half_of_what_is_scored():
    task = new_condition.make_growing(TINY, seed=1)
    assert (task.train.obs["condition"] == "treated_2").sum() == 200
    assert (task.train.obs["condition"] != "treated_2").sum() == TINY.n_train
    assert (task.evaluation.obs["condition"] == "treated_2").sum() == TINY.n_eval // 2
    assert task.evaluation.n_obs == TINY.n_eval
    assert not set(task.train.obs_names) & set(task.evaluation.obs_names)


def test_both_ways_know_all_conditions_and_are_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(query_data, "CELLS_TO_SEE", 1000)
    study = replace(STUDIES["new-condition"], presets={"tiny": TINY})
    results = run_study(study, tmp_path, n_seeds=1, jobs=1)
    table = results.table.pivot(index="method", columns="metric", values="value")
    assert np.isfinite(table.loc[["added", "from-start"], list(study.headline)].to_numpy()).all()
    write_report(results, "tiny")
    task = study.make_task(TINY, 1)
    for fit in (new_condition.fit_added, new_condition.fit_whole):
        assert list(fit(task, TINY, 1).conditions) == ["control", "treated_1", "treated_2"]
