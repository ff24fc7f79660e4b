"""Pictures of latents: the right axes, the right errors."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData, read_h5ad

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


def test_a_umap_is_kept_until_something_changes(counts, monkeypatch):
    counts.obsm["z"] = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    made = []

    def to_plane(latent, *, n_neighbors, seed):
        made.append((n_neighbors, seed))
        return latent[:, :2]

    monkeypatch.setattr("discovr_sc.pl.embeddings.to_plane", to_plane)
    pl.latents(counts, "condition", bases="z", show=False)
    pl.latents(counts, "cell_type", bases="z", show=False)
    assert made == [(15, 0)]
    np.testing.assert_array_equal(counts.obsm["z_umap"], counts.obsm["z"][:, :2])
    pl.latents(counts, "condition", bases="z", seed=1, show=False)
    counts.obsm["z"] = counts.obsm["z"] + 1
    pl.latents(counts, "condition", bases="z", seed=1, show=False)
    assert made == [(15, 0), (15, 1), (15, 1)]
    view = counts[:50]
    pl.latents(view, "condition", bases="z", show=False)
    assert view.is_view
    plt.close("all")


def test_a_kept_umap_survives_a_file(counts, tmp_path, monkeypatch):
    counts.obsm["z"] = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    pl.latents(counts, "condition", bases="z", show=False)
    counts.write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setattr("discovr_sc.pl.embeddings.to_plane", None)
    pl.latents(read_h5ad(tmp_path / "cells.h5ad"), "condition", bases="z", show=False)
    plt.close("all")


def test_the_response_is_of_the_cell_it_belongs_to(counts):
    counts.obsm["z"] = np.random.default_rng(0).normal(size=(120, 2))
    effect = AnnData(
        obs=pd.DataFrame(
            {"response": np.arange(100.0)}, index=counts.obs_names[19::-1].append(counts.obs_names[20:100])
        )
    )
    ax = pl.response(counts, effect, basis="z", show=False)
    drawn = {}
    for cloud in ax.collections:
        values = cloud.get_array()
        if values is not None and len(values):
            drawn |= {tuple(np.round(xy, 5)): v for xy, v in zip(cloud.get_offsets().tolist(), values, strict=True)}
    for cell, value in effect.obs["response"].items():
        assert drawn[tuple(np.round(counts.obsm["z"][counts.obs_names.get_loc(cell)], 5))] == value
    effect.uns["condition_effect"] = {"against": "control"}
    assert pl.response(counts, effect, basis="z", show=False).get_title() == "difference from control (nats)"
    with pytest.raises(KeyError, match="has no column 'response'"):
        pl.response(counts, AnnData(obs=counts.obs[["condition"]]), basis="z")
    effect.obs_names = [f"other {i}" for i in range(100)]
    with pytest.raises(ValueError, match="effect has none of the cells of adata"):
        pl.response(counts, effect, basis="z")
    plt.close("all")
