"""Pictures of a training and of what it separated."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from discovr_sc.pl.figure import finish, new_axes

#: Names and line styles of the curves.
SPLITS = {"train": ("training", "-"), "validation": ("validation", "--")}


def history(
    model, *, term: str = "loss", ax: Axes | None = None, show: bool | None = None, save: str | Path | None = None
) -> Axes:
    """Training curves: the loss, or one of its terms, and the accuracy of the adversary.

    Parameters
    ----------
    model, term
        A trained model; ``"loss"``, or a term of the objective such as ``"rec"`` or ``"kl_z"``.
    ax, show, save
        See :func:`gene_variance`; the adversary gets a second y axis.

    Examples
    --------
    >>> pl.history(model, show=False).get_xlabel()
    'epoch'
    """
    curves = model.history_
    if curves is None:
        raise ValueError("the model has no history; train it first.")
    pattern = "{}_loss" if term == "loss" else f"{term}_{{}}"
    if pattern.format("train") not in curves:
        known = [name.removesuffix("_train") for name in curves if name.endswith("_train")]
        raise ValueError(f"term={term!r} is not in the model's history; choose 'loss' or one of {known}.")
    ax = new_axes(ax, (5.6, 3.8))
    _draw_curves(ax, curves, pattern, "C0", term)
    ax.set(xlabel="epoch", ylabel=f"{term} (nats per cell)")
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    handles = ax.get_legend_handles_labels()[0]
    if "adversary_accuracy_train" in curves:
        right = ax.twinx()
        _draw_curves(right, curves, "adversary_accuracy_{}", "C3", "adversary")
        # What an adversary gets that always says the most frequent condition.
        chance = float(model.module.condition_probs.max())
        right.axhline(chance, color="C3", linewidth=0.8, linestyle=":", label="most frequent condition")
        right.set(ylabel="accuracy of the adversary", ylim=(0, 1.02))
        handles += right.get_legend_handles_labels()[0]
    # Below the axes: curves fill all of their corners.
    ax.legend(handles=handles, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)
    return finish(ax, show, save)


def _draw_curves(ax: Axes, curves: Mapping[str, pd.DataFrame], pattern: str, color: str, label: str) -> None:
    """A curve for each split that the history has; ``pattern`` makes its name from the split's."""
    for split, (told, style) in SPLITS.items():
        if pattern.format(split) in curves:
            values = curves[pattern.format(split)].astype(float)
            ax.plot(values.index, values.to_numpy().ravel(), style, color=color, label=f"{label}, {told}")


def disentanglement(
    report: pd.DataFrame,
    *,
    split: str = "held-out",
    probes: Sequence[str] | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """What classifiers read from z and w: accuracies with 95 % intervals, and their permutation null.

    Parameters
    ----------
    report
        From ``model.disentanglement_report``.
    split, probes
        ``"held-out"`` or ``"train"``; some probes only, such as ``["linear", "knn"]``, all of the report by default.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> report = pd.DataFrame(
    ...     [("held-out", latent, "stim", "probe_knn", value, value - 0.02, value + 0.02, 0.53)
    ...      for latent, value in [("z", 0.6), ("w", 0.98)]],
    ...     columns=["split", "latent", "of", "metric", "value", "low", "high", "null_high"],
    ... )
    >>> pl.disentanglement(report, show=False).get_xlabel()
    'balanced accuracy on held-out cells'
    """
    if split not in set(report["split"]):
        raise ValueError(f"split={split!r} is not in the report, which has {sorted(set(report['split']))}.")
    table = report[(report["split"] == split) & report["metric"].str.startswith("probe_")]
    table = table[table["metric"] != "probe_best"]
    kinds = [metric.removeprefix("probe_") for metric in table["metric"].unique()] if probes is None else list(probes)
    for kind in kinds:
        if f"probe_{kind}" not in set(table["metric"]):
            raise ValueError(f"probes: the report has no {kind!r}; it has {sorted(set(table['metric']))}.")
    rows = table[["latent", "of"]].drop_duplicates().reset_index(drop=True)
    ax = new_axes(ax, (5.6, 0.6 + 0.55 * len(rows) + 0.5))
    offsets = np.linspace(-0.25, 0.25, len(kinds)) if len(kinds) > 1 else [0.0]
    for i, (kind, offset) in enumerate(zip(kinds, offsets, strict=True)):
        part = rows.merge(table[table["metric"] == f"probe_{kind}"], on=["latent", "of"], how="left")
        y = np.arange(len(rows)) + offset
        errors = np.stack([part["value"] - part["low"], part["high"] - part["value"]])
        ax.errorbar(part["value"], y, xerr=errors, fmt="o", markersize=4, color=f"C{i}", label=kind)
        ax.plot(part["null_high"], y, "|", color="0.4", markersize=9)
    ax.plot([], [], "|", color="0.4", markersize=9, label="95 % of permutations")
    ax.set(
        yticks=np.arange(len(rows)),
        yticklabels=[f"{of} from {latent}" for latent, of in rows.itertuples(index=False)],
        xlabel=f"balanced accuracy on {'training' if split == 'train' else split} cells",
        xlim=(0, 1.03),
    )
    ax.invert_yaxis()
    ax.legend(fontsize=7, loc="best")
    return finish(ax, show, save)
