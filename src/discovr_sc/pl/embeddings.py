"""Pictures of the latents."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from matplotlib.axes import Axes

from discovr_sc.pl.figure import finish


def latents(
    adata: AnnData,
    color: str | Sequence[str],
    *,
    bases: str | Sequence[str] = ("X_discovr_z", "X_discovr_w"),
    n_neighbors: int = 15,
    seed: int = 0,
    ax: Axes | np.ndarray | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> np.ndarray:
    """UMAPs of latents: Axes with a row for each latent and a column for each colouring.

    Parameters
    ----------
    adata, color, bases
        Cells, columns of ``obs`` or genes, and keys of ``obsm`` with the latents; those of two dimensions are shown as
        they are. Columns have the colours of ``uns["<column>_colors"]``, where scanpy has put some; genes are shown as
        log(1 + counts per 10,000) of ``X``.
    n_neighbors, seed
        Of the UMAP.
    ax
        Axes to draw on: one, or an array with a row for each latent and a column for each colouring.
    show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> cells = adata.copy()
    >>> cells.obsm["X_discovr_z"] = cells.X[:, :5].toarray()
    >>> pl.latents(cells, ["condition", "cell_type"], bases=["X_discovr_z"], show=False).shape
    (1, 2)
    """
    color = [color] if isinstance(color, str) else list(color)
    bases = [bases] if isinstance(bases, str) else list(bases)
    for key in bases:
        if key not in adata.obsm:
            raise KeyError(f"{key!r} is not in adata.obsm; it has {list(adata.obsm)}. Store the latent there first.")
    for key in color:
        if key not in adata.obs and key not in adata.var_names:
            columns = list(adata.obs.columns)
            raise KeyError(f"color {key!r} is neither a column of adata.obs, which has {columns}, nor a gene.")
    # Imported here because it takes seconds.
    import scanpy as sc

    axes = _panels(ax, len(bases), len(color))
    for row, key in zip(axes, bases, strict=True):
        drawing, axis_label = _to_two_dimensions(adata, key, n_neighbors, seed)
        for gene in set(color) - set(adata.obs):
            drawing.obs[gene] = _expression(adata, gene).loc[drawing.obs_names]
        for panel, column in zip(row, color, strict=True):
            sc.pl.embedding(drawing, "X_drawn", color=column, ax=panel, show=False, frameon=True)
            panel.set(title=f"{key} by {column}", xlabel=f"{axis_label} 1", ylabel=f"{axis_label} 2")
    return finish(axes, show, save)


def _expression(adata: AnnData, gene: str) -> pd.Series:
    """log(1 + counts per 10,000) of a gene."""
    totals = np.maximum(np.asarray(adata.X.sum(axis=1)).ravel(), 1e-12)
    return pd.Series(np.log1p(1e4 * adata.obs_vector(gene) / totals), index=adata.obs_names)


def _panels(ax: Axes | np.ndarray | None, n_rows: int, n_columns: int) -> np.ndarray:
    """The Axes given, as an array of that shape, or those of a new figure."""
    if ax is None:
        size = (5.6 * n_columns, 4.2 * n_rows)
        return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")[1]
    axes = np.asarray(ax, dtype=object)
    if axes.size != n_rows * n_columns:
        needed = f"{n_rows} latents (bases) in {n_columns} colourings (color) need {n_rows * n_columns}"
        raise ValueError(f"ax has {axes.size} Axes, but {needed}.")
    return axes.reshape(n_rows, n_columns)


def to_plane(latent: np.ndarray, *, n_neighbors: int = 15, seed: int = 0) -> np.ndarray:
    """Two coordinates of every cell: a UMAP, or the latent itself where it has two dimensions.

    Keep them in ``adata.obsm`` to draw them again, without waiting, with :func:`latents`.

    Parameters
    ----------
    latent
        Cells in rows.
    n_neighbors, seed
        Of the UMAP.

    Examples
    --------
    >>> pl.to_plane(adata.X[:, :5].toarray()).shape
    (200, 2)
    """
    latent = np.asarray(latent)
    if latent.shape[1] == 2:
        return latent
    # numba, inside, would leave torch with another number of threads; umap takes seconds to import.
    n_threads = torch.get_num_threads()
    from umap import UMAP

    plane = UMAP(n_neighbors=n_neighbors, random_state=seed, n_jobs=1).fit_transform(latent)
    torch.set_num_threads(n_threads)
    return plane


def _to_two_dimensions(adata: AnnData, key: str, n_neighbors: int, seed: int) -> tuple[AnnData, str]:
    """A shuffled copy of the cells (so that none hides the others) with two coordinates, and the axes' name."""
    latent = np.asarray(adata.obsm[key])
    label = key.removeprefix("X_") if latent.shape[1] == 2 else "UMAP"
    plane = to_plane(latent, n_neighbors=n_neighbors, seed=seed)
    colors = {name: value for name, value in adata.uns.items() if name.endswith("_colors")}
    drawing = AnnData(obs=adata.obs.copy(), obsm={"X_drawn": plane}, uns=colors)
    order = np.random.default_rng(seed).permutation(drawing.n_obs)
    return drawing[order].copy(), label
