"""Searches of the baselines' own: six settings of each around the paper's, on cells and seeds that no table uses.

The paper's weights were chosen with the paper's code, and need not be the best that a method can do here. The score of
a setting never looks at test cells or at an analytic posterior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from discovr_sc import metrics
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Preset, Study, Variant
from discovr_sc.experiments.studies.kang import CONDITION, KANG, labels_of, parts_of, probe_args, types_of, w_metrics
from discovr_sc.experiments.studies.search import FIRST_SEED, PRESET, score_parametric, score_swiss_roll
from discovr_sc.experiments.studies.synthetic import BASELINES, FLIP, PARAMETRIC, SWISS_ROLL

ADVERSARIAL, CLASSIFYING, PLAIN = ("csvae", "hcsvae"), ("diva", "ccvae"), ("csvae-noadv", "hcsvae-noadv")


def score_kang(run: Run) -> dict[str, float]:
    """What a good method has little of: the condition in z (best of two probes), types lost by z, condition by w."""
    z = {name: run.model.get_latent_representation(cells) for name, cells in parts_of(run).items()}
    of_condition = probe_args(z, labels_of(run, CONDITION))
    of_type = probe_args(z, labels_of(run, list(types_of(run.train).values())[-1]))
    leakage = metrics.best_probe(**of_condition, kinds=("linear", "knn"), seed=run.seed).accuracy
    types = metrics.probe(**of_type, kind="knn", seed=run.seed).accuracy
    hidden = w_metrics(run)["probe_w_condition_hidden"]
    score = leakage + (1 - types) + (1 - hidden)
    parts = {"probe_z_condition": leakage, "probe_z_type": types, "probe_w_condition_hidden": hidden}
    return {"score": score} | parts


def settings_around(kl_z: tuple, kl_w: float, adv: tuple, classify: tuple, **data: Any) -> dict[str, Variant]:
    """The paper's setting and five more for each method, by what differs; each has what its objective has."""
    shared: dict[str, Mapping[str, float]] = {"paper": {}, f"kl_w={kl_w}": {"kl_w": kl_w}}
    shared |= {f"kl_z={weight}": {"kl_z": weight} for weight in kl_z}
    found = {name: Variant(data=data, weights=weights) for name, weights in shared.items()}
    for term, weights, methods in (("adv", adv, ADVERSARIAL), ("classify", classify, CLASSIFYING)):
        found |= {f"{term}={w}": Variant(data=data, weights={term: w}, methods=methods) for w in weights}
    found["lr=0.0003"] = Variant(data=data, plan={"lr": 3e-4}, methods=PLAIN)
    found["wide"] = Variant(data=data, settings={"n_hidden": 256}, methods=PLAIN)
    return found


def best_settings(results: Results) -> dict[str, str]:
    """The setting with the lowest mean score, by method."""
    scores = results.means().query("metric == 'score'")
    best = scores.loc[scores.groupby("method")["mean"].idxmin()]
    return dict(zip(best["method"], best["variant"], strict=True))


def conclude(results: Results) -> str:
    """The setting of every method."""
    return "Lowest score at: " + ", ".join(f"{method} {name}" for method, name in best_settings(results).items()) + "."


def search_of(study: Study, preset: Preset, score, variants: dict[str, Variant]) -> Study:
    """The search of a study's baselines."""
    return replace(
        study,
        name=f"{study.name}-baseline-search",
        evaluate=score,
        presets={"search": preset},
        variants=variants,
        methods={name: replace(study.methods[name], train={}) for name in BASELINES},
        headline=("score",),
        sketch=None,
        draw=None,
        conclude=conclude,
        n_seeds=2,
        first_seed=FIRST_SEED,
    )


#: Kang's laptop preset, on validation cells.
KANG_BASELINE_SEARCH = search_of(
    KANG,
    KANG.presets["laptop"],
    score_kang,
    settings_around((1e-2, 1.0), 1e-2, (10.0, 1000.0), (10.0, 100.0), held_out="validation"),
)
PARAMETRIC_BASELINE_SEARCH = search_of(
    PARAMETRIC, PRESET, score_parametric, settings_around((0.5, 2.0), 0.2, (5.0, 80.0), (0.2, 5.0))
)
SWISS_ROLL_BASELINE_SEARCH = search_of(
    SWISS_ROLL, PRESET, score_swiss_roll, settings_around((0.05, 1.0), 0.5, (10.0, 200.0), (0.2, 5.0), flip=FLIP)
)
