"""The search of what the paper leaves open, the decoders' noise scales: one budget for every method.

Every method but `discovr-paper` is run with every noise scale on data and seeds that the reported runs do not use, and
the scale with the best score is taken. Scores never look at the analytic posterior: on the parametric model it is the
held-out negative log-likelihood; on the Swiss roll, whose points lie on a surface so that the likelihood grows without
bound as the scale shrinks, it is what a probe still reads of the label from z, plus the share of the roll's plane that
z has lost, plus the share of the points' variance that z and w together have lost.
"""

from dataclasses import replace

import pandas as pd
from sklearn.metrics import r2_score

from discovr_sc import metrics
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Variant
from discovr_sc.experiments.studies import synthetic
from discovr_sc.experiments.studies.synthetic import FLIP, PARAMETRIC, SWISS_ROLL

#: Seeds of the searches; the reported runs use 0, 1, 2, ...
FIRST_SEED = 100

#: Analytic posteriors, and the paper's settings, whose noise scale is part of how the paper was read.
NOT_SEARCHED = ("truth", "posterior-untruncated", "discovr-paper")

PRESET = Preset(
    n_train=10_000, n_eval=4_000, max_epochs=40, patience=40, batch_size=256, n_likelihood=1000, n_mc_samples=300
)


def score_parametric(run: Run) -> dict[str, float]:
    """Held-out negative log-likelihood."""
    return {"score": synthetic.negative_log_likelihood(run)}


def score_swiss_roll(run: Run) -> dict[str, float]:
    """What a good method has little of: the label in z (best probe), and variance lost by z and by both latents."""
    latents = synthetic.latents_of(run)
    leakage = metrics.best_probe(latents.z_mean, latents.y, seed=run.seed).accuracy
    z_r2 = synthetic.knn_r2(latents.z_mean, run.evaluation.obsm["plane"], run.seed)
    x_r2 = r2_score(run.evaluation.obsm["x"], run.model.get_reconstruction(run.evaluation))
    score = leakage + (1 - z_r2) + (1 - x_r2)
    return {"score": score, "probe_z_condition": leakage, "z_r2": z_r2, "x_r2": x_r2}


def best_noise_scales(results: Results) -> dict[str, float]:
    """The noise scale with the lowest mean score, by method."""
    scores = results.means().query("metric == 'score'")
    best: pd.DataFrame = scores.loc[scores.groupby("method")["mean"].idxmin()]
    return {
        method: float(variant.removeprefix("noise_scale="))
        for method, variant in zip(best["method"], best["variant"], strict=True)
    }


def conclude_search(results: Results) -> str:
    """The noise scale of every method."""
    scales = best_noise_scales(results)
    return "Lowest score at: " + ", ".join(f"{method} {scale}" for method, scale in scales.items()) + "."


def without_noise_scale(method: Method) -> Method:
    """A method as it was before the search, and trained for the search's epochs."""
    settings = {name: value for name, value in method.settings.items() if name != "noise_scale"}
    train = {name: value for name, value in method.train.items() if name != "max_epochs"}
    return replace(method, settings=settings, train=train)


def search_of(study: Study, score, scales: tuple[float, ...], data: dict) -> Study:
    """The search of a study's noise scales, with its methods as they were before."""
    return Study(
        name=f"{study.name}-search",
        experiment=study.experiment,
        make_task=study.make_task,
        evaluate=score,
        presets={"search": PRESET},
        variants={f"noise_scale={scale}": Variant(data=data, settings={"noise_scale": scale}) for scale in scales},
        methods={name: without_noise_scale(m) for name, m in study.methods.items() if name not in NOT_SEARCHED},
        headline=("score",),
        conclude=conclude_search,
        n_seeds=2,
        first_seed=FIRST_SEED,
    )


PARAMETRIC_SEARCH = search_of(PARAMETRIC, score_parametric, (0.4, 0.5, 0.6, 0.7), {})
SWISS_ROLL_SEARCH = search_of(SWISS_ROLL, score_swiss_roll, (0.05, 0.1, 0.2, 0.3), {"flip": FLIP})
