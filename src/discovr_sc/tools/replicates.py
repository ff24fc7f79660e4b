"""Changes that replicates agree on: pseudobulks of the measured counts, tested as limma tests them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import chi2, false_discovery_control, trim_mean
from scipy.stats import t as student

from discovr_sc.model.checks import check_columns

#: Replicates that a variance can be estimated from.
LEAST_REPLICATES = 3
#: Share of the genes, at either end, that do not count when pseudobulks are put on one scale.
TRIMMED = 0.3


class TooFewReplicates(ValueError):
    """A variance over replicates cannot be estimated."""


class Side(NamedTuple):
    """Values of one condition (or differences of two), ``(replicates, genes)``, and how noisy counting makes each."""

    values: np.ndarray
    #: Variance of a value that comes from the number of counts alone.
    noise: np.ndarray


class ModeratedT(NamedTuple):
    """Effects and statistics ``(genes,)``, and the degrees of freedom."""

    effect: np.ndarray
    t: np.ndarray
    df: float

    @property
    def p_value(self) -> np.ndarray:
        """Of both sides, ``(genes,)``."""
        return 2 * student.sf(np.abs(self.t), self.df)


def moderated_t(*sides: Side) -> ModeratedT:
    """Limma's test (Smyth 2004) that the values of a side have mean 0, or that two sides have the same mean.

    Values with few counts weigh less: the variance of a value is that of its counting, and one that all genes share,
    times a factor of the gene. Factors are shrunk towards a common one. Their prior, a scaled inverse chi-squared, is
    fitted to the genes by moments of log variances.
    """
    df = sum(len(values) - 1 for values, _ in sides)
    typical = chi2.median(df) / df

    def too_small(log_shared: float) -> float:
        return float(np.median(_weighted(sides, np.exp(log_shared), df)[1])) - typical

    # The variance with which the factor of the median gene is 1 (Paule and Mandel 1982).
    low, high = np.log(1e-6), np.log(1e3)
    shared = brentq(too_small, low, high) if too_small(low) > 0 else low
    effect, variance, unit = _weighted(sides, np.exp(shared), df)
    variance, total_df = shrunken_variance(variance, df)
    return ModeratedT(effect, effect / np.sqrt(variance * unit), total_df)


def _weighted(sides: Sequence[Side], shared: float, df: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effects, factors of the variances, and what these are multiplied by to give that of the effect; ``(genes,)``."""
    effect, variance, unit = 0.0, 0.0, 0.0
    for sign, (values, noise) in zip((1, -1), sides, strict=False):
        weights = 1 / (noise + shared)
        mean = (weights * values).sum(0) / weights.sum(0)
        effect = effect + sign * mean
        variance = variance + (weights * (values - mean) ** 2).sum(0) / df
        unit = unit + 1 / weights.sum(0)
    return np.asarray(effect), np.asarray(variance), np.asarray(unit)


def shrunken_variance(variance: np.ndarray, df: float) -> tuple[np.ndarray, float]:
    """Limma's posterior variances of genes, ``(genes,)``, and their degrees of freedom; of few genes, their own."""
    if len(variance) < 3:
        return np.maximum(variance, 1e-12), df
    log_variance = np.log(np.maximum(variance, 1e-12)) - digamma(df / 2) + np.log(df / 2)
    excess = log_variance.var(ddof=1) - polygamma(1, df / 2)
    if excess <= 1e-6:  # no more spread than chance
        return np.full_like(variance, np.exp(log_variance.mean())), np.inf
    prior_df = 2 * brentq(lambda x: polygamma(1, x) - excess, 1e-6, 1e8)
    prior = np.exp(log_variance.mean() + digamma(prior_df / 2) - np.log(prior_df / 2))
    return (prior_df * prior + df * variance) / (prior_df + df), prior_df + df


def expressed(sums: np.ndarray, n_least: int) -> np.ndarray:
    """Genes with enough counts for a test, edgeR's rule: of sums ``(pseudobulks, genes)``, a mask ``(genes,)``.

    In at least ``n_least`` pseudobulks they have the counts per million that 10 counts are in the median one.
    """
    totals = sums.sum(1, keepdims=True)
    return (sums / totals >= 10 / np.median(totals)).sum(0) >= n_least


def log2_per_million(sums: np.ndarray) -> np.ndarray:
    """Log2 counts per million of sums ``(pseudobulks, genes)``.

    As in edgeR half a count is added, more to large pseudobulks and less to small ones: else a gene with hardly any
    counts would fall as the total rises.
    """
    total = sums.sum(-1, keepdims=True)
    added = 0.5 * total / total.mean()
    return np.log2((sums + added) / (total + 2 * added) * 1e6)


class Replicates:
    """Replicates of two populations: those that have cells in both, or, where there are none, those of either.

    ``key`` is the column of ``obs`` that names them; populations are rows of cells of the target and the reference.
    """

    def __init__(self, adata: AnnData, key: str, populations: Sequence[np.ndarray]):
        if not isinstance(key, str):
            raise TypeError(f"replicate_key={key!r}; give the name of one column of adata.obs.")
        check_columns(adata, [key], "replicate_key")
        if adata.obs[key].iloc[np.concatenate(populations)].isna().any():
            raise ValueError(f"replicate_key {key!r} has missing values; fill them in or drop these cells.")
        labels = adata.obs[key].astype(str).to_numpy()
        target, reference = (np.unique(labels[cells]) for cells in populations)
        both = np.intersect1d(target, reference)
        self.paired = len(both) > 0
        #: Names of those that are left out, as they have one condition and others have both.
        self.left_out = np.setxor1d(target, reference) if self.paired else both
        self.names = [both, both] if self.paired else [target, reference]
        if min(map(len, self.names)) < LEAST_REPLICATES:
            numbers = f"{len(both)} have cells of both conditions ({list(both)})"
            if not self.paired:
                numbers = " and ".join(str(len(names)) for names in self.names) + " have cells of the two conditions"
            raise TooFewReplicates(
                f"of the values of replicate_key {key!r}, {numbers}; a test over replicates needs at least "
                f"{LEAST_REPLICATES}. Leave replicate_key out, or test larger groups."
            )
        sides = zip(populations, self.names, strict=True)
        self.cells = [cells[np.isin(labels[cells], names)] for cells, names in sides]
        sides = zip(self.cells, self.names, strict=True)
        self._numbers = [np.searchsorted(names, labels[cells]) for cells, names in sides]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.names[0]) if self.paired else sum(map(len, self.names))

    def pseudobulks(self, counts: np.ndarray | sparse.spmatrix) -> list[np.ndarray]:
        """Sums of all cells' counts ``(cells, genes)`` by replicate, of the target and the reference."""
        sums = []
        for cells, numbers, names in zip(self.cells, self._numbers, self.names, strict=True):
            of_replicate = sparse.csr_array((np.ones(len(cells)), (numbers, np.arange(len(cells)))))
            total = of_replicate @ counts[cells]
            sums.append((total.toarray() if sparse.issparse(total) else np.asarray(total)).reshape(len(names), -1))
        return sums

    def test(self, counts: np.ndarray | sparse.spmatrix) -> pd.DataFrame:
        """The test of all cells' counts ``(cells, genes)``.

        Sums by replicate and condition are tested as logarithms: within replicates that have both conditions, else
        between those of one and of the other. The result has a row for each gene: ``lfc_replicates`` (log2 fold
        change over replicates), ``t``, ``p_value`` and ``p_adjusted`` (Benjamini and Hochberg), missing where counts
        are too few.
        """
        sums = self.pseudobulks(counts)
        tested = expressed(np.concatenate(sums), min(map(len, self.names)))
        columns = ["lfc_replicates", "t", "p_value", "p_adjusted"]
        if not tested.any():
            return pd.DataFrame(index=range(len(tested)), columns=columns, dtype=float)
        logs = log2_per_million(np.concatenate(sums))[:, tested]
        # Where some genes rise much, all others' shares of the total fall: most genes are taken not to change.
        logs -= trim_mean(logs - logs.mean(0), TRIMMED, axis=1)[:, None]
        sides = []
        for part, values in zip(sums, np.split(logs, [len(sums[0])]), strict=True):
            expected = part.sum(1, keepdims=True) * part[:, tested].sum(0) / part.sum()
            sides.append(Side(values, 1 / np.log(2) ** 2 / (expected + 0.5)))
        if self.paired:
            target, reference = sides
            sides = [Side(target.values - reference.values, target.noise + reference.noise)]
        test = moderated_t(*sides)
        found = test.effect, test.t, test.p_value, false_discovery_control(test.p_value)
        table = pd.DataFrame(dict(zip(columns, found, strict=True)), index=np.flatnonzero(tested))
        return table.reindex(range(len(tested)))
