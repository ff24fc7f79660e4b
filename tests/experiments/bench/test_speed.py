"""The benchmark: its clocks, its data, its table."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc import DISCOVR, cli
from discovr_sc.data import simulate_counts
from discovr_sc.experiments.bench import speed
from discovr_sc.experiments.bench import table as speed_table
from discovr_sc.experiments.bench.bare import BareCounts


def test_a_clock_tells_work_from_waiting():
    clock = speed.Clock()
    with clock.running():
        time.sleep(0.2)
    assert clock.wall[0] >= 0.2
    assert clock.cpu[0] < 0.1


def test_ratios_are_medians_over_rounds():
    assert speed.ratio(speed.Clock(cpu=[1.0, 2.0, 9.0]), speed.Clock(cpu=[2.0, 2.0, 3.0])) == 1.0


def test_simulated_cells_are_sparse_and_have_no_duplicates():
    adata = speed.sparse_cells(50, 600)
    assert adata.shape == (50, 600)
    assert (np.diff(adata.X.indptr) == 60).all()
    assert adata.X.has_canonical_format
    assert adata.obs["stim"].nunique() == 2


def test_the_bare_loop_learns():
    adata = simulate_counts(n_cells=300, n_genes=30, n_effect_genes=5, seed=0)
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_latent_z=3)
    model.is_trained_ = True
    before = model.get_reconstruction_error()
    bare = BareCounts(model.module)
    y = torch.as_tensor(adata.obs["_scvi_labels"].to_numpy(), dtype=torch.long)
    x = adata.X.tocsr().astype(np.float32)
    for _ in range(30):
        bare.train(x, y, batch_size=64)
    model.module.eval()
    assert model.get_reconstruction_error() < 0.9 * before


@pytest.mark.slow
def test_the_command_writes_a_tidy_table_and_keeps_other_rows(tmp_path, capsys, monkeypatch):
    pd.DataFrame({"metric": ["epoch_vs_scvi"], "value": [0.5]}).to_csv(tmp_path / "speed.csv", index=False)
    # Processes of their own cannot train once this one has.
    monkeypatch.setattr(speed, "in_process_of_its_own", lambda function, *args: function(*args))
    arguments = ["--parts", "scaling", "--cells", "300", "600", "--genes", "120", "240", "--steps", "2"]
    assert cli.main(["bench", *arguments, "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "speed.csv").set_index("metric")["value"]
    assert table["epoch_vs_scvi"] == 0.5
    assert {"per_cell_6e2_vs_3e2", "memory_mb.300x240", "load_average.scaling"} <= set(table.index)
    assert table["per_cell_cpu_ms.300x120"] > 0
    assert "| 600x120 |" in capsys.readouterr().out
    assert "discovr-sc bench" in (tmp_path / "speed.md").read_text()


def test_an_unknown_part_is_refused(tmp_path, capsys):
    assert cli.main(["bench", "--parts", "gpu", "--out", str(tmp_path)]) == 2
    assert "choose from ['memory', 'scaling', 'kang']" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_table_says_what_could_not_run():
    text = speed_table.markdown({"epoch_cpu_seconds.mrvi": float("nan"), "epoch_cpu_seconds.scvi": 4.2}, "bench")
    assert "| MRVI (PyTorch) | cannot run | - |" in text
    assert "| scVI | 4.2 | - |" in text
