"""A training that the test of distributed training runs in one process and in two: python <this> <folder>."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import scvi
import torch

from discovr_sc import DISCOVR
from discovr_sc.data import simulate_counts
from discovr_sc.metrics import probe

MAX_EPOCHS, BATCH_SIZE = 60, 64


def train(devices: int, **kwargs) -> dict:
    """Train on simulated counts, with a prior that uses the condition means and with the adversary."""
    torch.set_num_threads(1)
    scvi.settings.seed = 0
    adata = simulate_counts(n_cells=1200, n_genes=40, n_types=3, n_effect_genes=10, seed=1)
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_latent_z=4, prior="mapped", weights={"adv": 5.0, "mmd": 0.0})
    model.train(
        MAX_EPOCHS,
        batch_size=BATCH_SIZE // devices,  # of each process: the steps are those of one process
        accelerator="cpu",
        devices=devices,
        early_stopping=True,
        early_stopping_monitor="reconstruction_loss_validation",  # the loss of a game goes up and down
        early_stopping_patience=5,
        early_stopping_min_delta=1.0,
        early_stopping_warmup_epochs=25,  # the conditions are aligned from epoch 15: before, z tells them
        enable_progress_bar=False,
        **kwargs,
    )
    z = model.get_latent_representation(kind="z")
    return {
        "error": float(model.trainer.callback_metrics["reconstruction_loss_train"]),
        "n_epochs": model.trainer.current_epoch,
        "type_probe": probe(z, adata.obs["cell_type"].to_numpy()).accuracy,
        "condition_probe": probe(z, adata.obs["condition"].to_numpy()).accuracy,
        "condition_means": model.module.condition_means.means.flatten().tolist(),
        "weights": torch.cat([p.flatten() for p in model.module.parameters()]).tolist(),
    }


if __name__ == "__main__":
    result = train(2, strategy="ddp_find_unused_parameters_true")
    rank = os.environ.get("LOCAL_RANK", "0")
    Path(sys.argv[1], f"rank{rank}.json").write_text(json.dumps(result))
