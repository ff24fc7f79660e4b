"""What all plots share."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path as MplPath
from matplotlib.transforms import Bbox, BboxBase

from discovr_sc.errors import MissingKeyError

AxesOrArray = TypeVar("AxesOrArray", Axes, np.ndarray)

#: Dots per inch of a saved figure, unless matplotlib (or ``scanpy.set_figure_params(dpi_save=...)``) is told another.
DPI = 150
#: Places where a point's name is tried: distances in points of print, and directions, the upper right first.
DISTANCES = (3, 9, 16, 24, 34, 46, 60, 80, 105, 135)
ANGLES = np.pi / 6 * np.array([1, 5, 11, 7, 2, 4, 10, 8, 0, 6, 3, 9])
#: What it costs to hide a point, to cross a name or its line, and to hide a name, in steps of distance.
COST_POINT, COST_LINE, COST_TEXT = 2.0, 4.0, 1000.0


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """The Axes given, or those of a new figure."""
    return ax if ax is not None else plt.subplots(figsize=figsize, layout="constrained")[1]


def new_panels(
    ax: Axes | np.ndarray | None, shape: tuple[int, int], size: tuple[float, float], need: str
) -> np.ndarray:
    """The Axes given, as an array of a shape, or those of a new figure; ``need`` tells what the shape is made of."""
    if ax is None:
        figsize = (size[0] * shape[1], size[1] * shape[0])
        return plt.subplots(*shape, figsize=figsize, squeeze=False, layout="constrained")[1]
    axes = np.asarray(ax, dtype=object)
    if axes.size != shape[0] * shape[1]:
        raise ValueError(f"ax has {axes.size} Axes, but {need} need {shape[0] * shape[1]}.")
    return axes.reshape(shape)


def finish(axes: AxesOrArray, show: bool | None, save: str | Path | None, *, tight: bool = False) -> AxesOrArray:
    """Save and show the figure of Axes as scanpy does; the file's ending chooses its format.

    Figures that scanpy lays out are saved ``tight``: their labels reach beyond them.
    """
    if save is not None:
        dpi = plt.rcParams["savefig.dpi"]
        how: dict[str, Any] = {"bbox_inches": "tight"} if tight else {}
        np.asarray(axes, dtype=object).flat[0].figure.savefig(save, dpi=DPI if dpi == "figure" else dpi, **how)
    if show or (show is None and save is None):
        plt.show()
    return axes


def check_obs(adata: AnnData, **keys: str) -> None:
    """Raise where a column of ``obs`` is missing; the keywords are names of arguments."""
    for argument, key in keys.items():
        if key not in adata.obs:
            raise MissingKeyError(f"{argument} {key!r} is not a column of adata.obs; it has {list(adata.obs.columns)}.")


def colors_of(adata: AnnData, key: str, n: int) -> list:
    """Colours of the n categories of a column: those that scanpy left in ``uns``, or those that it would take."""
    stored = adata.uns.get(f"{key}_colors")
    if stored is not None and len(stored) >= n:
        return list(stored)[:n]
    from scanpy.plotting import palettes  # takes seconds

    cycle = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    known = cycle, palettes.default_20, palettes.default_28
    palette = next((colors for colors in known if n <= len(colors)), palettes.default_102)
    return [palette[i % len(palette)] for i in range(n)]


def expression(adata: AnnData, genes: Iterable[str], layer: str | None = None) -> pd.DataFrame:
    """log(1 + counts per 10,000) of some genes, cells in rows."""
    counts = adata.X if layer is None else adata.layers[layer]
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1e-12)
    columns = {gene: np.log1p(1e4 * adata.obs_vector(gene, layer=layer) / totals) for gene in genes}
    return pd.DataFrame(columns, index=adata.obs_names)


def label_points(ax: Axes, names: Iterable[str], x: Iterable[float], y: Iterable[float]) -> None:
    """Write names beside points, where they hide no other name, no named point, no legend and few points.

    Thin lines lead to the points. Places depend on the limits of the axes, so set those first.
    """
    values = np.column_stack([np.asarray(list(x), float), np.asarray(list(y), float)])
    if not len(values):
        return
    figure = cast(Figure, ax.get_figure(root=True))
    figure.draw_without_rendering()  # sets limits and layout, which places depend on
    points, pixels = ax.transData.transform(values), figure.dpi / 72
    drawn = [ax.transData.transform(np.asarray(cloud.get_offsets(), float)) for cloud in ax.collections]
    everything = np.concatenate([points, *drawn])
    taken: list[Bbox] = [_box(point, np.full(2, 6 * pixels)) for point in points]
    if (legend := ax.get_legend()) is not None:
        taken.append(legend.get_window_extent())
    lines: list[MplPath] = []
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    line = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1}
    for name, value, point in zip(names, values, points, strict=True):
        text = ax.text(value[0], value[1], str(name), **look)
        size = np.array(text.get_window_extent().size) + 2 * pixels
        text.remove()
        best: tuple[float, Bbox] | None = None
        for near, move in _moves(size, pixels):
            if best is not None and near >= best[0]:
                break  # what is further away costs more
            box = _box(point + move, size)
            lead = MplPath([point, point + move])
            hidden = ((everything > (box.x0, box.y0)) & (everything < (box.x1, box.y1))).all(1).sum()
            crossed = sum(old.intersects_bbox(box) for old in lines)
            crossed += sum(lead.intersects_bbox(other) for other in taken[len(points) :])
            cost = near + COST_POINT * hidden + COST_LINE * crossed
            cost += COST_TEXT * (sum(box.overlaps(other) for other in taken) + (not _within(box, ax.bbox)))
            if best is None or cost < best[0]:
                best = cost, box
        box = cast(tuple[float, Bbox], best)[1]
        taken.append(box)
        middle = np.array([box.x0 + box.x1, box.y0 + box.y1]) / 2
        lines.append(MplPath([point, middle]))
        offset = tuple((middle - point) / pixels)
        ax.annotate(str(name), tuple(value), offset, textcoords="offset points", arrowprops=line, **look)


def _box(middle: np.ndarray, size: np.ndarray) -> Bbox:
    return Bbox([middle - size / 2, middle + size / 2])


def _moves(size: np.ndarray, pixels: float) -> Iterator[tuple[float, np.ndarray]]:
    """Where the middle of a text of a size may lie from its point, in pixels, and what it costs; the nearest first."""
    for i, distance in enumerate(DISTANCES):
        for j, angle in enumerate(ANGLES):
            direction = np.array([np.cos(angle), np.sin(angle)])
            yield i + 0.01 * j, direction * (size / 2 + distance * pixels)


def _within(box: BboxBase, outer: BboxBase) -> bool:
    return box.x0 >= outer.x0 and box.x1 <= outer.x1 and box.y0 >= outer.y0 and box.y1 <= outer.y1
