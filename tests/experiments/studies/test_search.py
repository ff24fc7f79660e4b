"""The search of noise scales: its own seeds, one budget, the best score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from discovr_sc.experiments import STUDIES, Preset, run_study
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import Row, plan_rows
from discovr_sc.experiments.studies.search import PARAMETRIC_SEARCH, SWISS_ROLL_SEARCH, best_noise_scales
from discovr_sc.experiments.studies.synthetic import NOISE_SCALES

TINY = Preset(n_train=200, n_eval=200, max_epochs=1, patience=2, batch_size=100, n_likelihood=10, n_mc_samples=3)


def test_searches_use_other_seeds_and_give_every_method_the_same_budget():
    for search, study in ((PARAMETRIC_SEARCH, "parametric"), (SWISS_ROLL_SEARCH, "swiss-roll")):
        rows = plan_rows(search, "search", search.n_seeds)
        reported = plan_rows(STUDIES[study], "full", STUDIES[study].n_seeds)
        assert not {row.seed for row in rows} & {row.seed for row in reported}
        counts = {method: sum(row.method == method for row in rows) for method in search.methods}
        assert set(counts.values()) == {4 * search.n_seeds}


def test_the_scale_with_the_lowest_mean_score_is_taken(tmp_path):
    results = Results.open(PARAMETRIC_SEARCH, tmp_path)
    for scale, scores in {0.4: (5.0, 1.0), 0.5: (2.0, 2.0), 0.6: (9.0, 9.0)}.items():
        for seed, score in zip((100, 101), scores, strict=True):
            results.add(Row(f"noise_scale={scale}", "search", "diva", seed), {"score": score}, "test")
    results.add(Row("noise_scale=0.7", "search", "csvae", 100), {"score": 1.0}, "test")
    assert best_noise_scales(results) == {"diva": 0.5, "csvae": 0.7}


def test_a_search_runs(tmp_path):
    for search in (PARAMETRIC_SEARCH, SWISS_ROLL_SEARCH):
        small = replace(
            search,
            presets={"tiny": TINY},
            methods={"hcsvae": search.methods["hcsvae"]},
            variants=dict(list(search.variants.items())[:2]),
        )
        results = run_study(small, tmp_path, n_seeds=1, jobs=1)
        (scale,) = best_noise_scales(results).values()
        assert f"Lowest score at: hcsvae {scale}." in write_report(results, "tiny")
        assert results.table["seed"].unique().tolist() == [100]


def test_the_studies_use_what_the_searches_found():
    """The constants of the studies are those of the committed results."""
    folder = Path(__file__).parents[3] / "docs" / "results"
    for search, study in ((PARAMETRIC_SEARCH, "parametric"), (SWISS_ROLL_SEARCH, "swiss-roll")):
        results = Results.open(search, folder)
        assert len(results.made_by) + len(results.outdated) == len(plan_rows(search, "search", search.n_seeds))
        found = best_noise_scales(results)  # rows with the paper's adversary wait to be made anew
        assert len(found) >= 4 and found.items() <= NOISE_SCALES[study].items()
