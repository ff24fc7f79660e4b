"""Pictures of what the condition changes."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import dendrogram, linkage

from discovr_sc.pl.figure import finish, label_points, new_axes

#: A p-value that a volcano can still show.
SMALLEST_P = 1e-300


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
    groups = list(table["group"].unique())
    if group is None and len(groups) > 1:
        raise ValueError(f"the table has {len(groups)} groups; name one of {groups} with group=...")
    group = groups[0] if group is None else group
    if group not in groups:
        raise ValueError(f"group={group!r} is not in the table, which has {groups}.")
    part = table[table["group"] == group]
    over_replicates = "p_value" in part
    if over_replicates:
        part = part[part["p_value"].notna()]
        part = part.assign(x=part["lfc_replicates"], y=-np.log10(part["p_value"].clip(lower=SMALLEST_P)))
    else:
        part = part.assign(x=part["lfc"], y=part["proba_de"])
    ax = new_axes(ax, (5.6, 4.2))
    for called, color, label in ((False, "0.7", "not called"), (True, "C3", "called")):
        chosen = part[part["is_de"] == called]
        ax.scatter(chosen["x"], chosen["y"], s=8, color=color, label=label, linewidths=0)
    best = part[part["is_de"]].head(n_labels)
    if over_replicates:
        label_points(ax, best["gene"], best["x"], best["y"])
    else:
        _label_column(ax, best)
    ax.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="log2 fold change",
        ylabel="-log10 p over replicates" if over_replicates else "posterior probability of a change",
        title=f"{group}: {int(part['is_de'].sum())} of {len(part)} genes",
    )
    ax.legend(fontsize=8, loc="lower left")
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


def _label_column(ax: Axes, genes: pd.DataFrame) -> None:
    """Names in columns at the left and right: called genes have probabilities near 1 and would share a line."""
    look: dict[str, Any] = {"fontsize": 7, "arrowprops": {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5}}
    for side, left, chosen in (("right", 0.98, genes[genes["x"] > 0]), ("left", 0.02, genes[genes["x"] <= 0])):
        chosen = chosen.sort_values("x", ascending=False)
        for i, (name, x, y) in enumerate(chosen[["gene", "x", "y"]].itertuples(index=False)):
            ax.annotate(name, (x, y), (left, 0.9 - 0.065 * i), textcoords="axes fraction", ha=side, **look)
