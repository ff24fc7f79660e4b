"""Which cells each condition has."""

from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from discovr_sc.pl.figure import check_obs, colors_of, finish, new_axes


def composition(
    adata: AnnData,
    condition_key: str,
    cell_type_key: str,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Shares of the cell types in each condition, as stacked bars.

    Parameters
    ----------
    adata, condition_key, cell_type_key
        Cells, and columns of ``obs``. Types have the colours of ``uns["<cell_type_key>_colors"]``, where scanpy has put
        some.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> pl.composition(adata, "condition", "cell_type", show=False).get_xlabel()
    'share of cells'
    """
    check_obs(adata, condition_key=condition_key, cell_type_key=cell_type_key)
    counts = pd.crosstab(adata.obs[condition_key].astype(str), adata.obs[cell_type_key].astype("category"))
    shares = counts.div(counts.sum(axis=1), axis=0)
    colors = colors_of(adata, cell_type_key, shares.shape[1])
    ax = new_axes(ax, (6.4, 1.2 + 0.35 * len(shares)))
    left = np.zeros(len(shares))
    for name, color in zip(shares, colors, strict=True):
        ax.barh(shares.index, shares[name], left=left, color=color, label=str(name))
        left += shares[name].to_numpy()
    labels = [f"{name} ({total:,} cells)" for name, total in counts.sum(axis=1).items()]
    ax.set(xlabel="share of cells", xlim=(0, 1), yticks=range(len(shares)), yticklabels=labels)
    ax.invert_yaxis()
    ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, title=cell_type_key)
    return finish(ax, show, save)
