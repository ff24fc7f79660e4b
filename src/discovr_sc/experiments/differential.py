"""Differential expression within a cell type, judged by a paired test of pseudobulks over donors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import spearmanr
from scipy.stats import t as student

from discovr_sc.data import log_counts
from discovr_sc.model import DISCOVR

#: Genes at the top of a ranking that are compared with those at the top of the judge's.
N_TOP = 50
#: False discovery rate at which genes are called.
FDR = 0.05


def run_differential(
    adata: AnnData,
    cell_types: Sequence[str],
    method: str,
    seed: int = 0,
    max_epochs: int | None = None,
    *,
    condition_key: str = "stim",
    type_key: str = "cell_type",
    donor_key: str = "donor",
    control: str = "CTRL",
    target: str = "STIM",
) -> dict[str, dict[str, float]]:
    """Compare a method's ranking, fold changes and false calls with the judge's, within cell types.

    Parameters
    ----------
    adata
        Counts of all cells.
    cell_types
        Types to test within.
    method
        One of :data:`METHODS`.
    seed
        Of training, sampling and the random split of controls.
    max_epochs
        Of training; the model's default where None.
    condition_key, type_key, donor_key
        Columns of ``obs``.
    control, target
        Conditions.

    Returns
    -------
    For each type: ``overlap_top50`` (share of the judge's first 50 genes among the method's), ``spearman_lfc`` (rank
    correlation of fold changes over the genes that the judge tests), ``n_tested``, ``n_called`` of these, and
    ``false_calls`` (share of genes called between random halves of the type's controls).
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known; choose from {list(METHODS)}.")
    test = METHODS[method]
    scvi.settings.seed = seed
    tables = test(adata.copy(), condition_key, type_key, cell_types, control, target, max_epochs)
    halves = adata[(adata.obs[condition_key] == control).to_numpy()].copy()
    halves.obs["half"] = np.random.default_rng(seed).permutation(np.arange(halves.n_obs) % 2).astype(str)
    scvi.settings.seed = seed
    null = test(halves, "half", type_key, cell_types, "0", "1", max_epochs)
    results = {}
    for cell_type in cell_types:
        cells = adata[(adata.obs[type_key] == cell_type).to_numpy()]
        judge = paired_pseudobulk_test(cells, condition_key, donor_key, control, target)
        results[cell_type] = compare(tables[cell_type], judge)
        results[cell_type]["false_calls"] = float(null[cell_type]["called"].mean())
    return results


def compare(table: pd.DataFrame, judge: pd.DataFrame) -> dict[str, float]:
    """Agreement of a method's table (rank, lfc, called; by gene) with the judge's."""
    table = table.loc[judge.index]
    ours, theirs = (frame["rank"].nsmallest(N_TOP).index for frame in (table, judge))
    return {
        "overlap_top50": len(ours.intersection(theirs)) / len(theirs),
        "spearman_lfc": float(spearmanr(table["lfc"], judge["lfc"]).statistic),
        "n_tested": float(len(judge)),
        "n_called": float(table["called"].sum()),
    }


# The judge -------------------------------------------------------------------------------------------------------


def paired_pseudobulk_test(
    cells: AnnData, condition_key: str, donor_key: str, control: str, target: str
) -> pd.DataFrame:
    """The moderated paired t-test of limma (Smyth 2004) on pseudobulks: sums of counts by donor and condition.

    Values are log2((count + 0.5) / (total + 1) * 1e6). Genes are tested that have, in at least as many pseudobulks as
    there are donors, the counts per million that 10 counts are in the median pseudobulk (edgeR's rule).

    Returns
    -------
    DataFrame by gene: ``lfc`` (mean over donors), ``t``, ``p_value``, ``rank`` (by p-value, 1 first).
    """
    donors = sorted(set(cells.obs[donor_key]))
    sums = {}
    for condition in (control, target):
        mask = (cells.obs[condition_key] == condition).to_numpy()
        sums[condition] = np.stack(
            [np.asarray(cells.X[mask & (cells.obs[donor_key] == donor).to_numpy()].sum(0)).ravel() for donor in donors]
        )  # (donors, genes)
    totals = {condition: x.sum(1, keepdims=True) for condition, x in sums.items()}
    paired = (totals[control].ravel() > 0) & (totals[target].ravel() > 0)
    if paired.sum() < 3:
        raise ValueError(f"{int(paired.sum())} donors have cells of both conditions; a paired test needs at least 3.")
    sums, totals = ({condition: x[paired] for condition, x in part.items()} for part in (sums, totals))
    all_totals = np.concatenate([totals[control], totals[target]])
    enough = np.concatenate([sums[control], sums[target]]) / all_totals >= 10 / np.median(all_totals)
    tested = enough.sum(0) >= paired.sum()
    logs = {c: np.log2((sums[c][:, tested] + 0.5) / (totals[c] + 1) * 1e6) for c in (control, target)}
    t, p_value = moderated_t(logs[target] - logs[control])
    table = pd.DataFrame(
        {"lfc": (logs[target] - logs[control]).mean(0), "t": t, "p_value": p_value}, index=cells.var_names[tested]
    )
    table["rank"] = (-table["t"].abs()).rank(method="first")
    return table


def moderated_t(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moderated t statistics and p-values of zero mean, ``(genes,)``, with variances shrunk towards a common one.

    The prior of the variances, a scaled inverse chi-squared, is fitted to the genes by moments of log variances.
    """
    n = len(differences)
    variance, df = differences.var(0, ddof=1), n - 1
    log_variance = np.log(np.maximum(variance, 1e-12)) - digamma(df / 2) + np.log(df / 2)
    excess = log_variance.var(ddof=1) - polygamma(1, df / 2)
    if excess > 1e-6:
        prior_df = 2 * brentq(lambda x: polygamma(1, x) - excess, 1e-6, 1e8)
        prior = np.exp(log_variance.mean() + digamma(prior_df / 2) - np.log(prior_df / 2))
        variance, df = (prior_df * prior + df * variance) / (prior_df + df), prior_df + df
    else:
        variance, df = np.full_like(variance, np.exp(log_variance.mean())), np.inf
    t = differences.mean(0) / np.sqrt(variance / n)
    return t, 2 * student.sf(np.abs(t), df)


# The methods: tables (rank, lfc, called) by gene, for each type -----------------------------------------------------


def discovr_tables(adata, condition_key, type_key, cell_types, control, target, max_epochs) -> dict[str, pd.DataFrame]:
    """DISCOVR's differential expression within each type."""
    DISCOVR.setup_anndata(adata, condition_key=condition_key)
    model = DISCOVR(adata)
    model.train(max_epochs, enable_progress_bar=False)
    table = model.differential_expression(
        target=target, reference=control, groupby=type_key, groups=cell_types, fdr=FDR
    )
    tables = {}
    for cell_type, part in table.groupby("group", observed=True):
        part = part.set_index("gene")
        rank = np.arange(len(part)) + 1
        tables[cell_type] = pd.DataFrame({"rank": rank, "lfc": part["lfc"], "called": part["is_de"]}, index=part.index)
    return tables


def scvi_tables(adata, condition_key, type_key, cell_types, control, target, max_epochs) -> dict[str, pd.DataFrame]:
    """SCVI's differential expression ("change" mode) between the cells of both conditions."""
    scvi.model.SCVI.setup_anndata(adata)
    model = scvi.model.SCVI(adata)
    model.train(max_epochs, enable_progress_bar=False)
    tables = {}
    for cell_type in cell_types:
        masks = [
            ((adata.obs[type_key] == cell_type) & (adata.obs[condition_key] == condition)).to_numpy()
            for condition in (target, control)
        ]
        table = model.differential_expression(
            idx1=masks[0], idx2=masks[1], mode="change", fdr_target=FDR, all_stats=False, silent=True
        )
        rank = np.arange(len(table)) + 1
        called = table[f"is_de_fdr_{FDR}"]
        tables[cell_type] = pd.DataFrame({"rank": rank, "lfc": table["lfc_mean"], "called": called}, index=table.index)
    return tables


def wilcoxon_tables(adata, condition_key, type_key, cell_types, control, target, max_epochs) -> dict[str, pd.DataFrame]:
    """Wilcoxon's rank-sum test on the cells' log counts, with Benjamini and Hochberg's correction."""
    tables = {}
    for cell_type in cell_types:
        cells = adata[(adata.obs[type_key] == cell_type).to_numpy()].copy()
        cells.X = log_counts(cells.X)
        sc.tl.rank_genes_groups(cells, condition_key, groups=[target], reference=control, method="wilcoxon")
        table = sc.get.rank_genes_groups_df(cells, target).set_index("names")
        rank = (-table["scores"].abs()).rank(method="first")
        tables[cell_type] = pd.DataFrame(
            {"rank": rank, "lfc": table["logfoldchanges"], "called": table["pvals_adj"] < FDR}, index=table.index
        )
    return tables


METHODS: dict[str, Callable[..., dict[str, pd.DataFrame]]] = {
    "discovr": discovr_tables,
    "scvi": scvi_tables,
    "wilcoxon": wilcoxon_tables,
}
