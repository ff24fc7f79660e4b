"""How fast and how large: DISCOVR beside its peers and a bare loop on Kang, and as cells and genes grow."""

import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
import torch
from anndata import AnnData
from scipy.sparse import csr_matrix
from scvi.external import MRVI, ContrastiveVI, SysVI

from discovr_sc.data import anndata_to_tensors, kang, noisy_swiss_roll
from discovr_sc.experiments.bench.bare import BareLoop
from discovr_sc.experiments.bench.table import write_table
from discovr_sc.experiments.engine.clock import Clock, TrainingClock, peak_memory_mb
from discovr_sc.experiments.engine.runner import hush
from discovr_sc.model import DISCOVR

BATCH_SIZE = 128
#: Arguments that every training here has: one epoch over all cells, nothing validated, drawn or logged.
QUIET = {
    "max_epochs": 1,
    "batch_size": BATCH_SIZE,
    "train_size": 1.0,
    "accelerator": "cpu",
    "check_val_every_n_epoch": None,
    "enable_progress_bar": False,
    "logger": False,
}
#: Steps that are not measured, and times that a scaling run is.
WARM_UP, REPEATS = 3, 3
#: Non-zero counts of a simulated cell.
COUNTS_PER_SIMULATED_CELL = 60


@dataclass
class Competitor:
    """A model that is ready to be trained, and what it is asked."""

    train: Callable[..., None]  # takes arguments of a trainer
    n_batches: int  # of an epoch
    latents: Callable[[], Any] | None = None
    expression: Callable[[], Any] | None = None


def run(
    out: str | Path = "docs/results",
    *,
    command: str,
    rounds: int = 3,
    n_batches: int | None = None,
    n_steps: int = 20,
    n_cells: Sequence[int] = (10_000, 100_000, 1_000_000),
    n_genes: Sequence[int] = (2_000, 20_000),
    n_points: int = 20_000,
    n_asked: int = 50_000,
    parts: Sequence[str] | None = None,
) -> str:
    """Run the benchmark, with one thread, write ``speed.csv`` and ``speed.md``, and return the table.

    Rows of an earlier ``speed.csv`` that are not measured now stay. Models have some steps to warm up; sizes to scale
    to are all numbers of cells with the first number of genes, and all numbers of genes with the first number of cells.
    ``discovr-sc bench --help`` tells of every argument.
    """
    parts = list(PARTS) if parts is None else parts
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise ValueError(f"parts has {sorted(unknown)[0]!r}, which is not known; choose from {list(PARTS)}.")
    torch.set_num_threads(1)
    settings = {"rounds": rounds, "n_batches": n_batches, "n_steps": n_steps, "n_cells": n_cells, "n_genes": n_genes}
    settings |= {"n_points": n_points, "n_asked": n_asked}
    table = ""
    with warnings.catch_warnings():
        hush()
        # The parts that need processes of their own come first: neither autograd nor OpenMP survives a fork.
        for part in sorted(parts, key=list(PARTS).index):
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan  # Windows has none
            rows = {f"load_average.{part}": load} | PARTS[part](**settings)
            table = write_table(Path(out), rows, command)
    return table


def competitor(model, adata: AnnData, *groups: np.ndarray, **settings) -> Competitor:
    """A model of scvi-tools' kind, trained on all cells or on groups of them, with some settings of its training."""
    return Competitor(
        lambda **kwargs: model.train(*groups, **(QUIET | settings | kwargs)),
        batches_of(max(map(len, groups), default=adata.n_obs)),
        model.get_latent_representation,
    )


def discovr(adata: AnnData, **settings) -> Competitor:
    """DISCOVR with its default settings, or with others of its training; these are asked nothing."""
    DISCOVR.setup_anndata(adata, "stim")
    model = DISCOVR(adata)
    if settings:
        return replace(competitor(model, adata, **settings), latents=None)
    return replace(competitor(model, adata), expression=model.get_normalized_expression)


def bare(adata: AnnData) -> Competitor:
    """The bare loop over the networks of DISCOVR with its default settings."""
    DISCOVR.setup_anndata(adata, "stim")
    loop = BareLoop(DISCOVR(adata).module)
    y = torch.as_tensor(adata.obs["_scvi_labels"].to_numpy(), dtype=torch.long)

    def train(limit_train_batches: int | None = None, callbacks: Sequence[TrainingClock] = ()) -> None:
        with ExitStack() as running:
            for callback in callbacks:
                running.enter_context(callback.clock.running())
            loop.train(adata.X, y, BATCH_SIZE, limit_train_batches)

    return Competitor(train, batches_of(adata.n_obs))


def scvi_model(adata: AnnData) -> Competitor:
    """scVI, the condition as its batch."""
    scvi.model.SCVI.setup_anndata(adata, batch_key="stim")
    model = scvi.model.SCVI(adata)
    return replace(competitor(model, adata), expression=model.get_normalized_expression)


def contrastive_vi(adata: AnnData) -> Competitor:
    """contrastiveVI, control cells as its background; each of its steps takes a mini-batch of both."""
    ContrastiveVI.setup_anndata(adata)
    model = ContrastiveVI(adata)
    is_control = (adata.obs["stim"] == adata.obs["stim"].cat.categories[0]).to_numpy()
    ready = competitor(model, adata, np.flatnonzero(is_control), np.flatnonzero(~is_control))
    return replace(ready, latents=lambda: model.get_latent_representation(representation_kind="background"))


def mrvi(adata: AnnData) -> Competitor:
    """MRVI on its PyTorch backend, the condition as its sample."""
    MRVI.setup_anndata(adata, sample_key="stim", backend="torch")
    return competitor(MRVI(adata), adata)


def sysvi(adata: AnnData) -> Competitor:
    """SysVI on log-normalised expression, the condition as its system."""
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    SysVI.setup_anndata(adata, batch_key="stim")
    model = SysVI(adata)
    return replace(competitor(model, adata), latents=lambda: model.get_latent_representation(adata))


MODELS: dict[str, Callable[[AnnData], Competitor]] = {
    "scvi": scvi_model,
    "discovr": discovr,
    "discovr_bf16": lambda adata: discovr(adata, precision="bf16-mixed"),
    "discovr_compiled": lambda adata: discovr(adata, plan_kwargs={"compile": True}),
    "bare": bare,
    "contrastivevi": contrastive_vi,
    "mrvi": mrvi,
    "sysvi": sysvi,
}


def batches_of(n_cells: int) -> int:
    """Mini-batches of an epoch."""
    return math.ceil(n_cells / BATCH_SIZE)


def kang_speed(*, rounds: int, n_batches: int | None, **_) -> dict[str, float]:
    """Seconds per epoch and cells per second of all models on Kang, measured in turn, and DISCOVR's ratios."""
    adata = kang()
    rows: dict[str, float] = {"measured_batches": n_batches or batches_of(adata.n_obs)}
    models: dict[str, Competitor] = {}
    for name, build in MODELS.items():
        try:
            models[name] = build(adata.copy())
            models[name].train(limit_train_batches=WARM_UP)
        except Exception as error:  # a peer that cannot run here gets no number, and the others theirs
            models.pop(name, None)
            print(f"{name} cannot run here: {error!r}")
            rows |= {f"epoch_cpu_seconds.{name}": math.nan, f"epoch_wall_seconds.{name}": math.nan}
    epochs, latents, expressions = ({name: Clock() for name in models} for _ in range(3))
    for i in range(rounds):
        for name, model in models.items():
            model.train(limit_train_batches=n_batches or model.n_batches, callbacks=[TrainingClock(epochs[name])])
            questions = [(model.latents, latents[name])] if i == 0 or name in ("scvi", "discovr") else []
            for ask, clock in [*questions, *([(model.expression, expressions[name])] if i == 0 else [])]:
                if ask is not None:
                    with clock.running():
                        ask()
    for name, model in models.items():
        scale = model.n_batches / min(n_batches or model.n_batches, model.n_batches)
        rows[f"epoch_cpu_seconds.{name}"] = scale * statistics.median(epochs[name].cpu)
        rows[f"epoch_wall_seconds.{name}"] = scale * statistics.median(epochs[name].wall)
        for question, clock in (("latents", latents[name]), ("expression", expressions[name])):
            if clock.cpu:
                rows[f"{question}_cells_per_cpu_second.{name}"] = adata.n_obs / statistics.median(clock.cpu)
    rows["epoch_vs_scvi"] = ratio(epochs["discovr"], epochs["scvi"])
    rows["epoch_vs_bare"] = ratio(epochs["discovr"], epochs["bare"])
    for variant in ("bf16", "compiled"):
        if f"discovr_{variant}" in epochs:
            rows[f"epoch_{variant}_vs_default"] = ratio(epochs[f"discovr_{variant}"], epochs["discovr"])
    rows["latents_vs_scvi"] = ratio(latents["discovr"], latents["scvi"])
    rows["expression_vs_scvi"] = ratio(expressions["discovr"], expressions["scvi"])
    return rows


def ratio(ours: Clock, theirs: Clock) -> float:
    """Median over rounds of the ratio of processor times, each of two measurements made one after the other."""
    return statistics.median(a / b for a, b in zip(ours.cpu, theirs.cpu, strict=True))


def import_time(*, rounds: int, **_) -> dict[str, float]:
    """CPU seconds of importing everything that the package offers, and scvi-tools, each in new processes, in turn."""
    statements = {"scvi": "import scvi", "discovr": "from discovr_sc import *"}
    clocks = {name: Clock() for name in statements}
    for i in range(rounds + 1):
        for name, statement in statements.items():
            seconds = in_new_interpreter(f"{statement}; import time; print(time.process_time())")
            if i > 0:  # the first time may write bytecode
                clocks[name].cpu.append(float(seconds))
    rows = {f"import_cpu_seconds.{name}": statistics.median(clock.cpu) for name, clock in clocks.items()}
    return rows | {"import_vs_scvi": ratio(clocks["discovr"], clocks["scvi"])}


def in_new_interpreter(program: str) -> str:
    """The last line that a program prints."""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


def peak_memory(*, n_batches: int | None, **_) -> dict[str, float]:
    """Peak resident memory of a process that loads Kang, trains one model and asks it for latents."""
    names = [name for name in MODELS if name not in ("bare", "discovr_bf16", "discovr_compiled")]
    peaks = {name: in_process_of_its_own(_peak_of, name, n_batches) for name in names}
    rows = {f"peak_memory_mb.{name}": peak for name, peak in peaks.items()}
    return rows | {"peak_memory_vs_scvi": peaks["discovr"] / peaks["scvi"]}


def _peak_of(name: str, n_batches: int | None) -> float:
    try:
        model = MODELS[name](kang())
        model.train(limit_train_batches=n_batches or model.n_batches)
        if model.latents is not None:
            model.latents()
    except Exception as error:
        print(f"{name} cannot run here: {error!r}")
        return math.nan
    return peak_memory_mb()


def in_process_of_its_own(function: Callable, *args):
    """Call a function in a new process, so that its memory is its own."""
    # A fork has loaded all libraries; Windows has none.
    start = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(start)) as pool:
        return pool.submit(function, *args).result()


def scaling(*, n_steps: int, n_cells: Sequence[int], n_genes: Sequence[int], **_) -> dict[str, float]:
    """Seconds per cell and memory, by number of cells and of genes; a fixed number of steps at each size."""
    sizes = dict.fromkeys([(cells, n_genes[0]) for cells in n_cells] + [(n_cells[0], genes) for genes in n_genes])
    rows: dict[str, float] = {"scaling_steps": n_steps}
    for cells, genes in sizes:
        per_cell, peak, sparse_size = in_process_of_its_own(_train_simulated, cells, genes, n_steps)
        values = {"per_cell_cpu_ms": 1000 * per_cell, "memory_mb": peak, "sparse_size_mb": sparse_size}
        rows |= {f"{name}.{cells}x{genes}": value for name, value in values.items()}
    first, last = (rows[f"per_cell_cpu_ms.{cells}x{n_genes[0]}"] for cells in (n_cells[0], n_cells[-1]))
    rows[f"per_cell_{power(n_cells[-1])}_vs_{power(n_cells[0])}"] = last / first
    return rows


def power(n: int) -> str:
    """1000000 as 1e6."""
    mantissa, exponent = f"{n:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _train_simulated(n_cells: int, n_genes: int, n_steps: int) -> tuple[float, float, float]:
    """Seconds per cell, megabytes above those before the data were made, and the data's megabytes."""
    before = peak_memory_mb()
    adata = sparse_cells(n_cells, n_genes)
    model = discovr(adata)
    clock = Clock()
    model.train(limit_train_batches=WARM_UP)
    for _ in range(REPEATS):
        model.train(limit_train_batches=n_steps, callbacks=[TrainingClock(clock)])
    x = adata.X
    sparse_size = (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes) / 2**20
    return statistics.median(clock.cpu) / (n_steps * BATCH_SIZE), peak_memory_mb() - before, sparse_size


def many_genes(*, rounds: int, n_steps: int, n_genes: Sequence[int], **_) -> dict[str, float]:
    """Steps of DISCOVR beside scVI's, in turn, by number of genes; one count in twenty is not zero."""
    rows: dict[str, float] = {}
    seconds = []
    for genes in n_genes:
        adata = sparse_cells(n_steps * BATCH_SIZE, genes, n_counts=genes // 20)
        models = {"scvi": scvi_model(adata.copy()), "discovr": discovr(adata)}
        clocks = {name: Clock() for name in models}
        for model in models.values():
            model.train(limit_train_batches=WARM_UP)
        for _round in range(rounds):
            for name, model in models.items():
                model.train(limit_train_batches=n_steps, callbacks=[TrainingClock(clocks[name])])
        rows[f"epoch_vs_scvi_{genes}"] = ratio(clocks["discovr"], clocks["scvi"])
        seconds.append(statistics.median(clocks["discovr"].cpu))
    return rows | {f"per_cell_{n_genes[-1]}_vs_{n_genes[0]}": seconds[-1] / seconds[0]}


def counterfactuals(*, rounds: int, n_asked: int, n_genes: Sequence[int], **_) -> dict[str, float]:
    """CPU seconds of predicting simulated cells in the other condition, and of decoding them in their own, in turn."""
    adata = sparse_cells(n_asked, n_genes[0])
    DISCOVR.setup_anndata(adata, "stim")
    model = DISCOVR(adata)
    competitor(model, adata).train(limit_train_batches=WARM_UP)
    questions = (lambda: model.predict_counterfactual(target="stim"), model.get_normalized_expression)
    clocks = [Clock() for _ in questions]
    for _round in range(rounds):
        for ask, clock in zip(questions, clocks, strict=True):
            with clock.running():
                ask()
    return {"counterfactual_cells": n_asked, "counterfactual_vs_expression": ratio(*clocks)}


def sparse_cells(n_cells: int, n_genes: int, seed: int = 0, *, n_counts: int = COUNTS_PER_SIMULATED_CELL) -> AnnData:
    """Cells of two conditions with so many non-zero counts each, one in each stretch of genes; never dense."""
    rng = np.random.default_rng(seed)
    stretch = n_genes // n_counts
    starts = np.arange(n_counts, dtype=np.int32) * stretch
    indices = (rng.integers(stretch, size=(n_cells, len(starts)), dtype=np.int32) + starts).ravel()
    counts = rng.integers(1, 5, indices.size, dtype=np.int8).astype(np.float32)
    x = csr_matrix((counts, indices, np.arange(n_cells + 1) * len(starts)), shape=(n_cells, n_genes))
    stim = pd.Categorical.from_codes(rng.integers(2, size=n_cells), ["ctrl", "stim"])
    return AnnData(x, obs=pd.DataFrame({"stim": stim}, index=np.arange(n_cells).astype(str)))


def swiss_roll(*, rounds: int, n_points: int, **_) -> dict[str, float]:
    """Seconds per epoch of the paper's model of the Swiss roll and of the bare loop, and their ratio.

    Networks are small here, so that what is around them counts: each has one training of as many epochs as rounds.
    """
    adata = noisy_swiss_roll(n_points)
    x, y = anndata_to_tensors(adata)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    model, same = (DISCOVR.paper(adata, "swiss-roll", noise_scale=0.2) for _ in range(2))
    loop = BareLoop(same.module)

    def train(n_epochs: int) -> None:
        model.train(**(QUIET | {"max_epochs": n_epochs, "logger": True}))

    def train_bare(n_epochs: int) -> None:
        for _ in range(n_epochs):
            loop.train(x, y, BATCH_SIZE)

    clocks = {"discovr": Clock(), "bare": Clock()}
    for clock, run_epochs in zip(clocks.values(), (train, train_bare), strict=True):
        run_epochs(1)
        with clock.running():
            run_epochs(rounds)
    rows = {f"swiss_roll_epoch_wall_seconds.{name}": clock.wall[0] / rounds for name, clock in clocks.items()}
    return rows | {"swiss_roll_epoch_vs_bare": ratio(*clocks.values())}


PARTS: dict[str, Callable[..., dict[str, float]]] = {
    "import": import_time,
    "memory": peak_memory,
    "scaling": scaling,
    "genes": many_genes,
    "counterfactuals": counterfactuals,
    "kang": kang_speed,
    "swiss-roll": swiss_roll,
}
