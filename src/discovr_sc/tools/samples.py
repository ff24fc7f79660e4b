"""How conditions, or donors, differ as wholes: in w, and in where their cells lie in z."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.special import logsumexp

from discovr_sc.model.checks import check_columns, check_whole_number

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Numbers of one matrix of densities.
MAX_FLOATS = 10_000_000


def get_w_differences(
    model: ModelInterface,
    adata: AnnData | None = None,
    *,
    sample_key: str | None = None,
    groupby: str | None = None,
    batch_size: int | None = None,
) -> pd.DataFrame:
    """Differences in w between conditions or donors, within each group of cells.

    w holds what the condition changes, so conditions that act alike are near each other in it.
    :func:`discovr_sc.pl.condition_tree` draws the result.

    Parameters
    ----------
    adata, batch_size
        See :meth:`get_latent_representation`. Cells of unknown condition or sample are left out.
    sample_key
        Column of ``obs`` with what to compare, such as donors; the condition by default.
    groupby
        Column of ``obs``, such as the cell type: samples are compared within each of its groups, so that a difference
        in their composition does not count. All cells are one group by default.

    Returns
    -------
    DataFrame with a row for each group and pair of samples that have at least two cells there: ``group``, ``first``,
    ``second``, ``distance`` between their mean w (what the sampling of cells adds to it is taken away), numbers of
    cells, and ``w_0``, ``w_1``, ...: the mean w of the second less that of the first.

    Examples
    --------
    >>> table = model.get_w_differences(groupby="cell_type")
    >>> list(table.columns)
    ['group', 'first', 'second', 'distance', 'n_first', 'n_second', 'w_0', 'w_1']
    """
    model.check_trained()
    adata = model.validate(adata)
    labels = _samples(model, adata, sample_key)
    groups = pd.Series("all", index=adata.obs_names)
    if groupby is not None:
        check_columns(adata, [groupby], "groupby")
        groups = adata.obs[groupby].astype(object)
    known = labels.notna().to_numpy() & groups.notna().to_numpy() & model.is_known(adata)
    rows = np.flatnonzero(known)
    w = pd.DataFrame(model.get_latent_representation(adata, rows, kind="w", batch_size=batch_size)).add_prefix("w_")
    found = []
    for group, cells in w.groupby(groups.to_numpy()[rows]):
        by_sample = cells.groupby(labels.to_numpy()[rows[cells.index]])
        samples = {name: part for name, part in by_sample if len(part) > 1}
        for first, second in combinations(samples, 2):
            one, other = samples[first], samples[second]
            difference = other.mean() - one.mean()
            noise = sum(part.var().sum() / len(part) for part in (one, other))
            distance = np.sqrt(max(float((difference**2).sum() - noise), 0.0))
            row = {"group": group, "first": first, "second": second, "distance": distance}
            found.append(row | {"n_first": len(one), "n_second": len(other)} | difference.to_dict())
    if not found:
        raise ValueError(
            f"no group of groupby={groupby!r} has two cells each of two samples of sample_key={sample_key!r}; choose "
            "larger groups, or another column."
        )
    return pd.DataFrame(found)


def differential_abundance(
    model: ModelInterface,
    adata: AnnData | None = None,
    sample_key: str | None = None,
    *,
    num_cells_posterior: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> pd.DataFrame:
    """Where in z each sample has many cells: for every cell, the log density of each sample's cells there.

    The difference of two columns tells how many times more frequent cells like this one are in one sample than in the
    other, as a natural logarithm. It is scvi-tools' method of this name, which takes a cell for its own neighbour; here
    a cell does not count where it lies itself.

    Parameters
    ----------
    adata, batch_size
        See :meth:`get_latent_representation`.
    sample_key
        Column of ``obs`` with samples, such as donors; the condition by default.
    num_cells_posterior, seed
        Cells of a sample that its density is made of, at most; all by default. Drawn with a seed.

    Returns
    -------
    DataFrame of cells by samples; also in ``adata.obsm["da_log_probs"]``, as in scvi-tools.

    Examples
    --------
    >>> density = model.differential_abundance()
    >>> more_in_treated = density["treated_1"] - density["control"]
    >>> len(more_in_treated)
    200
    """
    model.check_trained()
    if num_cells_posterior is not None:
        check_whole_number("num_cells_posterior", num_cells_posterior, at_least=2)
    adata = model.validate(adata)
    labels = _samples(model, adata, sample_key)
    mean, variance = model.get_latent_representation(adata, return_dist=True, batch_size=batch_size)
    rng, columns = np.random.default_rng(seed), {}
    for name in labels.dropna().unique():
        cells = np.flatnonzero((labels == name).to_numpy())
        if len(cells) < 2:
            raise ValueError(f"sample {name!r} has one cell; drop it, as a density needs at least two.")
        if num_cells_posterior is not None and num_cells_posterior < len(cells):
            cells = np.sort(rng.choice(cells, num_cells_posterior, replace=False))
        block = max(1, MAX_FLOATS // len(cells))
        parts = np.split(np.arange(len(mean)), range(block, len(mean), block))
        columns[name] = np.concatenate([_log_density(mean, variance, part, cells) for part in parts])
    table = pd.DataFrame(columns, index=adata.obs_names)
    adata.obsm["da_log_probs"] = table
    return table


def _log_density(mean: np.ndarray, variance: np.ndarray, at: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Log density ``(at,)`` at the means of some cells of the mixture of others' posteriors, each but its own."""
    x, m, precision = mean[at].astype(float), mean[of].astype(float), 1 / variance[of].astype(float)
    square = x**2 @ precision.T - 2 * x @ (m * precision).T + (m**2 * precision).sum(1)
    log_p = -0.5 * (square - np.log(precision / (2 * np.pi)).sum(1))
    is_own = at[:, None] == of
    log_p[is_own] = -np.inf
    return logsumexp(log_p, axis=1) - np.log(len(of) - is_own.sum(1))


def _samples(model: ModelInterface, adata: AnnData, sample_key: str | None) -> pd.Series:
    """The sample of each cell."""
    if sample_key is None:
        indices = model.condition_indices(adata)
        names = [str(model.conditions[i]) if i >= 0 else None for i in indices]
        return pd.Series(names, index=adata.obs_names, dtype=object)
    check_columns(adata, [sample_key], "sample_key")
    return adata.obs[sample_key].astype(object)
