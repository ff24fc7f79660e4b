"""Figures of the studies, drawn from what the runs of the first seed left behind."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from discovr_sc.experiments.engine.results import Results

#: What points are coloured by: the array, what it is, its colour map.
COLORS = {"y": ("noisy label", "coolwarm"), "t": ("spiral", "viridis")}


def draw_parametric(results: Results, preset: str) -> dict[str, Figure]:
    """Posteriors of every method against the truth: a row for each method, y = 0 and 1 left and right."""
    sketches = results.sketches(preset)
    methods = [(method, arrays) for (_, method), arrays in sketches.items()]
    figure, axes = plt.subplots(
        len(methods), 4, figsize=(13, 1.7 * len(methods)), squeeze=False, sharex=True, layout="constrained"
    )
    for row, (method, arrays) in zip(axes, methods, strict=True):
        for ax, (latent, y) in zip(row, (("z", 0), ("z", 1), ("w", 0), ("w", 1)), strict=True):
            _posterior_panel(ax, arrays, latent, y)
        row[0].set_ylabel(method)
    for ax, title in zip(axes[0], ("z, y = 0", "z, y = 1", "w, y = 0", "w, y = 1"), strict=True):
        ax.set_title(title)
    figure.supxlabel("latent; solid: q, dashed: analytic posterior; colours: x = -2, -1, 0, 1, 2")
    return {"posteriors": figure}


def _posterior_panel(ax: Axes, arrays: dict[str, np.ndarray], latent: str, y: int) -> None:
    grid = np.linspace(-4.5, 4.5, 300)
    chosen = arrays["y"] == y
    # z is identified up to its sign only.
    sign = np.sign(np.corrcoef(arrays["x"], arrays["z_loc"])[0, 1]) if latent == "z" else 1.0
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.9, chosen.sum()))
    for x, loc, scale, color in zip(
        arrays["x"][chosen], arrays[f"{latent}_loc"][chosen], arrays[f"{latent}_scale"][chosen], colors, strict=True
    ):
        ax.plot(grid, norm.pdf(grid, sign * loc, scale), color=color)
        truth = norm.pdf(grid, x / 2, np.sqrt(0.5))
        if latent == "w":
            inside = grid > 0 if y == 1 else grid < 0
            truth = np.where(inside, truth / norm.cdf((1 if y == 1 else -1) * x / np.sqrt(2)), 0.0)
        ax.plot(grid, truth, color=color, linestyle="--", linewidth=0.8)
    ax.set(yticks=[], ylim=(0, 2))


def draw_swiss_roll(results: Results, preset: str) -> dict[str, Figure]:
    """The data with DisCoVR's latents and reconstructions; and all methods' z and w side by side."""
    arrays = {method: found for (_, method), found in results.sketches(preset).items()}
    of_ours = {"roll": _roll_figure(arrays["discovr"])} if "discovr" in arrays else {}
    return of_ours | {"latents": latents_figure(arrays)}


def draw_ablations(results: Results, preset: str) -> dict[str, Figure]:
    """Latents of every variant side by side."""
    sketches = results.sketches(preset)
    return {"latents": latents_figure({variant: arrays for (variant, _), arrays in sketches.items()})}


def _roll_figure(arrays: dict[str, np.ndarray]) -> Figure:
    figure = plt.figure(figsize=(15, 6), layout="constrained")
    clouds = (("data", "x"), ("reconstruction from z and w", "full"), ("reconstruction from z alone", "marginal"))
    for i, (title, key) in enumerate(clouds, start=1):
        ax = figure.add_subplot(2, 5, (i, i + 5), projection="3d")
        ax.scatter(*arrays[key].T, c=arrays["y"], cmap="coolwarm", s=3)
        ax.set(title=title, xticklabels=[], yticklabels=[], zticklabels=[], xlabel="plane", ylabel="length")
        limits = zip(arrays["x"].min(0), arrays["x"].max(0), strict=True)  # of the data, for all three
        ax.set(**dict(zip(("xlim", "ylim", "zlim"), limits, strict=True)))
        ax.view_init(12, -70)
    for row, latent in enumerate(("z", "w")):
        for column, (name, cmap) in enumerate((("y", "coolwarm"), ("t", "viridis"))):
            ax = figure.add_subplot(2, 5, 4 + column + 5 * row)
            ax.scatter(arrays[latent][:, 0], arrays[latent][:, 1], c=arrays[name], cmap=cmap, s=3)
            ax.set(title=f"{latent} by {'noisy label' if name == 'y' else 'place on the spiral'}")
    return figure


def latents_figure(
    sketches: dict[str, dict[str, np.ndarray]], colors: dict[str, tuple[str, str]] = COLORS, title_size: float = 12
) -> Figure:
    """Both latents of every sketch, by title: a row for each latent and colour (its array: what it is, colour map)."""
    figure, axes = plt.subplots(4, len(sketches), figsize=(2.3 * len(sketches), 9), squeeze=False, layout="constrained")
    panels = [(latent, name, *color) for latent in "zw" for name, color in colors.items()]
    for column, (title, arrays) in zip(axes.T, sketches.items(), strict=True):
        for ax, (latent, name, _, cmap) in zip(column, panels, strict=True):
            ax.scatter(*arrays[latent].T, c=arrays[name], cmap=cmap, s=2)
            ax.set(xticks=[], yticks=[])
        column[0].set_title(title, fontsize=title_size)
    for ax, (latent, _, what, _) in zip(axes[:, 0], panels, strict=True):
        ax.set_ylabel(f"{latent} by {what}")
    return figure
