"""The whole story on real cells, as a user would walk it."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from discovr_sc import DISCOVR, data, metrics, pl

matplotlib.use("Agg")
KANG = Path(os.environ.get("DISCOVR_SC_DATA", "")) / "kang" / "kang_ifnb_13999.h5ad"
INTERFERON = ("ISG15", "IFI6", "IFIT1", "IFIT3", "ISG20", "LY6E")


@pytest.mark.long
@pytest.mark.skipif(not KANG.exists(), reason="needs Kang's cells; name their folder in DISCOVR_SC_DATA")
def test_from_counts_to_answers(tmp_path):
    everything = data.kang()
    rows = np.random.default_rng(0).permutation(everything.n_obs)
    adata, fresh = everything[np.sort(rows[:4000])].copy(), everything[np.sort(rows[4000:4500])].copy()

    DISCOVR.setup_anndata(adata, condition_key="stim")
    model = DISCOVR(adata)
    model.train(train_size=0.8, validation_size=0.1, enable_progress_bar=False)

    report = model.disentanglement_report("cell_type", probes=["linear", "knn"])
    held_out = report[(report["split"] == "held-out") & (report["metric"] == "probe_best")].set_index(["latent", "of"])
    assert held_out.loc[("w", "stim"), "value"] > 0.9
    assert held_out.loc[("z", "cell_type"), "value"] > 0.5

    is_control = (fresh.obs["stim"] == "CTRL").to_numpy()
    predicted = model.predict_counterfactual(fresh[is_control].copy(), target="STIM", kind="counts")
    x, real, controls = (data.log_counts(cells.X) for cells in (predicted, fresh[~is_control], fresh[is_control]))
    assert metrics.mean_score(x, real).r2 > max(0.9, metrics.mean_score(controls, real).r2)

    table = model.differential_expression(groupby="cell_type", groups=["CD14+ Monocytes", "B cells"], n_samples=2000)
    for _, part in table.groupby("group", observed=True):
        found = part.set_index("gene").loc[list(INTERFERON)]
        assert (found["lfc"] > 1).all()
        assert found["is_de"].mean() > 0.8
    effect = model.get_condition_effect(n_samples=5, per_cell=False)
    assert set(effect.var["variance_restored"].nlargest(50).index) >= {"ISG15", "CXCL10"}

    adata.obsm["X_discovr_z"], adata.obsm["X_discovr_w"] = (
        model.get_latent_representation(kind=kind) for kind in ("z", "w")
    )
    figures = {
        "latents": lambda path: pl.latents(adata, ["stim", "cell_type"], save=path),
        "history": lambda path: pl.history(model, save=path),
        "disentanglement": lambda path: pl.disentanglement(report, save=path),
        "gene_variance": lambda path: pl.gene_variance(effect, save=path),
        "condition_effect": lambda path: pl.condition_effect(table, group="B cells", save=path),
        "counterfactual": lambda path: pl.counterfactual(predicted, fresh[~is_control], save=path),
    }
    for name, draw in figures.items():
        draw(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000

    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", adata)
    np.testing.assert_allclose(
        loaded.get_latent_representation(fresh), model.get_latent_representation(fresh), rtol=1e-5
    )
    # cells that the model has not seen, their condition hidden
    hidden = fresh.copy()
    hidden.obs["stim"] = np.nan
    said = loaded.predict_condition(hidden).idxmax(axis=1).to_numpy()
    assert (said == fresh.obs["stim"].to_numpy()).mean() > 0.9
