"""Tests over donors: p-values where nothing differs, false calls and power where the truth is known."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from matplotlib.figure import Figure
from scipy import stats

from discovr_sc import data
from discovr_sc.data import log_counts
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.counterfactual import CONTROL, TYPE
from discovr_sc.experiments.studies.differential import DONOR, FDR, squeezed_variance
from discovr_sc.experiments.studies.fitting import train_discovr
from discovr_sc.experiments.studies.kang import CONDITION, load_kang
from discovr_sc.tools.replicates import Replicates

#: Ways to split the donors in two halves, of each seed.
N_SPLITS = 10
SPLIT = "split_"
#: Share of each simulated type; of the last, a donor has fewer than 30 cells.
SHARES = (0.45, 0.35, 0.15, 0.05)
RARE = f"type_{len(SHARES) - 1}"
#: Simulated cells.
N_SIMULATED = 3600
#: 10 % of the genes change, most by a factor of 1.3 to 2.5; donors differ, and differ in how they respond.
SIMULATION = {
    **{"n_types": len(SHARES), "type_proportions": [SHARES, SHARES], "n_donors": 8},
    **{"n_effect_genes": 80, "effect_size": 0.6, "sample_effect": 0.15, "library_size": 2000},
}
TREATED = "treated_1"


class Comparison(NamedTuple):
    """Cells, the column that tells them apart, and its two labels."""

    cells: AnnData
    key: str
    target: str
    reference: str


def make_null(preset: Preset, seed: int, cell_type: str) -> Task:
    """Kang's controls of a type, with splits of the donors in two halves."""
    adata = load_kang()
    if DONOR not in adata.obs:
        raise ValueError(f"the Kang file has no column {DONOR!r}; name the folder of the full file in DISCOVR_SC_DATA.")
    adata = adata[((adata.obs[CONDITION] == CONTROL) & (adata.obs[TYPE] == cell_type)).to_numpy()].copy()
    donors = sorted(adata.obs[DONOR].unique())
    halves = list(combinations(donors, len(donors) // 2))
    halves = halves[: len(halves) // 2]  # the others are these, reversed
    for i, half in enumerate(np.random.default_rng(seed).permutation(len(halves))[:N_SPLITS]):
        adata.obs[f"{SPLIT}{i}"] = np.where(adata.obs[DONOR].isin(halves[half]), "a", "b")
    return Task(adata, adata)


def make_simulated(preset: Preset, seed: int) -> Task:
    """Cells of eight donors, each in both conditions."""
    adata = data.simulate_counts(preset.n_train or N_SIMULATED, 800, seed=seed, **SIMULATION)
    return Task(adata, adata, setup={"condition_key": "condition"})


def make_task(preset: Preset, seed: int, cell_type: str | None = None) -> Task:
    """Splits of controls of a cell type; without one, simulated cells."""
    return make_simulated(preset, seed) if cell_type is None else make_null(preset, seed, cell_type)


def comparisons(adata: AnnData) -> Iterator[tuple[str, Comparison]]:
    """What is tested: every split of the donors, or the conditions within every simulated type."""
    for column in adata.obs:
        if column.startswith(SPLIT):
            yield column, Comparison(adata, column, "a", "b")
    if "condition" in adata.obs:
        for name in adata.obs[TYPE].cat.categories:
            cells = adata[(adata.obs[TYPE] == name).to_numpy()].copy()
            yield name, Comparison(cells, "condition", TREATED, "control")


# The methods: p_value and lfc by gene, missing where a gene is not tested -------------------------------------------


def fit_discovr(task: Task, preset: Preset, seed: int) -> dict[str, pd.DataFrame]:
    """``differential_expression`` with donors; its p-values need no model, so splits have none."""
    if "condition" not in task.train.obs:
        tables = ((name, replicates_of(made).test(made.cells.X)) for name, made in comparisons(task.train))
        return {name: table.set_index(task.train.var_names) for name, table in tables}
    model = train_discovr(task.train.copy(), preset, "condition")
    table = model.differential_expression(groupby=TYPE, replicate_key=DONOR, n_samples=1000)
    return {name: part.set_index("gene").loc[task.train.var_names] for name, part in table.groupby("group")}


def replicates_of(made: Comparison) -> Replicates:
    """The donors of a comparison."""
    rows = [np.flatnonzero(made.cells.obs[made.key] == label) for label in (made.target, made.reference)]
    return Replicates(made.cells, DONOR, rows)


def fit_with(test: Callable[[Comparison], pd.DataFrame]) -> Callable[[Task, Preset, int], dict[str, pd.DataFrame]]:
    """A test for every comparison."""

    def fit(task: Task, preset: Preset, seed: int) -> dict[str, pd.DataFrame]:
        return {name: test(made) for name, made in comparisons(task.train)}

    fit.__qualname__ = f"fit_{test.__name__}"  # what the study's fingerprint sees
    return fit


def pseudobulk(made: Comparison) -> pd.DataFrame:
    """Plain limma: log2((count + 0.5) / (total + 1) * 1e6), all pseudobulks alike, moderated variances."""
    donors = replicates_of(made)
    sums = donors.pseudobulks(made.cells.X)
    totals = [part.sum(1, keepdims=True) for part in sums]
    shares = np.concatenate([part / total for part, total in zip(sums, totals, strict=True)])
    tested = (shares >= 10 / np.median(np.concatenate(totals))).sum(0) >= min(map(len, sums))
    pairs = zip(sums, totals, strict=True)
    logs = [np.log2((part[:, tested] + 0.5) / (total + 1) * 1e6) for part, total in pairs]
    sides = [logs[0] - logs[1]] if donors.paired else logs
    df = sum(len(side) - 1 for side in sides)
    variance, all_df = squeezed_variance(sum(len(side) * side.var(0) for side in sides) / df, df)
    lfc = logs[0].mean(0) - logs[1].mean(0)
    p_value = 2 * stats.t.sf(np.abs(lfc) / np.sqrt(variance * sum(1 / len(side) for side in sides)), all_df)
    names = made.cells.var_names
    return pd.DataFrame({"p_value": p_value, "lfc": lfc}, index=names[tested]).reindex(names)


def deseq2(made: Comparison) -> pd.DataFrame:
    """PyDESeq2 on the same genes and pseudobulks, donors as a factor where each has both conditions."""
    try:
        from pydeseq2.dds import DeseqDataSet
        from pydeseq2.ds import DeseqStats
    except ImportError as error:
        raise ImportError("DESeq2 needs pydeseq2: pip install 'discovr_sc[references]'.") from error

    donors = replicates_of(made)
    tested = pseudobulk(made)["p_value"].notna().to_numpy()
    sums = np.concatenate(donors.pseudobulks(made.cells.X))[:, tested].astype(int)
    side = np.repeat(["target", "reference"], [len(names) for names in donors.names])
    samples = pd.DataFrame(
        {"side": side, "donor": np.concatenate(donors.names)}, index=np.arange(len(side)).astype(str)
    )
    counts = pd.DataFrame(sums, index=samples.index, columns=made.cells.var_names[tested])
    design = "~donor + side" if donors.paired else "~side"
    fitted = DeseqDataSet(counts=counts, metadata=samples, design=design, quiet=True, n_cpus=1)
    fitted.deseq2()
    found = DeseqStats(fitted, contrast=["side", "target", "reference"], quiet=True, n_cpus=1, independent_filter=False)
    found.summary()
    table = found.results_df.rename(columns={"pvalue": "p_value", "log2FoldChange": "lfc"})
    return table[["p_value", "lfc"]].reindex(made.cells.var_names)


def wilcoxon(made: Comparison) -> pd.DataFrame:
    """Wilcoxon's test of cells, which takes those of one donor for independent."""
    cells = AnnData(log_counts(made.cells.X), obs=made.cells.obs[[made.key]].astype("category"), var=made.cells.var[[]])
    sc.tl.rank_genes_groups(cells, made.key, groups=[made.target], reference=made.reference, method="wilcoxon")
    table = sc.get.rank_genes_groups_df(cells, made.target).set_index("names").loc[cells.var_names]
    tested = pseudobulk(made)["p_value"].notna()
    return table.rename(columns={"pvals": "p_value", "logfoldchanges": "lfc"})[["p_value", "lfc"]].where(tested)


# Scores ------------------------------------------------------------------------------------------------------------


def evaluate(run: Run) -> dict[str, float]:
    """Of splits, how far p-values are from uniform; of simulated cells, false calls, power and effect sizes."""
    if "condition" in run.train.obs:
        return evaluate_truth(run.model, run.train)
    tables = [table["p_value"].dropna().to_numpy() for table in run.model.values()]
    p_values = np.concatenate(tables)
    return {
        "below_0.05": float((p_values < 0.05).mean()),
        "below_0.001": float((p_values < 0.001).mean()),
        "ks": float(stats.kstest(p_values, "uniform").statistic),
        "n_tested": len(p_values) / len(tables),
        "n_called": float(np.mean([called(p).sum() for p in tables])),
    }


def evaluate_truth(tables: dict[str, pd.DataFrame], cells: AnnData) -> dict[str, float]:
    """Over the abundant types, and of the rare one."""
    values: dict[str, float] = {}
    abundant = [name for name in tables if name != RARE]
    for which, names in {"abundant": abundant, "rare": [RARE]}.items():
        scores = []
        for name in names:
            truth = cells.varm[f"effect_{TREATED}"][:, int(name.removeprefix("type_"))] / np.log(2)
            scores.append(against_truth(tables[name], truth))
        values |= {f"{metric}_{which}": float(value) for metric, value in pd.DataFrame(scores).mean().items()}
    return values


def against_truth(table: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:
    """Scores of a table whose genes have true log2 fold changes ``(genes,)``; all that change count for power."""
    p_value = table["p_value"].to_numpy()
    tested = ~np.isnan(p_value)
    calls = np.zeros(len(truth), dtype=bool)
    calls[tested] = called(p_value[tested])
    changed = truth != 0
    scores = {
        "false_share": (calls & ~changed).sum() / max(calls.sum(), 1),
        "power": (calls & changed).sum() / changed.sum(),
        "below_0.05": (p_value[tested & ~changed] < 0.05).mean(),
    }
    for column, name in {"lfc": "lfc_rmse", "lfc_replicates": "lfc_rmse_replicates"}.items():
        if column in table:
            scores[name] = np.sqrt(np.nanmean((table[column].to_numpy() - truth)[tested] ** 2))
    return scores


def called(p_values: np.ndarray) -> np.ndarray:
    """Genes called by Benjamini and Hochberg's rule."""
    return stats.false_discovery_control(p_values) <= FDR


def sketch(run: Run) -> dict[str, np.ndarray]:
    """The p-values of all splits; of simulated cells none."""
    if "condition" in run.train.obs:
        return {}
    return {"p_value": np.concatenate([table["p_value"].dropna().to_numpy() for table in run.model.values()])}


def draw(results: Results, preset: str) -> dict[str, Figure]:
    """QQ plots: sorted p-values against those of a uniform distribution."""
    sketches = results.sketches(preset)
    variants = list(dict.fromkeys(variant for variant, _ in sketches))
    figure, axes = plt.subplots(
        1, len(variants), figsize=(3.2 * len(variants), 3.4), layout="constrained", squeeze=False
    )
    for ax, variant in zip(axes[0], variants, strict=True):
        for (of, method), arrays in sketches.items():
            if of == variant:
                found = np.sort(arrays["p_value"]).clip(1e-12)
                expected = (np.arange(len(found)) + 0.5) / len(found)
                ax.plot(-np.log10(expected), -np.log10(found), label=method, linewidth=1.4)
        ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
        ax.set(title=variant.removeprefix("null="), xlabel="-log10 p, expected", ylim=(0, 8))
    axes[0, 0].set_ylabel("-log10 p, found")
    axes[0, 0].legend(fontsize=8)
    return {"qq": figure}


DE_CALIBRATION = Study(
    name="de-calibration",
    experiment="simulated",
    make_task=make_task,
    evaluate=evaluate,
    presets={"full": Preset(n_train=N_SIMULATED, n_eval=None, max_epochs=60, patience=50, batch_size=256)},
    variants={
        "simulated": Variant(),
        **{
            f"null={name}": Variant(data={"cell_type": name})
            for name in ("CD14+ Monocytes", "B cells", "Dendritic cells", "CD8 T cells")
        },
    },
    headline=(
        *("below_0.05", "below_0.001", "ks", "n_tested", "n_called"),
        *(f"{name}_{which}" for which in ("abundant", "rare") for name in ("power", "false_share", "lfc_rmse")),
    ),
    sketch=sketch,
    draw=draw,
    methods={
        "discovr": Method("DISCOVR", fit=fit_discovr),
        "pseudobulk": Method(fit=fit_with(pseudobulk)),
        "deseq2": Method(fit=fit_with(deseq2)),
        "wilcoxon": Method(fit=fit_with(wilcoxon)),
    },
    n_seeds=3,
)
