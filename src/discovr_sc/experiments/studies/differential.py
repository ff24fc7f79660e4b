"""Differential expression by cells within a cell type, judged by a paired test of pseudobulks over donors.

What ``replicate_key`` does is a test of pseudobulks itself; the study ``de-calibration`` is about that.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from scipy import stats
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

from discovr_sc.data import log_counts
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.counterfactual import CONTROL, TARGET, TYPE
from discovr_sc.experiments.studies.fitting import train_discovr, train_scvi
from discovr_sc.experiments.studies.kang import CONDITION, PRESETS, load_kang

DONOR = "donor"
#: Genes at the top of a ranking that are compared with those at the top of the judge's.
N_TOP = 50
#: False discovery rate at which genes are called.
FDR = 0.05


def make_within(preset: Preset, seed: int, cell_type: str) -> Task:
    """All cells to train on, and those of a type to test within."""
    adata = load_kang()
    if DONOR not in adata.obs:
        raise ValueError(
            f"the Kang file has no column {DONOR!r}, over which the judge pairs; name the folder of the full file in "
            "DISCOVR_SC_DATA."
        )
    of_type = (adata.obs[TYPE] == cell_type).to_numpy()
    others = np.flatnonzero(~of_type)
    if preset.n_train is not None:
        n_others = max(0, preset.n_train - int(of_type.sum()))
        others = np.random.default_rng(seed).choice(others, min(n_others, len(others)), replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(of_type), others]))
    return Task(adata[rows].copy(), adata[of_type].copy(), setup={"condition_key": CONDITION})


class Tested(NamedTuple):
    """A method's tables (rank, lfc, called; by gene): between the conditions, and between random halves of controls."""

    real: pd.DataFrame
    null: pd.DataFrame


def fit_method(test: Callable[..., pd.DataFrame]) -> Callable[[Task, Preset, int], Tested]:
    """Test a task's type for the conditions, and its controls for a random label, each with a training of its own."""

    def fit(task: Task, preset: Preset, seed: int) -> Tested:
        cell_type = task.evaluation.obs[TYPE].iloc[0]
        real = test(task.train.copy(), CONDITION, cell_type, CONTROL, TARGET, preset)
        halves = task.train[(task.train.obs[CONDITION] == CONTROL).to_numpy()].copy()
        halves.obs["half"] = np.random.default_rng(seed).permutation(np.arange(halves.n_obs) % 2).astype(str)
        scvi.settings.seed = seed
        return Tested(real, test(halves, "half", cell_type, "0", "1", preset))

    fit.__qualname__ = f"fit_{test.__name__}"  # what the study's fingerprint sees
    return fit


def evaluate_within(run: Run) -> dict[str, float]:
    """Agreement with the judge within the type, and the share of genes called between random halves of its controls."""
    judge = paired_pseudobulk_test(run.evaluation, CONDITION, DONOR, CONTROL, TARGET)
    return compare(run.model.real, judge) | {"false_calls": float(run.model.null["called"].mean())}


def compare(table: pd.DataFrame, judge: pd.DataFrame) -> dict[str, float]:
    """Agreement of a method's table (rank, lfc, called; by gene) with the judge's."""
    table = table.loc[judge.index]
    ours, theirs = (frame["rank"].nsmallest(N_TOP).index for frame in (table, judge))
    return {
        "overlap_top50": len(ours.intersection(theirs)) / len(theirs),
        "spearman_lfc": float(stats.spearmanr(table["lfc"], judge["lfc"]).statistic),
        "n_tested": float(len(judge)),
        "n_called": float(table["called"].sum()),
    }


# The judge -------------------------------------------------------------------------------------------------------


def paired_pseudobulk_test(
    cells: AnnData, condition_key: str, donor_key: str, control: str, target: str
) -> pd.DataFrame:
    """The moderated paired t-test of limma (Smyth 2004) on pseudobulks: sums of counts by donor and condition.

    Values are log2((count + 0.5) / (total + 1) * 1e6). Genes are tested that have, in at least as many pseudobulks as
    there are donors, the counts per million that 10 counts are in the median pseudobulk (edgeR's rule). Nothing here
    is of the package: a judge shares no code with what it judges. The table has, by gene, ``lfc`` (mean over donors),
    ``t``, ``p_value`` and ``rank`` (by p-value, 1 first).
    """
    donor, condition = (cells.obs[key].to_numpy() for key in (donor_key, condition_key))
    paired = sorted(set(donor[condition == control]) & set(donor[condition == target]))
    if len(paired) < 3:
        raise ValueError(f"{len(paired)} donors have cells of both conditions; a paired test needs at least 3.")
    sums = np.stack(
        [
            [np.asarray(cells.X[(donor == name) & (condition == side)].sum(0)).ravel() for name in paired]
            for side in (control, target)
        ]
    )  # (conditions, donors, genes)
    totals = sums.sum(-1, keepdims=True)
    tested = (sums / totals >= 10 / np.median(totals)).sum((0, 1)) >= len(paired)
    logs = np.log2((sums[..., tested] + 0.5) / (totals + 1) * 1e6)
    changes = logs[1] - logs[0]  # (donors, genes)
    variance, df = squeezed_variance(changes.var(0, ddof=1), len(paired) - 1)
    t = changes.mean(0) / np.sqrt(variance / len(paired))
    columns = {"lfc": changes.mean(0), "t": t, "p_value": 2 * stats.t.sf(np.abs(t), df)}
    table = pd.DataFrame(columns, index=cells.var_names[tested])
    table["rank"] = (-table["t"].abs()).rank(method="first")
    return table


def squeezed_variance(variance: np.ndarray, df: float) -> tuple[np.ndarray, float]:
    """Limma's posterior variances of genes, ``(genes,)``, and their degrees of freedom.

    A gene's variance s2 of ``df`` degrees of freedom has the prior s0 * d0 / chi2(d0). Then log(s2) has the mean
    log(s0) + digamma(df/2) - log(df/2) - digamma(d0/2) + log(d0/2) and the variance trigamma(df/2) + trigamma(d0/2),
    from which d0 and s0 follow.
    """
    e = np.log(np.maximum(variance, 1e-12)) - (digamma(df / 2) - np.log(df / 2))
    excess = e.var(ddof=1) - polygamma(1, df / 2)
    if excess <= 1e-6:  # no more spread than chance: all genes have one variance
        return np.full_like(variance, np.exp(e.mean())), np.inf
    half = brentq(lambda d: polygamma(1, d) - excess, 1e-6, 1e8)
    s0 = np.exp(e.mean() + digamma(half) - np.log(half))
    return (2 * half * s0 + df * variance) / (2 * half + df), 2 * half + df


# The methods: a table (rank, lfc, called) by gene -------------------------------------------------------------------


def discovr_test(adata, condition_key, cell_type, control, target, preset) -> pd.DataFrame:
    """DISCOVR's differential expression within the type, by cells."""
    model = train_discovr(adata, preset, condition_key)
    table = model.differential_expression(target=target, reference=control, groupby=TYPE, groups=[cell_type], fdr=FDR)
    return _ranked(table["gene"], table["lfc"], table["is_de"])


def scvi_test(adata, condition_key, cell_type, control, target, preset) -> pd.DataFrame:
    """SCVI's differential expression ("change" mode) between the type's cells of both conditions."""
    model = train_scvi(adata, preset)
    of_type = adata.obs[TYPE] == cell_type
    cells = [(of_type & (adata.obs[condition_key] == condition)).to_numpy() for condition in (target, control)]
    table = model.differential_expression(
        idx1=cells[0], idx2=cells[1], mode="change", fdr_target=FDR, all_stats=False, silent=True
    )
    # As DISCOVR's table is sorted: by fold change where probabilities are equal.
    table = table.iloc[np.lexsort([-table["lfc_mean"].abs(), -table["proba_de"]])]
    return _ranked(table.index, table["lfc_mean"], table[f"is_de_fdr_{FDR}"])


def wilcoxon_test(adata, condition_key, cell_type, control, target, preset) -> pd.DataFrame:
    """Wilcoxon's rank-sum test on the type's cells as log counts, with Benjamini and Hochberg's correction."""
    cells = adata[(adata.obs[TYPE] == cell_type).to_numpy()].copy()
    cells.X = log_counts(cells.X)
    sc.tl.rank_genes_groups(cells, condition_key, groups=[target], reference=control, method="wilcoxon")
    table = sc.get.rank_genes_groups_df(cells, target)
    table = table.loc[table["scores"].abs().sort_values(ascending=False, kind="stable").index]
    return _ranked(table["names"], table["logfoldchanges"], table["pvals_adj"] < FDR)


def _ranked(genes, lfc, called) -> pd.DataFrame:
    """A table of genes that come in the order of their ranks."""
    columns = {"rank": np.arange(len(genes)) + 1, "lfc": np.asarray(lfc), "called": np.asarray(called)}
    return pd.DataFrame(columns, index=pd.Index(genes))


DIFFERENTIAL_EXPRESSION = Study(
    name="differential-expression",
    experiment="kang",
    make_task=make_within,
    evaluate=evaluate_within,
    presets=PRESETS,
    variants={f"type={name}": Variant(data={"cell_type": name}) for name in ("CD14+ Monocytes", "B cells")},
    headline=("overlap_top50", "spearman_lfc", "n_tested", "n_called", "false_calls"),
    methods={
        "discovr": Method("DISCOVR", fit=fit_method(discovr_test), version=2),
        "scvi": Method(fit=fit_method(scvi_test), version=1),
        "wilcoxon": Method(fit=fit_method(wilcoxon_test)),
    },
    n_seeds=3,
)
