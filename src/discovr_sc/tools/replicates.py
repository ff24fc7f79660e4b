"""Changes that replicates agree on: cells of one donor are not independent of each other."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import hmean
from scipy.stats import t as student

from discovr_sc.model.checks import check_columns

#: Replicates that a variance can be estimated from.
LEAST_REPLICATES = 3


class TooFewReplicates(ValueError):
    """A variance over replicates cannot be estimated."""


class ModeratedT(NamedTuple):
    """Statistics ``(genes,)`` and their degrees of freedom."""

    t: np.ndarray
    df: float

    @property
    def p_value(self) -> np.ndarray:
        """Of both sides, ``(genes,)``."""
        return 2 * student.sf(np.abs(self.t), self.df)


def moderated_t(values: np.ndarray, others: np.ndarray | None = None) -> ModeratedT:
    """Limma's test (Smyth 2004) that values ``(replicates, genes)`` have mean 0, or the same mean as others.

    Variances are shrunk towards a common one. Their prior, a scaled inverse chi-squared, is fitted to the genes by
    moments of log variances.
    """
    df: float
    if others is None:
        df, unit = len(values) - 1, 1 / len(values)
        mean, variance = values.mean(0), values.var(0, ddof=1)
    else:
        df, unit = len(values) + len(others) - 2, 1 / len(values) + 1 / len(others)
        mean = values.mean(0) - others.mean(0)
        variance = (len(values) * values.var(0) + len(others) * others.var(0)) / df
    log_variance = np.log(np.maximum(variance, 1e-12)) - digamma(df / 2) + np.log(df / 2)
    excess = log_variance.var(ddof=1) - polygamma(1, df / 2)
    if excess > 1e-6:
        prior_df = 2 * brentq(lambda x: polygamma(1, x) - excess, 1e-6, 1e8)
        prior = np.exp(log_variance.mean() + digamma(prior_df / 2) - np.log(prior_df / 2))
        variance, df = (prior_df * prior + df * variance) / (prior_df + df), prior_df + df
    else:
        variance, df = np.full_like(variance, np.exp(log_variance.mean())), np.inf
    return ModeratedT(mean / np.sqrt(variance * unit), df)


def expressed(sums: np.ndarray, n_least: int) -> np.ndarray:
    """Genes with enough counts for a test, edgeR's rule: of sums ``(pseudobulks, genes)``, a mask ``(genes,)``.

    In at least ``n_least`` pseudobulks they have the counts per million that 10 counts are in the median one.
    """
    totals = sums.sum(1, keepdims=True)
    return (sums / totals >= 10 / np.median(totals)).sum(0) >= n_least


def log2_per_million(sums: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Log2 counts per million of sums ``(..., replicates, genes)``.

    As in edgeR half a count is added, more to large pseudobulks and less to small ones (their totals, over all that are
    compared, are ``totals``): else a gene with hardly any counts would fall as the total rises.
    """
    total = sums.sum(-1, keepdims=True)
    added = 0.5 * total / totals.mean()
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

    def test(self, draw: Callable[[np.ndarray], Iterable[np.ndarray]]) -> pd.DataFrame:
        """The mean over draws of tests of all cells' counts.

        Counts are summed by replicate and condition, and tested as logarithms: within replicates that have both
        conditions, else between those of one and of the other. ``draw`` gives, for rows of cells and in their order,
        draws of the counts of some of them at a time, ``(n_draws, n, genes)``. The result has a row for each gene:
        ``lfc_replicates`` (the mean log2 fold change of sums), ``t`` and ``p_value``, missing where counts are too few.
        """
        sums = [self._sums(draw, which) for which in (0, 1)]
        tested = expressed(np.concatenate([part.mean(0) for part in sums]), min(map(len, self.names)))
        totals = np.concatenate([part.sum(-1) for part in sums], axis=1)
        target, reference = (log2_per_million(part, totals)[..., tested] for part in sums)
        pairs = zip(target, reference, strict=True)
        tests = [moderated_t(one - other) if self.paired else moderated_t(one, other) for one, other in pairs]
        df = hmean([test.df for test in tests])  # some may be infinite
        test = ModeratedT(np.mean([test.t for test in tests], axis=0), df)
        columns = {"lfc_replicates": target.mean((0, 1)) - reference.mean((0, 1)), "t": test.t, "p_value": test.p_value}
        return pd.DataFrame(columns, index=np.flatnonzero(tested)).reindex(range(len(tested)))

    def _sums(self, draw: Callable[[np.ndarray], Iterable[np.ndarray]], which: int) -> np.ndarray:
        """Of drawn counts, ``(n_draws, replicates, genes)``."""
        sums, start = 0.0, 0
        for drawn in draw(self.cells[which]):
            numbers = self._numbers[which][start : start + drawn.shape[1]]
            # (n_draws, genes, n) times (n, replicates)
            of_replicate = numbers[:, None] == np.arange(len(self.names[which]))
            sums = sums + np.swapaxes(np.swapaxes(drawn, 1, 2) @ of_replicate.astype(drawn.dtype), 1, 2)
            start += drawn.shape[1]
        return np.asarray(sums, dtype=float)
