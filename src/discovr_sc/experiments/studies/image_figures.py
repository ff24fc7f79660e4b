"""Figures of the image studies. Those of CelebA show its faces: for the user's own folder, not to be passed on."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.studies.synthetic_figures import latents_figure

ROWS = (("full", "z and w"), ("marginal", "z alone"))


def draw_digits(results: Results, preset: str) -> dict[str, Figure]:
    """For every variant, digits in both colours and every method's reconstructions of them."""
    by_variant: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for (variant, method), arrays in results.sketches(preset).items():
        by_variant.setdefault(variant, {})[method] = arrays
    return {variant.replace("=", ""): _reconstructions(by_method) for variant, by_method in by_variant.items()}


def draw_faces(results: Results, preset: str) -> dict[str, Figure]:
    """Faces with and without the attribute, and every method's reconstructions of them."""
    return {"faces": _reconstructions({method: arrays for (_, method), arrays in results.sketches(preset).items()})}


def draw_ablations(results: Results, preset: str) -> dict[str, Figure]:
    """Latents of every variant, coloured by the noisy label and by the digit; and the reconstructions."""
    sketches = results.sketches(preset).items()
    titled = {f"{method}\n{variant}".strip(): arrays for (variant, method), arrays in sketches}
    latents = latents_figure(titled, {"y": ("noisy label", "coolwarm"), "digit": ("digit", "tab10")}, title_size=8)
    return {"latents": latents, "reconstructions": _reconstructions(titled)}


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
