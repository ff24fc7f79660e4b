"""The one runner: trains and scores every row of a study, in several processes, and goes on where it was stopped."""

import logging
import multiprocessing
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scvi
import torch
from anndata import AnnData

from discovr_sc.experiments.engine.clock import peak_memory_mb, reset_peak_memory
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.study import Method, Preset, Row, Study, Task, Variant
from discovr_sc.model.base import DisentangledModel
from discovr_sc.settings import paper_weights
from discovr_sc.tools.report import FRESH_PROBE

#: The adversary of a row with weights of its own, in place of the paper's, and its part of the plan.
OWN_ADVERSARY = {"classifier_batch_norm": False, "adversary_trains": "encoder and decoder"}
OWN_ADVERSARY_PLAN = {"adversary_lr": None, "n_adversary_steps": 1}

#: What a row tells of its adversary, as it was when the training ended; see :mod:`discovr_sc.train.health`.
HEALTH = ("adversary_living_units", "adversary_logit_sd", "adversary_gain", "adversary_accuracy")
#: Of these and of the fresh probes, the columns of a study's table.
HEALTH_COLUMNS = (*HEALTH[:2], f"{FRESH_PROBE}reconstruction", f"{FRESH_PROBE}latent")


@dataclass(frozen=True)
class Run:
    """A trained model, what it was trained on and what to score it on; None for a row of analytic samples."""

    method: str
    model: Any
    train: AnnData
    evaluation: AnnData
    preset: Preset
    seed: int


def run_study(
    study: Study,
    out: str | Path,
    *,
    preset: str | None = None,
    n_seeds: int | None = None,
    methods: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    jobs: int | None = None,
    command: str = "",
) -> Results:
    """Run what is missing of a study and write its table.

    Parameters
    ----------
    study, out
        What to run, and the folder of ``<study>.csv`` and, beside it, ``<study>.json`` with the command, version and
        settings.
    preset, n_seeds, methods, variants
        Size (the study's first by default), how many seeds, and some methods and variants only.
    jobs, command
        Processes, of one thread each (one for each core by default), and the command line, kept with the results.
    """
    preset = preset or next(iter(study.presets))
    rows = plan_rows(study, preset, n_seeds or study.n_seeds, methods, variants)
    results = Results.open(study, out)
    todo = [row for row in rows if not results.has(row)]
    print(f"{study.name}: {len(rows)} rows, {len(rows) - len(todo)} of them done", flush=True)
    if results.outdated and todo:
        print(
            f"{results.folder} also has {len(results.outdated)} rows made with other settings than this version's, "
            f"such as {next(iter(results.outdated))!r}. They are marked in the tables, and those of a method and "
            "variant go when its first new row is there.",
            flush=True,
        )
    started = time.time()
    for done, (row, (metrics, sketch)) in enumerate(_work(study, todo, jobs), start=1):
        results.add(row, metrics, command, sketch)
        left = (time.time() - started) / done * (len(todo) - done)
        name = " ".join(part for part in (row.method, row.variant, f"seed {row.seed}") if part)
        print(f"[{done}/{len(todo)}] {name}: {metrics['seconds']:.0f} s; about {left / 60:.0f} min left", flush=True)
    return results


def plan_rows(
    study: Study, preset: str, n_seeds: int, methods: Sequence[str] | None = None, variants: Sequence[str] | None = None
) -> list[Row]:
    """All rows that are asked for, seed by seed, so that a run cut short has every method."""
    asked = {"preset": [preset], "methods": methods or [], "variants": variants or []}
    for (argument, names), known in zip(asked.items(), (study.presets, study.methods, study.variants), strict=True):
        for name in set(names) - set(known):
            raise ValueError(f"{argument}: {name!r} is not in this study; choose from {list(known)}.")
    return [
        Row(variant, preset, method, seed)
        for seed in range(study.first_seed, study.first_seed + n_seeds)
        for variant in variants or study.variants
        for method in study.variants[variant].methods or study.methods
        if methods is None or method in methods
    ]


def _work(study: Study, rows: list[Row], jobs: int | None):
    """Rows and their metrics as they are finished."""
    if jobs == 1:
        for row in rows:
            yield row, run_row(study, row)
        return
    # Fresh processes: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures = {pool.submit(_run_named_row, study.name, row): row for row in rows}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        # Left alone, the pool would finish its whole queue, unseen.
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _run_named_row(study_name: str, row: Row) -> tuple[dict[str, float], dict[str, np.ndarray] | None]:
    from discovr_sc.experiments.studies import STUDIES

    return run_row(STUDIES[study_name], row)


def run_row(study: Study, row: Row) -> tuple[dict[str, float], dict[str, np.ndarray] | None]:
    """Train and score one method on one seed: its metrics and, for the first seed, what the figures need."""
    torch.set_num_threads(1)
    hush()
    started = time.time()
    preset, variant = study.presets[row.preset], study.variants[row.variant]
    task = study.make_task(preset, row.seed, **variant.data)
    model, cost = train_model(study, row, task)
    run = Run(row.method, model, task.train, task.evaluation, preset, row.seed)
    metrics = study.evaluate(run)
    is_sketched = row.seed == study.first_seed and study.methods[row.method].is_trained
    sketch = study.sketch(run) if study.sketch is not None and is_sketched else None
    return metrics | cost | {"seconds": time.time() - started}, sketch


def hush() -> None:
    """Silence what trainings say and warn of."""
    for name in ("lightning.pytorch", "scvi"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")


def train_model(study: Study, row: Row, task: Task) -> tuple[Any, dict[str, float]]:
    """A trained model, and what it cost: seconds per epoch, milliseconds per batch of inference, peak memory in MB.

    And the health of its adversary, where it has one.
    """
    preset, method, variant = study.presets[row.preset], study.methods[row.method], study.variants[row.variant]
    scvi.settings.seed = row.seed
    if method.fit is not None:
        return method.fit(task, preset, row.seed), {}
    if method.model is None:
        return None, {}
    model = build_model(study, row, task)
    arguments = {
        "max_epochs": preset.max_epochs,
        "batch_size": preset.batch_size,
        "early_stopping": True,
        "early_stopping_patience": preset.patience,
        "enable_progress_bar": False,
    }
    plan = plan_settings(model, preset, method, variant)
    reset_peak_memory()
    started = time.time()
    model.train(**(arguments | dict(method.train)), plan_kwargs=plan)
    seconds = time.time() - started
    n_epochs = len(model.history_["train_loss"])
    cost = {
        "n_epochs": float(n_epochs),
        "seconds_per_epoch": seconds / n_epochs,
        "peak_memory_mb": peak_memory_mb(),
        "inference_ms_per_batch": _inference_ms(model, task.evaluation, preset.batch_size),
    }
    return model, cost | health_of(model)


def health_of(model: DisentangledModel) -> dict[str, float]:
    """The state of a model's adversary at the end of its training; nothing where it has none."""
    curves = {name: model.history_[f"{name}_train"] for name in HEALTH if f"{name}_train" in model.history_}
    curves |= {name: curve for name, curve in model.history_.items() if name.startswith(FRESH_PROBE)}
    return {name: float(curve.iloc[-1, 0]) for name, curve in curves.items()}


def build_model(study: Study, row: Row, task: Task) -> DisentangledModel:
    """The untrained model of a row, with the paper's settings or its own defaults."""
    method = study.methods[row.method]
    model_cls = method.model_class
    model_cls.setup_anndata(task.train, **task.setup, **method.setup)
    settings = model_settings(study, row)
    if method.row is None:
        return model_cls(task.train, **settings)
    return model_cls.paper(task.train, study.experiment, method=method.row, **settings)


def model_settings(study: Study, row: Row) -> dict[str, Any]:
    """Constructor arguments of a row's model, beyond the paper's or its own defaults."""
    preset, method, variant = study.presets[row.preset], study.methods[row.method], study.variants[row.variant]
    settings = dict(preset.settings) | dict(method.settings) | dict(variant.settings)
    weights = settings.pop("weights", None)
    if method.row is None:
        weights = dict(weights or {}) | dict(variant.weights)
        return settings | ({"weights": weights} if weights else {})
    if weights is not None and method.model == "DISCOVR":
        settings = OWN_ADVERSARY | settings
    weights = weights or paper_weights(method.row, study.experiment)
    return settings | {"weights": replace(weights, **variant.weights)}


def plan_settings(model: DisentangledModel, preset: Preset, method: Method, variant: Variant) -> dict[str, Any]:
    """Settings of the training plan of a row, beyond its model's.

    Where a preset has a learning rate of its own, that of the paper's adversary stays as many times as large.
    """
    plan = dict(preset.plan) | dict(method.plan) | dict(variant.plan)
    if method.row is not None and method.model == "DISCOVR" and "weights" in method.settings:
        return OWN_ADVERSARY_PLAN | plan
    defaults = model.plan_defaults_
    if "lr" in plan and {"lr", "adversary_lr"} <= set(defaults):
        return {"adversary_lr": plan["lr"] * defaults["adversary_lr"] / defaults["lr"]} | plan
    return plan


def _inference_ms(model: Any, adata: AnnData, batch_size: int, repeats: int = 20) -> float:
    rows = np.arange(min(batch_size, adata.n_obs))
    model.get_latent_representation(adata, rows, kind=model.latents[0], batch_size=batch_size)
    started = time.perf_counter()
    for _ in range(repeats):
        model.get_latent_representation(adata, rows, kind="zw"[: len(model.latents)], batch_size=batch_size)
    return (time.perf_counter() - started) / repeats * 1000
