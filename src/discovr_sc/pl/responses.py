"""Pictures of which genes respond in which cell types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpecFromSubplotSpec

from discovr_sc.pl.figure import check_obs, expression, finish, new_axes
from discovr_sc.pl.tables import pick_groups, tested, top_genes

#: Ink of an upset plot: members of an intersection, and the others.
MEMBER, OTHER = "0.2", "0.87"


def response_heatmap(
    table: pd.DataFrame,
    *,
    groups: str | Sequence[str] | None = None,
    n_genes: int = 5,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Log fold changes of the genes that respond most, by cell type.

    A dot marks genes that are called. Grey are those that a test over replicates leaves out, for their few counts.

    Parameters
    ----------
    table
        From ``model.differential_expression(groupby=...)``.
    groups
        Some of its groups; all by default.
    n_genes
        Genes to take from each group: the first of those that are called there.
    ax, show, save
        See :func:`gene_variance`; drawn by ``scanpy.pl.MatrixPlot``.

    Examples
    --------
    >>> table = pd.DataFrame({"group": ["B", "B", "NK", "NK"], "gene": ["ISG15", "CD74"] * 2, "lfc": [3.0, -1, 2, 0],
    ...                       "proba_de": [1.0, 1, 1, 0], "is_de": [True, True, True, False]})
    >>> [label.get_text() for label in pl.response_heatmap(table, show=False).get_xticklabels()]
    ['ISG15', 'CD74']
    """
    from scanpy.pl import MatrixPlot  # takes seconds

    names = pick_groups(table, groups)
    genes = top_genes(table, names, n_genes)
    wide = {name: tested(table, name).set_index("gene").reindex(genes) for name in names}
    changes = pd.DataFrame({name: part["change"] for name, part in wide.items()}).T
    labels = pd.Categorical([str(name) for name in names], categories=[str(name) for name in names])
    frame = AnnData(np.zeros(changes.shape), obs=pd.DataFrame({"group": labels}, index=list(labels)))
    frame.var_names = genes
    limit = float(np.nanmax(np.abs(changes.to_numpy())))
    changes.index = pd.CategoricalIndex(labels)
    drawn = MatrixPlot(
        frame,
        genes,
        "group",
        values_df=changes,
        vmin=-limit,
        vmax=limit,
        cmap="RdBu_r",
        ax=ax,
        **_size(len(names), genes),
    )
    drawn.style(cmap="RdBu_r", edge_color="none").legend(title="log2 fold change").make_figure()
    main = drawn.get_axes()["mainplot_ax"]
    main.set_facecolor("0.85")  # seen where there is no fold change
    for row, part in enumerate(wide.values()):
        called = np.flatnonzero(part["is_de"].eq(True))
        # White on the strong colours of the map, black on its pale middle.
        strong = np.abs(part["change"].to_numpy(dtype=float)[called]) > 0.6 * limit
        main.scatter(called + 0.5, np.full(len(called), row + 0.5), s=5, c=np.where(strong, "white", "black"))
    return finish(main, show, save, tight=True)


def response_dotplot(
    table: pd.DataFrame,
    adata: AnnData,
    condition_key: str,
    cell_type_key: str,
    *,
    groups: str | Sequence[str] | None = None,
    n_genes: int = 5,
    layer: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Measured expression of the genes that respond most, by cell type and condition.

    Parameters
    ----------
    table
        From ``model.differential_expression(groupby=cell_type_key)``.
    adata, condition_key, cell_type_key
        Cells with raw counts, and columns of ``obs``. Conditions that the table does not compare are left out.
    groups, n_genes
        See :func:`response_heatmap`.
    layer
        With the counts; ``X`` by default.
    ax, show, save
        See :func:`gene_variance`; drawn by ``scanpy.pl.DotPlot``, where each gene has its own scale of colour.

    Examples
    --------
    >>> table = pd.DataFrame({"group": "type_0", "gene": adata.var_names[:2], "lfc": [3.0, -1], "proba_de": 1.0,
    ...                       "is_de": True, "target": "treated_1", "reference": "control"})
    >>> ax = pl.response_dotplot(table, adata, "condition", "cell_type", show=False)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['type_0, control', 'type_0, treated_1']
    """
    from scanpy.pl import DotPlot  # takes seconds

    check_obs(adata, condition_key=condition_key, cell_type_key=cell_type_key)
    names = [str(name) for name in pick_groups(table, groups)]
    genes = top_genes(table, pick_groups(table, groups), n_genes)
    if missing := [gene for gene in genes if gene not in adata.var_names]:
        raise KeyError(f"the table's gene {missing[0]!r} is not in adata.var_names; pass the cells that were tested.")
    compared = [str(table[role].iloc[0]) for role in ("reference", "target")]
    types, conditions = (adata.obs[key].astype(str) for key in (cell_type_key, condition_key))
    chosen = (types.isin(names) & conditions.isin(compared)).to_numpy()
    if not chosen.any():
        raise ValueError(
            f"no cell of adata has one of {names} in {cell_type_key!r} and one of {compared} in {condition_key!r}; "
            "name the columns that the table was made with."
        )
    rows = (types + ", " + conditions)[chosen]
    order = [row for name in names for row in (f"{name}, {c}" for c in compared) if row in set(rows)]
    values = expression(adata, genes, layer)[chosen]
    cells = AnnData(values.to_numpy(), obs=pd.DataFrame({"row": pd.Categorical(rows, order)}, index=values.index))
    cells.var_names = genes
    drawn = DotPlot(cells, genes, "row", standard_scale="var", ax=ax, **_size(len(order), genes))
    drawn.style(cmap="Reds", dot_edge_lw=0.3).legend(
        colorbar_title="mean expression\n(each gene from 0 to 1)", size_title="cells that express\nthe gene (%)"
    ).make_figure()
    return finish(drawn.get_axes()["mainplot_ax"], show, save, tight=True)


def _size(n_rows: int, genes: Sequence[str]) -> dict:
    """Of a figure that has room for the names of all genes, and for the legends."""
    return {"figsize": (3.6 + 0.24 * len(genes), max(2.6, 1.3 + 0.26 * n_rows))}


def upset(
    table: pd.DataFrame,
    *,
    groups: str | Sequence[str] | None = None,
    direction: Literal["up", "down"] | None = None,
    n_sets: int = 20,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> np.ndarray:
    """Which cell types share the genes that respond: an upset plot.

    Every called gene counts once, in the column of exactly those types in which it is called.

    Parameters
    ----------
    table
        From ``model.differential_expression(groupby=...)``.
    groups
        Some of its groups; by default all in which a gene is called.
    direction
        Count the calls of genes that are higher (``"up"``) or lower (``"down"``) in the target only.
    n_sets
        Columns to show, at most: those with most genes.
    ax
        Axes that are replaced by two: the bars, and below them the sets.
    show, save
        See :func:`gene_variance`.

    Returns
    -------
    Axes of the bars and of the sets.

    Examples
    --------
    >>> table = pd.DataFrame({"group": ["B", "B", "NK", "NK"], "gene": ["ISG15", "CD74"] * 2, "lfc": [3.0, -1, 2, 0],
    ...                       "proba_de": [1.0, 1, 1, 0], "is_de": [True, True, True, False]})
    >>> bars, sets = pl.upset(table, show=False)
    >>> [label.get_text() for label in sets.get_yticklabels()]
    ['B (2)', 'NK (1)']
    """
    if direction not in (None, "up", "down"):
        raise ValueError(f"direction={direction!r} is not known; choose 'up', 'down' or None for both.")
    called = {}
    for name in pick_groups(table, groups):
        part = tested(table, name)
        part = part[part["is_de"].astype(bool)]
        if direction is not None:
            part = part[part["change"] > 0 if direction == "up" else part["change"] < 0]
        if len(part) or groups is not None:
            called[str(name)] = set(part["gene"])
    if not any(called.values()):
        raise ValueError("no gene is called in these groups; test larger ones, or raise fdr.")
    names = sorted(called, key=lambda name: -len(called[name]))
    members = {gene: tuple(gene in called[name] for name in names) for gene in set().union(*called.values())}
    counts = pd.Series(list(members.values())).value_counts()
    # The largest first; of equals those of fewer types.
    shown = sorted(counts.index, key=lambda sets: (-counts[sets], sum(sets), tuple(not s for s in sets)))[:n_sets]

    outer = new_axes(ax, (1.9 + 0.3 * len(shown), 2.2 + 0.26 * len(names)))
    figure, place = outer.figure, outer.get_subplotspec()
    if place is None:
        raise ValueError("ax is not one of a grid of subplots, so it cannot be divided; make it with plt.subplots().")
    outer.remove()
    grid = GridSpecFromSubplotSpec(2, 1, place, height_ratios=[6, len(names)], hspace=0.04)
    bars = figure.add_subplot(grid[0])
    sets = figure.add_subplot(grid[1], sharex=bars)
    x = np.arange(len(shown))
    drawn = bars.bar(x, [counts[s] for s in shown], color=MEMBER, width=0.6)
    bars.bar_label(drawn, fontsize=7, padding=1)
    what = {"up": "genes that are higher", "down": "genes that are lower", None: "genes that respond"}[direction]
    bars.set(ylabel=what, xlim=(-0.6, len(shown) - 0.4))
    bars.margins(y=0.12)
    bars.tick_params(bottom=False, labelbottom=False)
    bars.spines[["top", "right", "bottom"]].set_visible(False)
    for i, chosen in enumerate(shown):
        inside = np.flatnonzero(chosen)
        sets.scatter(np.full(len(names), i), range(len(names)), s=26, color=np.where(chosen, MEMBER, OTHER))
        sets.plot([i, i], [inside[0], inside[-1]], color=MEMBER, linewidth=1.4)
    sets.set(yticks=range(len(names)), yticklabels=[f"{name} ({len(called[name])})" for name in names], xticks=[])
    sets.set_ylim(len(names) - 0.5, -0.5)
    sets.tick_params(left=False)
    sets.spines[:].set_visible(False)
    return finish(np.array([bars, sets], dtype=object), show, save)
