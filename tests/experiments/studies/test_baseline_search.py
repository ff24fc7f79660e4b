"""The baselines' own searches: six settings each, on data that the tables do not use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovr_sc.experiments import STUDIES, Preset, run_study
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import Row, Run, build_model, plan_rows
from discovr_sc.experiments.studies import baseline_search
from discovr_sc.experiments.studies.baseline_search import KANG_BASELINE_SEARCH, PARAMETRIC_BASELINE_SEARCH
from discovr_sc.experiments.studies.synthetic import BASELINES

TINY = Preset(n_train=200, n_eval=200, max_epochs=1, patience=2, batch_size=100, n_likelihood=10, n_mc_samples=3)
NAMES = ("kang", "parametric", "swiss-roll")


@pytest.mark.parametrize("name", NAMES)
def test_every_baseline_has_six_settings_and_seeds_of_its_own(name):
    search = STUDIES[f"{name}-baseline-search"]
    rows = plan_rows(search, "search", 1)
    assert {method: sum(row.method == method for row in rows) for method in search.methods} == dict.fromkeys(
        BASELINES, 6
    )
    assert search.first_seed >= STUDIES[name].first_seed + STUDIES[name].n_seeds
    assert not any("max_epochs" in method.train for method in search.methods.values())


def test_every_setting_differs_from_the_papers_in_one_thing():
    search = PARAMETRIC_BASELINE_SEARCH
    task = search.make_task(TINY, 100)
    for row in plan_rows(search, "search", 1):
        model = build_model(search, row, task)
        paper = build_model(search, row._replace(variant="paper"), task)
        mine, theirs = vars(model.module.weights), vars(paper.module.weights)
        differing = [term for term in mine if mine[term] != theirs[term]]
        assert len(differing) <= 1
        if "=" in row.variant and not row.variant.startswith("lr"):
            term, weight = row.variant.split("=")
            assert mine[term] == float(weight)


def test_kang_is_searched_on_validation_cells():
    assert all(variant.data == {"held_out": "validation"} for variant in KANG_BASELINE_SEARCH.variants.values())


def test_a_search_runs_and_tells_its_best(tmp_path):
    small = replace(
        PARAMETRIC_BASELINE_SEARCH,
        presets={"tiny": TINY},
        methods={"csvae": PARAMETRIC_BASELINE_SEARCH.methods["csvae"]},
        variants={name: PARAMETRIC_BASELINE_SEARCH.variants[name] for name in ("paper", "adv=5.0")},
    )
    results = run_study(small, tmp_path, n_seeds=1, methods=["csvae"], jobs=1)
    ((method, best),) = baseline_search.best_settings(results).items()
    assert method == "csvae" and best in small.variants
    assert f"Lowest score at: csvae {best}." in write_report(results, "tiny")


def test_the_lowest_mean_score_wins(tmp_path):
    results = Results.open(KANG_BASELINE_SEARCH, tmp_path)
    for variant, scores in {"paper": (0.9, 0.7), "kl_z=1.0": (0.6, 0.8)}.items():
        for seed, score in zip((100, 101), scores, strict=True):
            results.add(Row(variant, "search", "diva", seed), {"score": score}, "test")
    assert baseline_search.best_settings(results) == {"diva": "kl_z=1.0"}


def test_the_score_of_kang_adds_what_was_lost(monkeypatch):
    class Probe:
        def __init__(self, accuracy):
            self.accuracy = accuracy

    model = type("Model", (), {"get_latent_representation": lambda self, cells: cells})()
    monkeypatch.setattr(baseline_search, "labels_of", lambda run, column: column)
    monkeypatch.setattr(baseline_search, "types_of", lambda cells: {"8": "coarse", "13": "fine"})
    monkeypatch.setattr(baseline_search, "probe_args", lambda z, labels: {"labels": labels})
    monkeypatch.setattr(baseline_search.metrics, "best_probe", lambda labels, **_: Probe({"stim": 0.7}[labels]))
    monkeypatch.setattr(baseline_search.metrics, "probe", lambda labels, **_: Probe({"fine": 0.9}[labels]))
    monkeypatch.setattr(baseline_search, "w_metrics", lambda run: {"probe_w_condition_hidden": 0.95})
    found = baseline_search.score_kang(Run("diva", model, "train", "evaluation", TINY, 0))
    assert found["score"] == pytest.approx(0.7 + 0.1 + 0.05)
