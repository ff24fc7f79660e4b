"""Changes that replicates agree on: cells of one donor are not independent of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from anndata import AnnData
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
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


def log2_per_million(sums: np.ndarray) -> np.ndarray:
    """Sums of counts ``(..., genes)`` as log2((count + 0.5) / (total + 1) * 1e6)."""
    return np.log2((sums + 0.5) / (sums.sum(-1, keepdims=True) + 1) * 1e6)


class Replicates:
    """Replicates of two populations: those that have cells in both, or, where there are none, those of either.

    Parameters
    ----------
    adata, key
        Cells, and the column of ``obs`` that names their replicates.
    populations
        Rows of the cells of the target and of the reference.
    """

    def __init__(self, adata: AnnData, key: str, populations: Sequence[np.ndarray]):
        check_columns(adata, [key], "replicate_key")
        labels = adata.obs[key]
        missing = labels.isna().to_numpy()
        if any(missing[cells].any() for cells in populations):
            raise ValueError(f"replicate_key {key!r} has missing values; fill them in or drop these cells.")
        labels = labels.astype(str).to_numpy()
        self.names = [np.unique(labels[cells]) for cells in populations]
        both = np.intersect1d(*self.names)
        self.paired = len(both) > 0
        if self.paired:
            self.names = [both, both]
        if min(map(len, self.names)) < LEAST_REPLICATES:
            numbers = f"{len(both)} have cells of both"
            if not self.paired:
                numbers = " and ".join(str(len(names)) for names in self.names) + " have cells of the two"
            raise TooFewReplicates(
                f"of the values of replicate_key {key!r}, {numbers} conditions; a test over replicates needs at least "
                f"{LEAST_REPLICATES}. Leave replicate_key out, or test larger groups."
            )
        self.cells = [
            cells[np.isin(labels[cells], names)] for cells, names in zip(populations, self.names, strict=True)
        ]
        self._codes = [
            np.searchsorted(names, labels[cells]) for cells, names in zip(self.cells, self.names, strict=True)
        ]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.names[0]) if self.paired else sum(map(len, self.names))

    def test(self, model, adata: AnnData, n_draws: int, batch_size: int | None) -> ModeratedT:
        """The mean over draws of all cells' counts from the posterior predictive distribution.

        Counts are summed by replicate and condition, and tested as logarithms: within replicates that have both
        conditions, else between those of one and of the other.
        """
        logs = [log2_per_million(self._sums(model, adata, which, n_draws, batch_size)) for which in (0, 1)]
        tests = [
            moderated_t(target - reference) if self.paired else moderated_t(target, reference)
            for target, reference in zip(*logs, strict=True)
        ]
        return ModeratedT(np.mean([test.t for test in tests], axis=0), float(np.mean([test.df for test in tests])))

    def _sums(self, model, adata: AnnData, which: int, n_draws: int, batch_size: int | None) -> np.ndarray:
        """Of drawn counts, ``(n_draws, replicates, genes)``."""
        sums = np.zeros((n_draws, len(self.names[which]), adata.n_vars))
        start = 0
        for tensors in model._batches(adata, self.cells[which], batch_size, n_samples=n_draws):
            latents = model._latents_under(tensors, None, None, n_draws)
            drawn = model._decode(latents).sample().cpu().numpy().reshape(n_draws, -1, adata.n_vars)
            codes = self._codes[which][start : start + drawn.shape[1]]
            for code in np.unique(codes):
                sums[:, code] += drawn[:, codes == code].sum(1)
            start += drawn.shape[1]
        return sums
