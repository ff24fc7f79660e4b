"""Predicted cells beside real ones, and beside no change."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from anndata import AnnData

from discovr_sc import DISCOVR, data, metrics, pl

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def model():
    adata = data.simulate_counts(n_cells=200, n_genes=40, n_types=2, n_effect_genes=10, seed=1)
    DISCOVR.setup_anndata(adata, condition_key="condition")
    model = DISCOVR(adata, n_hidden=8)
    model.train(max_epochs=3, train_size=0.7, enable_progress_bar=False)
    return model


def test_a_perfect_prediction_without_noise_lies_on_the_diagonal():
    rates = np.random.default_rng(0).dirichlet(np.full(200, 0.3), size=3)[np.arange(3000) % 3]
    counts = np.random.default_rng(1).poisson(1500 * rates)
    ax = pl.counterfactual(AnnData(rates), AnnData(counts.astype(np.float32)), show=False)
    assert float(ax.get_title().split()[-1]) > 0.99
    plt.close(ax.figure)


def test_counterfactual_shows_gene_means_and_their_agreement(model, tmp_path):
    cells = model.adata
    real = cells[(cells.obs["condition"] != "control").to_numpy()]
    predicted = model.predict_counterfactual(target="treated_1")
    _, ax = plt.subplots()
    assert pl.counterfactual(predicted, real, ax=ax, save=tmp_path / "c.png") is ax
    counts = real.X.toarray()
    means = np.log1p(1e4 * (counts / counts.sum(1, keepdims=True)).mean(0))
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 0], means, rtol=1e-6)
    score = metrics.mean_score([np.log1p(1e4 * predicted.X.mean(0))], [means])
    assert f"R2 {score.r2:.3f}" in ax.get_title()
    assert (tmp_path / "c.png").stat().st_size > 5_000
    with pytest.raises(ValueError, match="different genes"):
        pl.counterfactual(predicted[:, :5], real)


def test_the_baseline_of_no_change_and_the_genes_that_change(tmp_path):
    rng = np.random.default_rng(0)
    before, after = rng.poisson(20, (50, 30)).astype(np.float32), rng.poisson(20, (50, 30)).astype(np.float32)
    after[:, 7] += 500
    cells, real = AnnData(before), AnnData(after)
    ax = pl.counterfactual(real, real, unchanged=cells, n_labels=1, save=tmp_path / "b.svg")
    assert [text.get_text() for text in ax.texts] == ["7"]
    assert "no change: R2" in ax.get_title() and "R2 1.000" in ax.get_title()
    assert len(ax.collections[2].get_offsets()) == 1
    assert (tmp_path / "b.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="predicted and unchanged have different genes"):
        pl.counterfactual(real, real, unchanged=cells[:, :5])
