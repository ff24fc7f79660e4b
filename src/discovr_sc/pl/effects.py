"""Pictures of what the condition changes."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import dendrogram, linkage

from discovr_sc.pl.figure import finish, label_points, new_axes, new_panels
from discovr_sc.pl.tables import is_over_replicates, one_group, pick_groups, tested


def gene_variance(
    effect: AnnData | pd.DataFrame,
    *,
    n_labels: int = 8,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Means and variances of genes: of the data, of full and of marginal reconstructions.

    Parameters
    ----------
    effect
        From ``model.get_condition_effect``, or its ``var``.
    n_labels
        Genes to name: those whose variance w restores most.
    ax, show, save
        Where to draw; whether to show the figure, by default only where it is not saved; and a file to write it to,
        whose ending chooses the format. ``scanpy.set_figure_params(dpi_save=300)`` sets its resolution.

    Examples
    --------
    >>> genes = pd.DataFrame({f"{moment}_{of}": [0.5, 1.0] for moment in ("mean", "variance")
    ...                       for of in ("data", "full", "marginal")}, index=["ISG15", "CD74"])
    >>> genes["variance_restored"] = [0.4, 0.1]
    >>> pl.gene_variance(genes, show=False).get_ylabel()
    'variance over cells'
    """
    table = effect.var if isinstance(effect, AnnData) else effect
    if "variance_restored" not in table:
        raise KeyError(
            "effect has no column 'variance_restored'; pass what model.get_condition_effect returns without reference."
        )
    ax = new_axes(ax, (5.6, 4.4))
    looks = ("data", "0.75", 6, "data"), ("full", "goldenrod", 8, "from z and w"), ("marginal", "C0", 8, "from z alone")
    for name, color, size, label in looks:
        ax.scatter(table[f"mean_{name}"], table[f"variance_{name}"], s=size, color=color, label=label, linewidths=0)
    best = table.nlargest(n_labels, "variance_restored")
    # A line for each gene, from z alone to z and w.
    ends = [best[[f"{moment}_marginal", f"{moment}_full"]].to_numpy().T for moment in ("mean", "variance")]
    ax.plot(*ends, color="0.4", linewidth=0.6, zorder=0)
    ax.set(xlabel="mean over cells, log(1 + counts per 10,000)", ylabel="variance over cells")
    ax.legend(fontsize=8)
    label_points(ax, best.index, best["mean_full"], best["variance_full"])
    return finish(ax, show, save)


def condition_effect(
    table: pd.DataFrame,
    *,
    group: str | None = None,
    n_labels: int = 10,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Volcano of a differential expression: log fold change against the posterior probability of a change.

    A table of a test over replicates is drawn with the replicates' fold changes and that test's p-values.

    Parameters
    ----------
    table
        From ``model.differential_expression``.
    group
        One of its groups; may be left out where there is one only.
    n_labels
        Genes to name: the first of those that are called.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> table = pd.DataFrame({"group": "B cells", "gene": ["ISG15", "CD74"], "lfc": [3.0, 0.1],
    ...                       "proba_de": [1.0, 0.2], "is_de": [True, False]})
    >>> pl.condition_effect(table, show=False).get_title()
    'B cells: 1 of 2 genes'
    """
    ax = new_axes(ax, (5.6, 4.2))
    best = _draw_volcano(ax, table, one_group(table, group)).head(n_labels)
    ax.margins(x=0.1, y=0.08)
    ax.legend(fontsize=8, loc="lower left")
    label_points(ax, best["gene"], best["change"], best["evidence"])
    return finish(ax, show, save)


def volcanoes(
    table: pd.DataFrame,
    *,
    groups: str | Sequence[str] | None = None,
    n_columns: int = 4,
    n_labels: int = 6,
    ax: np.ndarray | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> np.ndarray:
    """Volcanoes of several groups side by side, with the same axes; see :func:`condition_effect`.

    Parameters
    ----------
    table
        From ``model.differential_expression(groupby=...)``.
    groups
        Some of its groups; all by default.
    n_columns
        Volcanoes in a row.
    n_labels
        Genes to name in each.
    ax
        As many Axes as there are groups.
    show, save
        See :func:`gene_variance`.

    Returns
    -------
    An Axes for each group.

    Examples
    --------
    >>> table = model.differential_expression(groupby="cell_type", n_samples=50)
    >>> [ax.get_title().split()[0] for ax in pl.volcanoes(table, show=False)]
    ['type_0', 'type_1', 'type_2', 'type_3']
    """
    names = pick_groups(table, groups)
    if ax is None:
        n_columns = min(n_columns, len(names))
        shape = (-(-len(names) // n_columns), n_columns)
        grid = new_panels(None, shape, (3.4, 3.2), "").ravel()
        for spare in grid[len(names) :]:
            spare.remove()
        axes = grid[: len(names)]
    else:
        axes = new_panels(ax, (1, len(names)), (0, 0), f"{len(names)} groups").ravel()
        n_columns = len(names)
    drawn = pd.concat([tested(table, name) for name in names])
    reach = 1.15 * max(float(drawn["change"].abs().max()), 1e-3)
    best = [_draw_volcano(panel, table, name).head(n_labels) for panel, name in zip(axes, names, strict=True)]
    for i, panel in enumerate(axes):
        panel.set_xlim(-reach, reach)
        if is_over_replicates(table):
            top = 1.12 * float(drawn["evidence"].max())
            panel.set_ylim(-0.04 * top, top)
        panel.set_title("\n".join(panel.get_title().rsplit(": ", 1)) + " called", fontsize=9)
        if i % n_columns:
            panel.set_ylabel("")
        if i + n_columns < len(names):
            panel.set_xlabel("")
    for panel, genes in zip(axes, best, strict=True):
        label_points(panel, genes["gene"], genes["change"], genes["evidence"])
    return finish(axes, show, save)


def ma(
    table: pd.DataFrame,
    *,
    group: str | None = None,
    n_labels: int = 10,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """MA plot of a differential expression: log fold change against mean expression.

    Parameters
    ----------
    table, group
        See :func:`condition_effect`.
    n_labels
        Genes to name: the first of those that are called.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> table = pd.DataFrame({"group": "B cells", "gene": ["ISG15", "CD74"], "lfc": [3.0, 0.1],
    ...                       "proba_de": [1.0, 0.2], "is_de": [True, False],
    ...                       "scale_target": [2e-3, 4e-3], "scale_reference": [1e-4, 4e-3]})
    >>> pl.ma(table, show=False).get_xlabel()
    'mean expression, counts per 10,000'
    """
    group = one_group(table, group)
    part = tested(table, group)
    part = part.assign(mean=1e4 * (part["scale_target"] + part["scale_reference"]) / 2)
    ax = new_axes(ax, (5.6, 4.2))
    _draw_called(ax, part, "mean", "change")
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xscale="log", xlabel="mean expression, counts per 10,000", ylabel="log2 fold change")
    ax.set_title(_headline(part, group))
    ax.margins(y=0.1)
    ax.legend(fontsize=8, loc="best")
    best = part[part["is_de"].astype(bool)].head(n_labels)
    label_points(ax, best["gene"], best["mean"], best["change"])
    return finish(ax, show, save)


def condition_tree(
    differences: pd.DataFrame,
    *,
    group: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Dendrogram of conditions or donors, by their distances in w (average linkage).

    Parameters
    ----------
    differences
        From ``model.get_w_differences``.
    group
        One of its groups; by default distances are averaged over the groups that a pair has in common.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> table = pd.DataFrame({"group": "all", "first": ["a", "a", "b"], "second": ["b", "c", "c"],
    ...                       "distance": [1.0, 4.0, 5.0]})
    >>> [label.get_text() for label in pl.condition_tree(table, show=False).get_yticklabels()]
    ['c', 'a', 'b']
    """
    if group is not None and group not in set(differences["group"]):
        raise ValueError(f"group={group!r} is not in the table, which has {list(differences['group'].unique())}.")
    chosen = differences if group is None else differences[differences["group"] == group]
    mean = chosen.groupby(["first", "second"], sort=False)["distance"].mean()
    names = sorted({name for pair in mean.index for name in pair})
    pairs = [mean.get((one, other), mean.get((other, one))) for one, other in combinations(names, 2)]
    missing = [pair for pair, distance in zip(combinations(names, 2), pairs, strict=True) if distance is None]
    if missing:
        raise ValueError(
            f"{missing[0]} have no group in common, so there is no distance between them; drop one of them."
        )
    ax = new_axes(ax, (5.0, 1.2 + 0.3 * len(names)))
    dendrogram(linkage(pairs, "average"), labels=names, orientation="left", ax=ax, color_threshold=0)
    ax.set(xlabel="distance in w", title=group or "")
    return finish(ax, show, save)


def _draw_called(ax: Axes, part: pd.DataFrame, x: str, y: str) -> None:
    """Genes that are called over those that are not."""
    for called, color, label in ((False, "0.7", "not called"), (True, "C3", "called")):
        chosen = part[part["is_de"] == called]
        ax.scatter(chosen[x], chosen[y], s=8, color=color, label=label, linewidths=0)


def _headline(part: pd.DataFrame, group: str) -> str:
    return f"{group}: {int(part['is_de'].sum())} of {len(part):,} genes"


def _draw_volcano(ax: Axes, table: pd.DataFrame, group: str) -> pd.DataFrame:
    """Draw the genes of a group, and return those that are called."""
    part, over_replicates = tested(table, group), is_over_replicates(table)
    _draw_called(ax, part, "change", "evidence")
    ax.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xlabel="log2 fold change", title=_headline(part, group))
    if over_replicates:
        ax.set(ylabel="-log10 p over replicates")
    else:
        # Called genes lie on a line near 1: their names need the room above it.
        ax.set(ylabel="posterior probability of a change", ylim=(-0.03, 1.45), yticks=np.linspace(0, 1, 6))
    return part[part["is_de"].astype(bool)]
