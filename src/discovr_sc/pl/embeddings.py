"""Pictures of the latents."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from anndata import AnnData
from matplotlib.axes import Axes

from discovr_sc.pl.figure import expression, finish, new_axes, new_panels


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

    A UMAP is kept as ``obsm["<basis>_umap"]``, and drawn again without waiting until the latent, ``n_neighbors`` or
    ``seed`` is another. Views keep nothing.

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
    >>> cells.obsm["X_discovr_z_umap"].shape
    (200, 2)
    """
    color = [color] if isinstance(color, str) else list(color)
    bases = [bases] if isinstance(bases, str) else list(bases)
    for key in bases:
        _check_basis(adata, key)
    for key in color:
        if key not in adata.obs and key not in adata.var_names:
            columns = list(adata.obs.columns)
            raise KeyError(f"color {key!r} is neither a column of adata.obs, which has {columns}, nor a gene.")
    # Imported here because it takes seconds.
    import scanpy as sc

    shape = (len(bases), len(color))
    axes = new_panels(ax, shape, (5.6, 4.2), f"{shape[0]} latents (bases) in {shape[1]} colourings (color)")
    genes = [key for key in color if key not in adata.obs]
    for row, key in zip(axes, bases, strict=True):
        drawing, axis_label = _to_two_dimensions(adata, key, n_neighbors, seed)
        if genes:
            drawing.obs[genes] = expression(adata, genes).loc[drawing.obs_names]
        for panel, column in zip(row, color, strict=True):
            sc.pl.embedding(drawing, "X_drawn", color=column, ax=panel, show=False, frameon=True)
            panel.set(title=f"{key} by {column}", xlabel=f"{axis_label} 1", ylabel=f"{axis_label} 2")
    return finish(axes, show, save)


def response(
    adata: AnnData,
    effect: AnnData,
    *,
    basis: str = "X_discovr_z",
    n_neighbors: int = 15,
    seed: int = 0,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """How far the condition moves each cell, on a UMAP of what all conditions share.

    Parameters
    ----------
    adata, basis
        Cells, and the key of ``obsm`` with the latent; its UMAP is kept as in :func:`latents`.
    effect
        From ``model.get_condition_effect``. Cells that it lacks are grey; those beyond the highest percentile have the
        last colour.
    n_neighbors, seed
        Of the UMAP.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> cells = adata.copy()
    >>> cells.obsm["X_discovr_z"] = cells.X[:, :2].toarray()
    >>> effect = model.get_condition_effect(n_samples=2, per_cell=False)
    >>> pl.response(cells, effect, show=False).get_title()
    'response to the condition (nats)'
    """
    _check_basis(adata, basis)
    if "response" not in effect.obs:
        raise KeyError("effect.obs has no column 'response'; pass what model.get_condition_effect returns.")
    if not effect.obs_names.isin(adata.obs_names).any():
        raise ValueError("effect has none of the cells of adata; pass the AnnData that it was computed for.")
    import scanpy as sc

    ax = new_axes(ax, (5.6, 4.2))
    drawing, axis_label = _to_two_dimensions(adata, basis, n_neighbors, seed)
    drawing.obs["response"] = effect.obs["response"].reindex(drawing.obs_names)
    sc.pl.embedding(drawing, "X_drawn", color="response", vmin=0, vmax="p99", cmap="viridis", ax=ax, show=False)
    against = effect.uns.get("condition_effect", {}).get("against", "marginal")
    title = "response to the condition (nats)" if against == "marginal" else f"difference from {against} (nats)"
    ax.set(title=title, xlabel=f"{axis_label} 1", ylabel=f"{axis_label} 2")
    return finish(ax, show, save)


def to_plane(latent: np.ndarray, *, n_neighbors: int = 15, seed: int = 0) -> np.ndarray:
    """Two coordinates of every cell: a UMAP, or the latent itself where it has two dimensions.

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


def _check_basis(adata: AnnData, key: str) -> None:
    if key not in adata.obsm:
        raise KeyError(f"{key!r} is not in adata.obsm; it has {list(adata.obsm)}. Store the latent there first.")


def _kept_plane(adata: AnnData, key: str, n_neighbors: int, seed: int) -> np.ndarray:
    """The UMAP of ``obsm[key]`` that an earlier plot kept, or a new one, which is kept."""
    latent = np.ascontiguousarray(adata.obsm[key])
    if latent.shape[1] == 2:
        return latent
    made_of = {"n_neighbors": n_neighbors, "seed": seed, "checksum": zlib.crc32(latent.tobytes())}
    name = f"{key}_umap"
    if name in adata.obsm and adata.uns.get(name) == made_of:
        return np.asarray(adata.obsm[name])
    plane = to_plane(latent, n_neighbors=n_neighbors, seed=seed)
    if not adata.is_view:
        adata.obsm[name], adata.uns[name] = plane, made_of
    return plane


def _to_two_dimensions(adata: AnnData, key: str, n_neighbors: int, seed: int) -> tuple[AnnData, str]:
    """A shuffled copy of the cells (so that none hides the others) with two coordinates, and the axes' name."""
    label = key.removeprefix("X_") if adata.obsm[key].shape[1] == 2 else "UMAP"
    plane = _kept_plane(adata, key, n_neighbors, seed)
    colors = {name: value for name, value in adata.uns.items() if name.endswith("_colors")}
    drawing = AnnData(obs=adata.obs.copy(), obsm={"X_drawn": plane}, uns=colors)
    order = np.random.default_rng(seed).permutation(drawing.n_obs)
    return drawing[order].copy(), label
