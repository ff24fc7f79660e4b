"""Figures of the image studies. Those of CelebA show its faces: for the user's own folder, not to be passed on."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from discovr_sc.experiments.engine.results import Results

ROWS = (("full", "z and w"), ("marginal", "z alone"))


def draw_digits(results: Results, preset: str) -> dict[str, Figure]:
    """For every variant, digits in both colours and every method's reconstructions of them."""
    return {
        variant.replace("=", ""): _reconstructions(by_method)
        for variant, by_method in _by_variant(results, preset).items()
    }


def draw_faces(results: Results, preset: str) -> dict[str, Figure]:
    """Faces with and without the attribute, and every method's reconstructions of them."""
    by_variant = _by_variant(results, preset)
    return {"faces": _reconstructions(by_variant[""])} if by_variant else {}


def draw_ablations(results: Results, preset: str) -> dict[str, Figure]:
    """Latents of every variant, coloured by the noisy label and by the digit; and the reconstructions."""
    sketches = results.sketches(preset)
    if not sketches:
        return {}
    titled = {f"{method}\n{variant}".strip(): arrays for (variant, method), arrays in sketches.items()}
    return {"latents": _latents(titled), "reconstructions": _reconstructions(titled)}


def _by_variant(results: Results, preset: str) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    grouped: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for (variant, method), arrays in results.sketches(preset).items():
        grouped.setdefault(variant, {})[method] = arrays
    return grouped


def _reconstructions(by_method: dict[str, dict[str, np.ndarray]]) -> Figure:
    originals = next(iter(by_method.values()))["x"]
    strips = [("original", originals)]
    strips += [(f"{method}: {title}", arrays[kind]) for method, arrays in by_method.items() for kind, title in ROWS]
    figure, axes = plt.subplots(
        len(strips), 1, figsize=(0.42 * len(originals) + 1.8, 0.47 * len(strips)), squeeze=False, layout="constrained"
    )
    for ax, (title, images) in zip(axes[:, 0], strips, strict=True):
        ax.imshow(np.concatenate(list(images.transpose(0, 2, 3, 1)), axis=1))  # (height, n width, channels)
        ax.set(xticks=[], yticks=[])
        ax.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8)
    return figure


def _latents(by_title: dict[str, dict[str, np.ndarray]]) -> Figure:
    panels = (("z", "y", "coolwarm"), ("z", "digit", "tab10"), ("w", "y", "coolwarm"), ("w", "digit", "tab10"))
    figure, axes = plt.subplots(4, len(by_title), figsize=(2.3 * len(by_title), 9), squeeze=False, layout="constrained")
    for column, (title, arrays) in zip(axes.T, by_title.items(), strict=True):
        for ax, (latent, color, cmap) in zip(column, panels, strict=True):
            ax.scatter(*arrays[latent].T, c=arrays[color], cmap=cmap, s=2)
            ax.set(xticks=[], yticks=[])
        column[0].set_title(title, fontsize=8)
    for ax, (latent, color, _) in zip(axes[:, 0], panels, strict=True):
        ax.set_ylabel(f"{latent} by {'noisy label' if color == 'y' else 'digit'}")
    return figure
