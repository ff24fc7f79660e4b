"""Pictures of latents: the right axes, the right errors."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from discovr_sc import pl

matplotlib.use("Agg")


def test_a_row_for_each_latent_and_a_column_for_each_colouring(counts, tmp_path):
    rng = np.random.default_rng(0)
    counts.obsm["X_discovr_z"], counts.obsm["X_discovr_w"] = rng.normal(size=(120, 5)), rng.normal(size=(120, 2))
    columns_before = list(counts.obs.columns)
    axes = pl.latents(counts, ["condition", "cell_type"], save=tmp_path / "figure.png")
    assert axes.shape == (2, 2)
    assert axes[0, 0].get_xlabel() == "UMAP 1"
    assert axes[1, 1].get_xlabel() == "discovr_w 1"
    assert axes[1, 0].get_title() == "X_discovr_w by condition"
    drawn = np.sort(axes[1, 0].collections[0].get_offsets()[:, 0])
    np.testing.assert_allclose(drawn, np.sort(counts.obsm["X_discovr_w"][:, 0]), rtol=1e-5)
    assert (tmp_path / "figure.png").stat().st_size > 5_000
    assert list(counts.obs.columns) == columns_before
    assert "X_umap" not in counts.obsm


def test_draws_on_given_axes(counts):
    counts.obsm["X_discovr_w"] = np.zeros((120, 2))
    figure, axes = plt.subplots(2)
    drawn = pl.latents(counts, "condition", bases="X_discovr_w", ax=axes[1], show=False)
    assert drawn.shape == (1, 1)
    assert drawn[0, 0] is axes[1]
    assert not axes[0].collections
    pl.latents(counts, ["condition", "cell_type"], bases="X_discovr_w", ax=axes, show=False)
    assert axes[0].get_title() == "X_discovr_w by condition"
    with pytest.raises(ValueError, match="ax has 2 Axes, but 1 latents .* need 1"):
        pl.latents(counts, "condition", bases="X_discovr_w", ax=axes)
    plt.close(figure)


def test_missing_latents_and_columns_raise(counts):
    with pytest.raises(KeyError, match="'X_discovr_z' is not in adata.obsm"):
        pl.latents(counts, "condition")
    counts.obsm["X_discovr_z"] = np.zeros((120, 2))
    with pytest.raises(KeyError, match="color 'mood' is neither a column of adata.obs"):
        pl.latents(counts, "mood", bases=["X_discovr_z"])
