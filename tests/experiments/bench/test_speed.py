"""The benchmark: its clocks, its data, its table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from discovr_sc import cli
from discovr_sc.experiments.bench import speed
from discovr_sc.experiments.bench import table as speed_table
from discovr_sc.experiments.engine.clock import Clock


def test_ratios_are_medians_over_rounds():
    assert speed.ratio(Clock(cpu=[1.0, 2.0, 9.0]), Clock(cpu=[2.0, 2.0, 3.0])) == 1.0


def test_simulated_cells_are_sparse_and_have_no_duplicates():
    adata = speed.sparse_cells(50, 600)
    assert adata.shape == (50, 600)
    assert (np.diff(adata.X.indptr) == 60).all()
    assert adata.X.has_canonical_format
    assert adata.obs["stim"].nunique() == 2


def test_an_epoch_on_the_swiss_roll_is_compared_with_the_bare_loop(tmp_path, capsys):
    assert cli.main(["bench", "--parts", "swiss-roll", "--points", "500", "--rounds", "1", "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "speed.csv").set_index("metric")["value"]
    assert table["swiss_roll_epoch_wall_seconds.discovr"] > 0
    assert table["swiss_roll_epoch_wall_seconds.bare"] > 0
    assert f"DISCOVR / bare loop | {speed_table.show(table['swiss_roll_epoch_vs_bare'])} |" in capsys.readouterr().out


def test_many_genes_are_compared_with_few_and_with_scvi(tmp_path):
    arguments = ["--parts", "genes", "--genes", "100", "200", "--steps", "2", "--rounds", "1"]
    assert cli.main(["bench", *arguments, "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "speed.csv").set_index("metric")["value"]
    assert (table[["epoch_vs_scvi_100", "epoch_vs_scvi_200", "per_cell_200_vs_100"]] > 0).all()


def test_counterfactuals_are_compared_with_expression(tmp_path):
    arguments = ["--parts", "counterfactuals", "--genes", "120", "--asked", "300", "--rounds", "1"]
    assert cli.main(["bench", *arguments, "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "speed.csv").set_index("metric")["value"]
    assert table["counterfactual_vs_expression"] > 0


@pytest.mark.slow
def test_importing_everything_costs_little_more_than_scvi(tmp_path):
    assert cli.main(["bench", "--parts", "import", "--rounds", "1", "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "speed.csv").set_index("metric")["value"]
    assert table["import_cpu_seconds.scvi"] > 0
    assert table["import_vs_scvi"] < 1.5  # the goal is 1.1; one round on a busy machine is not exact


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
    assert (
        "choose from ['import', 'memory', 'scaling', 'genes', 'counterfactuals', 'kang', 'swiss-roll']"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_the_table_says_what_could_not_run():
    text = speed_table.markdown({"epoch_cpu_seconds.mrvi": float("nan"), "epoch_cpu_seconds.scvi": 4.2}, "bench")
    assert "| MRVI (PyTorch) | cannot run | - |" in text
    assert "| scVI | 4.2 | - |" in text
