"""What all plots share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """The Axes given, or those of a new figure."""
    return ax if ax is not None else plt.subplots(figsize=figsize, layout="constrained")[1]


def finish(axes: Axes | np.ndarray, show: bool | None, save: str | Path | None):
    """Save and show the figure of Axes as scanpy does."""
    if save is not None:
        np.ravel(axes)[0].figure.savefig(save, dpi=120)
    if show or (show is None and save is None):
        plt.show()
    return axes


def label_points(ax: Axes, names: Iterable[str], x: Iterable[float], y: Iterable[float]) -> None:
    """Write names beside points, above and below in turn so that neighbours do not hide each other."""
    for i, (name, *point) in enumerate(zip(names, x, y, strict=True)):
        up = i % 2 == 0
        ax.annotate(
            str(name),
            point,
            xytext=(4, 5 if up else -5),
            textcoords="offset points",
            fontsize=7,
            va="bottom" if up else "top",
        )
