"""The benchmark's table: one tidy CSV, and the same as Markdown beside the goals."""

import math
import platform
from pathlib import Path

import pandas as pd
import scvi
import torch

from discovr_sc.experiments.engine.files import markdown_table

#: Ratios, by metric: what it is, the goal where it has one.
GOALS = {
    "epoch_vs_scvi": ("training epoch, DISCOVR with default settings / scVI", 0.75),
    "epoch_vs_scvi_20000": ("training step, 20,000 genes with 5 % of counts not zero, DISCOVR / scVI", 0.6),
    "per_cell_20000_vs_2000": ("seconds per cell, 20,000 genes / 2,000 genes, 5 % of counts not zero", 5.0),
    "epoch_vs_bare": ("training epoch, DISCOVR / bare loop", 1.25),
    "swiss_roll_epoch_vs_bare": ("training epoch on the Swiss roll, DISCOVR / bare loop", math.nan),
    "epoch_bf16_vs_default": ("training epoch, bfloat16 mixed precision / default", math.nan),
    "epoch_compiled_vs_default": ("training epoch, torch.compile / default", math.nan),
    "latents_vs_scvi": ("latents of all cells, DISCOVR / scVI", 0.5),
    "expression_vs_scvi": ("normalised expression of all cells, DISCOVR / scVI", math.nan),
    "counterfactual_vs_expression": ("counterfactuals / normalised expression, simulated cells", 3.0),
    "peak_memory_vs_scvi": ("peak memory, DISCOVR / scVI", 1.1),
    "per_cell_1e6_vs_1e4": ("seconds per cell, 10^6 cells / 10^4 cells", 1.1),
    "import_vs_scvi": ("import of all public names of discovr_sc / `import scvi`", 1.1),
}
#: Columns of the table of models: metric before the dot, heading.
MODEL_COLUMNS = {
    "epoch_cpu_seconds": "epoch, CPU s",
    "epoch_wall_seconds": "epoch, wall s",
    "peak_memory_mb": "peak memory, MB",
    "latents_cells_per_cpu_second": "latents, cells per CPU s",
    "expression_cells_per_cpu_second": "expression, cells per CPU s",
    "import_cpu_seconds": "import, CPU s",
}
SCALING_COLUMNS = {
    "per_cell_cpu_ms": "training, CPU ms per cell",
    "memory_mb": "memory above the start, MB",
    "sparse_size_mb": "size of the sparse data, MB",
}
NAMES = {
    "scvi": "scVI",
    "discovr": "DISCOVR",
    "discovr_bf16": "DISCOVR, bfloat16 mixed precision",
    "discovr_compiled": "DISCOVR, torch.compile",
    "bare": "bare loop, DISCOVR's networks",
    "contrastivevi": "contrastiveVI",
    "mrvi": "MRVI (PyTorch)",
    "sysvi": "SysVI",
}


def write_table(folder: Path, rows: dict[str, float], command: str) -> str:
    """Write rows to ``speed.csv`` beside those that are there, and all of them to ``speed.md``; return the latter."""
    csv = folder / "speed.csv"
    table = dict(pd.read_csv(csv).itertuples(index=False)) if csv.exists() else {}
    table |= rows
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"metric": list(table), "value": list(table.values())}).to_csv(csv, index=False, float_format="%.6g")
    text = markdown(table, command)
    (folder / "speed.md").write_text(text, encoding="utf-8")
    return text


def markdown(table: dict[str, float], command: str) -> str:
    """The table for people."""
    loads = [f"{value:.1f} ({name.split('.')[1]})" for name, value in table.items() if name.startswith("load_average")]
    ratios = [
        (what, show(table.get(metric)), "" if math.isnan(goal) else f"<= {goal:g}")
        for metric, (what, goal) in GOALS.items()
    ]
    return f"""# Speed

Made by `{command}` with one thread, PyTorch {torch.__version__}, scvi-tools {scvi.__version__}, Python \
{platform.python_version()} on {platform.machine()}. Load averages when the parts began: {", ".join(loads)}. \
CPU seconds are processor time of the process, which a loaded machine changes little; wall seconds include \
waiting for other processes. Ratios are of CPU seconds: models take turns, and the median over rounds is \
taken. Kang: 13,999 cells, 2,000 genes, mini-batches of 128, no validation.

{markdown_table(pd.DataFrame(ratios, columns=["ratio", "value", "goal"]))}
## Kang

{by_suffix(table, MODEL_COLUMNS, "model", NAMES)}
Epochs are measured over {table.get("measured_batches", 0):.0f} mini-batches at a time and scaled to all. \
Peak memory is that of a process that loads the data, trains and asks for latents; where models are equal, \
loading made the peak. A dash is a number that the model does not have, `cannot run` a model that this \
machine could not train. A step of contrastiveVI takes a mini-batch of each of its two groups of cells.

## Scaling

Simulated cells of 60 non-zero counts, DISCOVR with default settings: the median of three runs of \
{table.get("scaling_steps", 0):.0f} steps, after 3 to warm up.

{by_suffix(table, SCALING_COLUMNS, "cells x genes", {})}"""


def by_suffix(table: dict[str, float], columns: dict[str, str], heading: str, names: dict[str, str]) -> str:
    """A table with one row for each suffix of the metrics, ``metric.suffix``."""
    suffixes = list(dict.fromkeys(m.split(".", 1)[1] for m in table if m.split(".")[0] in columns))
    suffixes = [name for name in names if name in suffixes] or suffixes
    rows = [[names.get(suffix, suffix), *(show(table.get(f"{m}.{suffix}")) for m in columns)] for suffix in suffixes]
    return markdown_table(pd.DataFrame(rows, columns=[heading, *columns.values()]))


def show(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "cannot run"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
