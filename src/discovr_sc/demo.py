"""The demo: IFN-beta stimulated PBMCs, from counts to a table, a picture and an h5ad."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import scvi
from anndata import AnnData

from discovr_sc import data, metrics, pl
from discovr_sc.model import DISCOVR


def run(out: str | Path = "demo", *, max_epochs: int = 30, n_cells: int | None = None, seed: int = 0) -> None:
    """Train DISCOVR on Kang's PBMCs, print how well z and w separate, write ``umap.png`` and ``latents.h5ad``.

    The files go to the folder ``out``; with ``n_cells`` a random sample of that many cells is taken.
    """
    matplotlib.use("Agg")
    scvi.settings.seed = seed
    out = Path(out)
    adata, condition, cell_type = load()
    if n_cells is not None:
        rows = np.random.default_rng(seed).choice(adata.n_obs, min(n_cells, adata.n_obs), replace=False)
        adata = adata[np.sort(rows)].copy()
    print(f"{adata.n_obs:,} cells, {adata.n_vars:,} genes, conditions {list(adata.obs[condition].cat.categories)}")

    DISCOVR.setup_anndata(adata, condition_key=condition)
    model = DISCOVR(adata)
    model.train(max_epochs=max_epochs, train_size=0.8, validation_size=0.1)
    for latent in ("z", "w"):
        adata.obsm[f"X_discovr_{latent}"] = model.get_latent_representation(kind=latent)
    # What w tells of the condition is judged on cells whose condition the model is not told.
    hidden = adata[np.setdiff1d(np.arange(adata.n_obs), model.train_indices)].copy()
    hidden.obs[condition] = np.nan
    judged = {latent: adata.obsm[f"X_discovr_{latent}"].copy() for latent in ("z", "w")}
    judged["w"][adata.obs_names.isin(hidden.obs_names)] = model.get_latent_representation(hidden, kind="w")

    print("\nHow well the latents separate (chance is one over the number of groups; probes on held-out cells):\n")
    print(separation(adata, judged, condition, cell_type, train=model.train_indices).to_string(index=False))
    print("\nTypes that respond differently can be told apart in w, too.")

    out.mkdir(parents=True, exist_ok=True)
    pl.latents(adata, [condition, cell_type], show=False, save=out / "umap.png", seed=seed)
    adata.write_h5ad(out / "latents.h5ad")
    print(f"\nWrote {out / 'umap.png'} and {out / 'latents.h5ad'}")


def load() -> tuple[AnnData, str, str]:
    """Kang's PBMCs, or simulated cells where they cannot be had; names of the condition and type columns."""
    try:
        return data.kang(), "stim", "cell_type"
    except data.DataUnavailableError as reason:
        print(f"{reason}\nNOT THE REAL DATA: going on with cells simulated by discovr_sc.data.simulate_counts.")
        return data.simulate_counts(n_cells=4000, n_genes=1000, n_types=6), "condition", "cell_type"


def separation(
    adata: AnnData, latents: dict[str, np.ndarray], condition: str, cell_type: str, train: np.ndarray
) -> pd.DataFrame:
    """Probe accuracies on held-out cells and K-means NMI, of both latents for condition and cell type."""
    rows = []
    for latent, x in latents.items():
        for column, wanted in ((condition, {"z": "low", "w": "high"}), (cell_type, {"z": "high", "w": "low"})):
            labels = adata.obs[column].astype(str).to_numpy()
            scores = [metrics.probe(x, labels, kind=kind, train=train).accuracy for kind in ("linear", "knn")]
            scores.append(metrics.kmeans_nmi(x, labels).best)
            rows.append((latent, column, wanted[latent], *(f"{score:.3f}" for score in scores), len(set(labels))))
    columns = ["latent", "of", "wanted", "linear probe", "kNN probe", "K-means NMI", "groups"]
    return pd.DataFrame(rows, columns=columns)
