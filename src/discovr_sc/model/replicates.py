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


class ModeratedT(NamedTuple):
    """Statistics ``(genes,)`` and their degrees of freedom."""

    t: np.ndarray
    df: float

    @property
    def p_value(self) -> np.ndarray:
        """Of both sides, ``(genes,)``."""
        return 2 * student.sf(np.abs(self.t), self.df)


def moderated_t(differences: np.ndarray) -> ModeratedT:
    """Limma's test (Smyth 2004) that differences ``(replicates, genes)`` have mean 0.

    Variances are shrunk towards a common one. Their prior, a scaled inverse chi-squared, is fitted to the genes by
    moments of log variances.
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
    return ModeratedT(differences.mean(0) / np.sqrt(variance / n), df)


def log2_per_million(sums: np.ndarray) -> np.ndarray:
    """Sums of counts ``(..., genes)`` as log2((count + 0.5) / (total + 1) * 1e6)."""
    return np.log2((sums + 0.5) / (sums.sum(-1, keepdims=True) + 1) * 1e6)


class Replicates:
    """Replicates that have cells in both of two populations.

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
        names = np.intersect1d(*(labels[cells] for cells in populations))
        if len(names) < LEAST_REPLICATES:
            raise ValueError(
                f"{len(names)} values of replicate_key {key!r} have cells of both conditions ({list(names)}); a test "
                f"over replicates needs at least {LEAST_REPLICATES}. Leave replicate_key out, or test larger groups."
            )
        self.names = names
        self.cells = [cells[np.isin(labels[cells], names)] for cells in populations]
        self._codes = [np.searchsorted(names, labels[cells]) for cells in self.cells]

    def test(self, model, adata: AnnData, n_draws: int, batch_size: int | None) -> ModeratedT:
        """The mean over draws of all cells' counts from the posterior predictive distribution.

        Counts are summed by replicate and condition, and their log fold changes within replicates tested.
        """
        target, reference = (log2_per_million(self._sums(model, adata, which, n_draws, batch_size)) for which in (0, 1))
        tests = [moderated_t(differences) for differences in target - reference]
        return ModeratedT(np.mean([test.t for test in tests], axis=0), float(np.mean([test.df for test in tests])))

    def _sums(self, model, adata: AnnData, which: int, n_draws: int, batch_size: int | None) -> np.ndarray:
        """Of drawn counts, ``(n_draws, replicates, genes)``."""
        sums = np.zeros((n_draws, len(self.names), adata.n_vars))
        start = 0
        for tensors in model._batches(adata, self.cells[which], batch_size, n_samples=n_draws):
            latents = model._latents_under(tensors, None, None, n_draws)
            drawn = model._decode(latents).sample().cpu().numpy().reshape(n_draws, -1, adata.n_vars)
            codes = self._codes[which][start : start + drawn.shape[1]]
            for code in np.unique(codes):
                sums[:, code] += drawn[:, codes == code].sum(1)
            start += drawn.shape[1]
        return sums
