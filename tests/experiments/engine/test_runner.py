"""The runner: resumes, reports, and repeats its numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from discovr_sc import cli
from discovr_sc.experiments import STUDIES, Preset, run_study
from discovr_sc.experiments.engine import runner
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.results import COLUMNS, Results
from discovr_sc.experiments.engine.runner import Row, plan_rows
from discovr_sc.experiments.engine.study import Variant
from discovr_sc.settings import COUNT_PLAN, DISCOVRSettings, paper_plan

TINY = Preset(n_train=300, n_eval=400, max_epochs=2, patience=2, batch_size=100, n_likelihood=20, n_mc_samples=5)


def tiny(name, methods=("discovr-paper", "diva", "truth")):
    study = STUDIES[name]
    chosen = {method: study.methods[method] for method in methods}
    return replace(study, presets={"tiny": TINY}, methods=chosen)


@pytest.fixture
def count_runs(monkeypatch):
    done = []
    run_row = runner.run_row

    def counted(study, row):
        done.append(row)
        return run_row(study, row)

    monkeypatch.setattr(runner, "run_row", counted)
    return done


def test_a_study_is_run_once_and_resumed(tmp_path, count_runs, monkeypatch):
    study = tiny("parametric")
    run_row, calls = runner.run_row, []

    def dies_at_the_third(study, row):
        calls.append(row)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_row(study, row)

    monkeypatch.setattr(runner, "run_row", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path, n_seeds=2, jobs=1)
    assert len(Results.open(study, tmp_path).made_by) == 2

    monkeypatch.setattr(runner, "run_row", run_row)
    count_runs.clear()
    results = run_study(study, tmp_path, n_seeds=2, jobs=1, command="test")
    assert len(count_runs) == 4  # six rows, two of them done before the stop
    count_runs.clear()
    again = run_study(study, tmp_path, n_seeds=2, jobs=1)
    assert count_runs == []
    pd.testing.assert_frame_equal(again.table, results.table)
    table = pd.read_csv(tmp_path / "parametric.csv", keep_default_na=False)
    assert list(table.columns) == COLUMNS
    assert not table.duplicated(["variant", "preset", "method", "seed", "metric"]).any()
    made = json.loads((tmp_path / "parametric.json").read_text())
    assert made["rows"]["|tiny|diva|1"]["command"] == "test"
    assert made["settings"]["presets"]["tiny"]["n_train"] == 300
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_rows_of_other_settings_are_run_anew_and_the_user_is_told(tmp_path, count_runs, capsys):
    study = tiny("parametric", methods=("diva",))
    run_study(study, tmp_path, n_seeds=1, jobs=1)
    changed = replace(study, presets={"tiny": replace(TINY, max_epochs=1)})
    count_runs.clear()
    assert "other settings" not in capsys.readouterr().out
    assert list(Results.open(changed, tmp_path).outdated) == ["|tiny|diva|0"]
    run_study(changed, tmp_path, n_seeds=1, jobs=1)
    assert len(count_runs) == 1
    assert "1 rows made with other settings than this version's, such as '|tiny|diva|0'" in capsys.readouterr().out
    assert not Results.open(changed, tmp_path).outdated


def test_outdated_rows_of_other_methods_stay_and_are_marked(tmp_path, count_runs):
    study = tiny("parametric", methods=("diva", "csvae"))
    run_study(study, tmp_path, n_seeds=2, jobs=1)
    changed = replace(study, presets={"tiny": replace(TINY, max_epochs=1)})
    results = run_study(changed, tmp_path, n_seeds=1, jobs=1, methods=["diva"])
    assert set(results.outdated) == {"|tiny|csvae|0", "|tiny|csvae|1"}
    assert list(results.means()["method"].unique()) == ["diva"]
    again = Results.open(changed, tmp_path)
    assert set(again.outdated) == set(results.outdated)
    assert set(pd.read_csv(tmp_path / "parametric.csv", keep_default_na=False)["method"]) == {"diva", "csvae"}
    lines = again.markdown("tiny").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["diva", "csvae†"]


def test_a_new_default_of_the_model_makes_rows_of_the_plain_model_stale(monkeypatch):
    plain, paper = (STUDIES["kang"].fingerprint(method, "", "full") for method in ("discovr", "discovr-paper"))
    monkeypatch.setitem(DISCOVRSettings.data_defaults["counts"], "n_components_z", 3)
    assert STUDIES["kang"].fingerprint("discovr", "", "full") != plain
    assert STUDIES["kang"].fingerprint("discovr-paper", "", "full") == paper
    monkeypatch.undo()
    monkeypatch.setitem(COUNT_PLAN, "final_decay", 0.1)
    assert STUDIES["kang"].fingerprint("discovr", "", "full") != plain


def test_one_row_gives_the_same_numbers_again():
    study = tiny("swiss-roll")
    row = Row("flip=0.3", "tiny", "discovr-paper", 3)
    (first, _), (second, _) = runner.run_row(study, row), runner.run_row(study, row)
    timings = {"seconds", "seconds_per_epoch", "inference_ms_per_batch", "peak_memory_mb"}
    assert {k: v for k, v in first.items() if k not in timings} == {k: v for k, v in second.items() if k not in timings}
    assert all(np.isfinite(value) for value in first.values())


def test_several_processes_give_what_one_gives(tmp_path):
    kwargs = {"preset": "laptop", "n_seeds": 1, "methods": ["truth", "posterior-untruncated"]}
    one = run_study(STUDIES["parametric"], tmp_path / "one", jobs=1, **kwargs)
    two = run_study(STUDIES["parametric"], tmp_path / "two", jobs=2, **kwargs)
    tables = [results.table[results.table["metric"] != "seconds"].reset_index(drop=True) for results in (one, two)]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("name", ["parametric", "swiss-roll"])
def test_report_has_tables_ranks_and_figures(tmp_path, name):
    study = tiny(name)
    results = run_study(study, tmp_path, n_seeds=2, jobs=1)
    text = write_report(results, "tiny")
    assert "| discovr-paper |" in text
    assert "Rank by closeness" in text
    costs = text.split("## Time and memory")[1]
    assert {"parametric": "(11.1) |", "swiss-roll": "(8) |"}[name] in costs.split("| diva |")[1]
    assert re.search(r"discovr-paper against diva.*: first on \d+ of 12", text)
    figures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert figures == (["parametric_posteriors.png"] if name == "parametric" else ["swiss_roll_latents.png"])
    merged = results.against_published("tiny")
    paper = merged[(merged["method"] == "diva") & (merged["metric"] == "nll")]["paper"].item()
    assert paper == {"parametric": 1.788, "swiss-roll": 3.302}[name]


def test_a_figure_is_not_replaced_by_one_of_fewer_methods(tmp_path):
    study = tiny("parametric", methods=("discovr-paper", "diva", "truth"))
    results = run_study(study, tmp_path, n_seeds=1, jobs=1)
    assert results.missing_sketches("tiny") == []
    write_report(results, "tiny")
    figure = tmp_path / "parametric_posteriors.png"
    of_all = figure.read_bytes()
    sketch = tmp_path / "parametric_sketches" / "__tiny__diva__0.npz"
    kept = sketch.rename(tmp_path / "elsewhere.npz")
    assert results.missing_sketches("tiny") == ["|tiny|diva|0"]
    assert "![posteriors](parametric_posteriors.png)" in write_report(results, "tiny")
    assert figure.read_bytes() == of_all
    figure.unlink()  # a figure of some is better than none
    write_report(results, "tiny")
    assert figure.read_bytes() != of_all
    kept.rename(sketch.with_name("|tiny|diva|0.npz"))  # as versions before this one named it
    assert results.missing_sketches("tiny") == []
    write_report(results, "tiny")
    assert figure.read_bytes() == of_all


def test_rows_of_old_code_are_made_anew():
    study = tiny("parametric", methods=("diva",))
    newer = replace(study, methods={"diva": replace(study.methods["diva"], version=1)})
    assert newer.fingerprint("diva", "", "tiny") != study.fingerprint("diva", "", "tiny")


def test_every_metric_of_the_issue_is_there():
    information = {f"{kind}_{column}" for kind in ("knn", "mine") for column in ("yz", "yw", "wz", "wz_given_y")}
    information |= {f"knn_{column}_paper" for column in ("yz", "yw", "wz", "wz_given_y")}
    shared = information | {"mig", "mic", "mig_mine", "mic_mine", "probe_z_condition", "delta_bayes_w", "delta_bayes_x"}
    shared |= {"nll", "seconds_per_epoch", "inference_ms_per_batch", "peak_memory_mb"}
    own = {
        "parametric": {"nll_excess", "kl_z", "kl_w", "wasserstein_w"},
        "swiss-roll": {"z_r2", "xhat_r2"},
    }
    for name, more in own.items():
        study = tiny(name)
        metrics, _ = runner.run_row(study, Row(next(iter(study.variants)), "tiny", "diva", 0))
        assert shared | more <= set(metrics)


def test_the_papers_adversary_keeps_its_rate_relative_to_the_models():
    """Presets of images have a learning rate of their own; rows with weights of their own, another adversary."""
    study = STUDIES["colored-mnist"]
    model = SimpleNamespace(plan_defaults_=paper_plan("colored-mnist"))
    preset = study.presets["laptop"]
    plan = runner.plan_settings(model, preset, study.methods["discovr-paper"], Variant())
    assert plan["adversary_lr"] / plan["lr"] == pytest.approx(3)
    assert "adversary_lr" not in runner.plan_settings(
        model, study.presets["full"], study.methods["discovr-paper"], Variant()
    )
    assert runner.plan_settings(model, preset, study.methods["discovr"], Variant())["n_adversary_steps"] == 1


def test_rows_are_planned_seed_by_seed():
    rows = plan_rows(STUDIES["parametric"], "laptop", 2, methods=["diva", "truth"])
    assert rows == [Row("", "laptop", method, seed) for seed in (0, 1) for method in ("diva", "truth")]
    with pytest.raises(ValueError, match=r"methods: 'gan' is not in this study; choose from \['discovr'"):
        plan_rows(STUDIES["parametric"], "laptop", 1, methods=["gan"])
    with pytest.raises(ValueError, match=r"preset: 'huge' is not"):
        plan_rows(STUDIES["parametric"], "huge", 1)


def test_command_line(tmp_path, capsys):
    arguments = ["--preset", "laptop", "--seeds", "1", "--jobs", "1", "--methods", "truth", "--out", str(tmp_path)]
    assert cli.main(["reproduce", "parametric", *arguments]) == 0
    assert (tmp_path / "parametric.csv").exists()
    assert "| truth |" in capsys.readouterr().out
    assert cli.main(["reproduce", "penguins"]) == 2
    assert "'penguins' is not known; choose from" in capsys.readouterr().err
    assert cli.main(["reproduce", "parametric", "--preset", "huge"]) == 2
    assert "preset: 'huge' is not in this study" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["reproduce", "--list"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out.split() == list(STUDIES)


def test_ablations_change_what_they_say(tmp_path):
    study = replace(STUDIES["ablations"], presets={"tiny": TINY})
    settings = {
        variant: runner.model_settings(study, Row(variant, "tiny", "discovr-paper", 0)) for variant in study.variants
    }
    assert settings["adv=0"]["weights"].adv == 0
    assert settings["adv=20"]["weights"] == replace(settings["adv=8"]["weights"], adv=20)
    assert settings["prior=standard"]["prior"] == "standard"
    assert settings["adversary=both"]["adversary"] == "both"
    results = run_study(study, tmp_path, n_seeds=1, jobs=1, variants=["adv=0", "adversary=latent"])
    write_report(results, "tiny")
    assert (tmp_path / "ablations_latents.png").exists()
