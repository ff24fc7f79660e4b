"""Figures of the study of stimulated blood cells."""

import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
from anndata import AnnData
from matplotlib.figure import Figure

from discovr_sc.experiments.engine.results import Results


def draw_kang(results: Results, preset: str) -> dict[str, Figure]:
    """UMAPs of z and of w for every method, and the genes whose variance z alone misses."""
    arrays = {method: found for (_, method), found in results.sketches(preset).items()}
    figures = {
        f"umap_{latent}": _umaps(arrays, latent)
        for latent in ("z", "w")
        if any(f"umap_{latent}" in found for found in arrays.values())
    }
    if "discovr" in arrays:
        figures["genes"] = _genes_figure(arrays["discovr"])
    return figures


def draw_latents(results: Results, preset: str) -> dict[str, Figure]:
    """UMAPs of z for every method, a figure for each variant."""
    found = results.sketches(preset)
    return {
        f"umap_{variant.replace('=', '')}": _umaps({m: a for (v, m), a in found.items() if v == variant}, "z")
        for variant in dict.fromkeys(variant for variant, _ in found)
    }


def _umaps(arrays: dict[str, dict[str, np.ndarray]], latent: str) -> Figure:
    arrays = {method: found for method, found in arrays.items() if f"umap_{latent}" in found}
    labels = [label for label in ("type", "condition", "donor") if all(label in found for found in arrays.values())]
    figure, axes = plt.subplots(
        len(labels), len(arrays), figsize=(2.4 * len(arrays), 2.4 * len(labels)), squeeze=False, layout="constrained"
    )
    for column, (method, found) in zip(axes.T, arrays.items(), strict=True):
        order = np.random.default_rng(0).permutation(len(found["condition"]))
        for ax, label in zip(column, labels, strict=True):
            names, codes = np.unique(found[label], return_inverse=True)
            # All labels at once, in random order: drawn one by one, the last would hide the others.
            colors = np.array([plt.get_cmap("tab10" if len(names) <= 10 else "tab20")(i) for i in range(len(names))])
            ax.scatter(*found[f"umap_{latent}"][order].T, s=1, c=colors[codes[order]])
            for name, color in zip(names, colors, strict=True):
                ax.scatter([], [], s=1, color=color, label=name)
            ax.set(xticks=[], yticks=[])
        column[0].set_title(method, fontsize=11)
    for row, label in zip(axes, labels, strict=True):
        row[0].set_ylabel(f"{latent} by {label}")
        row[-1].legend(fontsize=9, markerscale=5, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def umap_of(x: np.ndarray, seed: int) -> np.ndarray:
    """Two dimensions of an embedding, ``(n, 2)``."""
    adata = AnnData(x)
    sc.pp.neighbors(adata, use_rep="X", random_state=seed)
    sc.tl.umap(adata, random_state=seed)
    return adata.obsm["X_umap"]


def _genes_figure(arrays: dict[str, np.ndarray]) -> Figure:
    """Gene means and variances of data and reconstructions; variance that w restores."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for ax, moment in zip(axes, ("mean", "var"), strict=False):
        for kind, color in (("marginal", "tab:blue"), ("full", "tab:orange")):
            ax.loglog(arrays[f"{moment}_data"], arrays[f"{moment}_{kind}"], ".", color=color, markersize=2, label=kind)
        ends = np.percentile(arrays[f"{moment}_data"], [0, 100])
        ax.plot(ends, ends, color="grey", linewidth=0.8)
        ax.set(xlabel=f"{moment} of the counts", ylabel=f"{moment} of reconstructed counts")
        ax.legend()
    ax = axes[-1]
    ax.plot(arrays["log_var_marginal"], arrays["log_var_full"], ".", color="grey", markersize=2)
    for gene in arrays["paper_genes"]:
        at = np.flatnonzero(arrays["genes"] == gene)
        point = arrays["log_var_marginal"][at], arrays["log_var_full"][at]
        ax.plot(*point, ".", color="tab:red")
        ax.annotate(gene, [value.item() for value in point], fontsize=7)
    end = arrays["log_var_full"].max()
    ax.plot([0, end], [0, end], color="grey", linewidth=0.8)
    ax.set(xlabel="variance of log1p(1e4 rho), from z", ylabel="variance of log1p(1e4 rho), from z and w")
    return figure


def draw_trade_off(curve: Results, methods: Results | None, preset: str) -> Figure:
    """What z tells of the condition against what it tells of the type: our curve over weights, the others as points."""
    figure, ax = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    ours = _trade_off_points(curve, preset)
    weights = {variant: float(variant.removeprefix("adv=")) for variant, _ in ours if variant.startswith("adv=")}
    if ("without=nothing", "discovr") in ours:
        defaults = curve.study.plain_settings("discovr")["by_data"]["counts"]
        weights["without=nothing"] = defaults["weights"].adv
    ordered = sorted(weights, key=weights.__getitem__)
    points = np.array([ours[variant, "discovr"] for variant in ordered])
    ax.plot(points[:, 0], points[:, 1], "o-", label="discovr, by weight of the adversary")
    for variant, point in zip(ordered, points, strict=True):
        ax.annotate(f"{weights[variant]:g}", point, fontsize=7, xytext=(3, 3), textcoords="offset points")
    others = _trade_off_points(methods, preset) if methods is not None else {}
    for i, ((_, method), point) in enumerate(others.items()):
        ax.plot(*point, "sD^v"[i % 4], color=plt.get_cmap("tab20")(i), markersize=6, label=method)
    ax.set(xlabel="condition read from z (best probe; lower is better)", ylabel="type read from z (kNN probe)")
    ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _trade_off_points(results: Results, preset: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Probes of the condition and of the finest types, by variant and method."""
    means = results.means(preset).pivot(index=["variant", "method"], columns="metric", values="mean")
    types = "probe_z_type_13" if "probe_z_type_13" in means else "probe_z_type_8"
    return {key: (row["probe_z_condition"], row[types]) for key, row in means.iterrows()}
