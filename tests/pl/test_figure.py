"""Names beside points, and files of the resolution that was asked for."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from discovr_sc import pl
from discovr_sc.pl.figure import colors_of, finish, label_points

matplotlib.use("Agg")


def test_names_of_near_points_do_not_overlap_and_stay_within():
    _, ax = plt.subplots(figsize=(5, 4), layout="constrained")
    x = np.r_[np.linspace(0.5, 0.53, 12), 0.0, 1.0]
    ax.scatter(x, x)
    label_points(ax, [f"GENE{i}" for i in range(14)], x, x)
    assert len(ax.texts) == 14
    ax.figure.draw_without_rendering()
    boxes = [plt.Text.get_window_extent(text) for text in ax.texts]
    points = ax.transData.transform(np.column_stack([x, x]))
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.contains(*point) for point in points)
        assert ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1
        assert ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1
    label_points(ax, [], [], [])
    plt.close(ax.figure)


def test_names_avoid_other_points_and_the_legend():
    _, ax = plt.subplots(figsize=(5, 4), layout="constrained")
    rng = np.random.default_rng(0)
    cloud = rng.uniform(0.3, 0.7, (60, 2))
    ax.scatter(*cloud.T, label="cloud")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper right")
    label_points(ax, ["MIDDLE", "CORNER"], [0.5, 0.93], [0.5, 0.86])
    ax.figure.draw_without_rendering()
    boxes = [plt.Text.get_window_extent(text) for text in ax.texts]
    assert not any(box.contains(*point) for box in boxes for point in ax.transData.transform(cloud))
    assert not any(box.overlaps(ax.get_legend().get_window_extent()) for box in boxes)
    plt.close(ax.figure)


def test_a_file_has_the_resolution_that_matplotlib_is_told(tmp_path):
    _, ax = plt.subplots(figsize=(2, 1))
    finish(ax, None, tmp_path / "a.png")
    with plt.rc_context({"savefig.dpi": 300}):
        finish(ax, None, tmp_path / "b.png")
    assert Image.open(tmp_path / "a.png").size == (300, 150)
    assert Image.open(tmp_path / "b.png").size == (600, 300)
    plt.close(ax.figure)


def test_composition_has_the_colours_and_shares_of_the_cells(counts):
    counts.uns["cell_type_colors"] = ["#ff0000", "#0000ff"]
    ax = pl.composition(counts, "condition", "cell_type", show=False)
    control = counts.obs.loc[counts.obs["condition"] == "control", "cell_type"]
    first = ax.containers[0][0]
    np.testing.assert_allclose(first.get_width(), (control == "type_0").mean())
    assert first.get_facecolor() == (1.0, 0.0, 0.0, 1.0)
    assert ax.get_yticklabels()[0].get_text() == f"control ({len(control)} cells)"
    plt.close(ax.figure)


def test_without_stored_colours_plots_agree(counts):
    counts.obsm["z"] = np.random.default_rng(0).normal(size=(120, 2))
    bars = [
        parts[0].get_facecolor()[:3]
        for parts in pl.composition(counts, "condition", "cell_type", show=False).containers
    ]
    cells = pl.latents(counts, "cell_type", bases="z", show=False)[0, 0].collections[0].get_facecolors()[:, :3]
    assert {tuple(color) for color in np.round(bars, 3)} == {tuple(color) for color in np.round(cells, 3)}
    assert len(colors_of(counts, "cell_type", 300)) == 300
    plt.close("all")


def test_latents_have_the_colours_of_the_cells_and_of_genes(counts):
    counts.obsm["z"] = np.random.default_rng(0).normal(size=(120, 2))
    counts.uns["condition_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    gene = counts.var_names[3]
    axes = pl.latents(counts, ["condition", gene], bases="z", show=False)
    drawn = {tuple(color) for color in axes[0, 0].collections[0].get_facecolors()[:, :3].round(3).tolist()}
    assert drawn == {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)}
    x = counts.X.toarray()
    expected = np.log1p(1e4 * x[:, 3] / x.sum(1))
    found = axes[0, 1].collections[0].get_array()
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-5)
    assert gene not in counts.obs
