"""What all plots share."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

AxesOrArray = TypeVar("AxesOrArray", Axes, np.ndarray)


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """The Axes given, or those of a new figure."""
    return ax if ax is not None else plt.subplots(figsize=figsize, layout="constrained")[1]


def finish(axes: AxesOrArray, show: bool | None, save: str | Path | None) -> AxesOrArray:
    """Save and show the figure of Axes as scanpy does."""
    if save is not None:
        np.asarray(axes, dtype=object).flat[0].figure.savefig(save, dpi=120)
    if show or (show is None and save is None):
        plt.show()
    return axes


def label_points(ax: Axes, names: Iterable[str], x: Iterable[float], y: Iterable[float]) -> None:
    """Write names beside points, above and below in turn so that neighbours do not hide each other."""
    for i, (name, at_x, at_y) in enumerate(zip(names, x, y, strict=True)):
        offset, side = (5, "bottom") if i % 2 == 0 else (-5, "top")
        ax.annotate(str(name), (at_x, at_y), xytext=(4, offset), textcoords="offset points", fontsize=7, va=side)
