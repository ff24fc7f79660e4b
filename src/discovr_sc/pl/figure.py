"""What all plots share."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox, BboxBase

AxesOrArray = TypeVar("AxesOrArray", Axes, np.ndarray)

#: Dots per inch of a saved figure, unless matplotlib (or ``scanpy.set_figure_params(dpi_save=...)``) is told another.
DPI = 150
#: Places where a point's name is tried: distances in points of print, and directions, the upper right first.
DISTANCES = (3, 9, 16, 24, 34, 46, 60, 80)
ANGLES = np.pi / 6 * np.array([1, 5, 11, 7, 2, 4, 10, 8, 0, 6, 3, 9])


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """The Axes given, or those of a new figure."""
    return ax if ax is not None else plt.subplots(figsize=figsize, layout="constrained")[1]


def finish(axes: AxesOrArray, show: bool | None, save: str | Path | None) -> AxesOrArray:
    """Save and show the figure of Axes as scanpy does; the file's ending chooses its format."""
    if save is not None:
        dpi = plt.rcParams["savefig.dpi"]
        np.asarray(axes, dtype=object).flat[0].figure.savefig(save, dpi=DPI if dpi == "figure" else dpi)
    if show or (show is None and save is None):
        plt.show()
    return axes


def label_points(ax: Axes, names: Iterable[str], x: Iterable[float], y: Iterable[float]) -> None:
    """Write names beside points so that none hides another or a named point; thin lines lead to their points."""
    values = np.column_stack([np.asarray(list(x), float), np.asarray(list(y), float)])
    if not len(values):
        return
    figure = cast(Figure, ax.get_figure(root=True))
    figure.draw_without_rendering()  # sets limits and layout, which places depend on
    points, pixels = ax.transData.transform(values), figure.dpi / 72
    taken = [_box(point, np.full(2, 6 * pixels)) for point in points]
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    line = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1}
    for name, value, point in zip(names, values, points, strict=True):
        text = ax.text(value[0], value[1], str(name), **look)
        size = np.array(text.get_window_extent().size) + 2 * pixels
        text.remove()
        boxes = [_box(point + move, size) for move in _moves(size, pixels)]
        free = [box for box in boxes if _within(box, ax.bbox) and not any(box.overlaps(other) for other in taken)]
        box = (free or boxes)[0]
        taken.append(box)
        offset = (np.array([box.x0 + box.x1, box.y0 + box.y1]) / 2 - point) / pixels
        ax.annotate(str(name), tuple(value), tuple(offset), textcoords="offset points", arrowprops=line, **look)


def _box(middle: np.ndarray, size: np.ndarray) -> Bbox:
    return Bbox([middle - size / 2, middle + size / 2])


def _moves(size: np.ndarray, pixels: float) -> Iterator[np.ndarray]:
    """Where the middle of a text of a size may lie from its point, in pixels, the nearest first."""
    for distance in DISTANCES:
        for angle in ANGLES:
            direction = np.array([np.cos(angle), np.sin(angle)])
            yield direction * (size / 2 + distance * pixels)


def _within(box: BboxBase, outer: BboxBase) -> bool:
    return box.x0 >= outer.x0 and box.x1 <= outer.x1 and box.y0 >= outer.y0 and box.y1 <= outer.y1
