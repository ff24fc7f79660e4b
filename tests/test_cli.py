"""The command line and the demo, on simulated cells."""

from __future__ import annotations

import anndata
import pytest

from discovr_sc import cli, data


def test_demo_falls_back_to_the_simulator_and_says_so(tmp_path, monkeypatch, capsys):
    def unavailable():
        raise data.DataUnavailableError("Kang's data cannot be had.")

    monkeypatch.setattr(data, "kang", unavailable)
    assert cli.main(["demo", "--out", str(tmp_path / "out"), "--max-epochs", "2", "--n-cells", "300"]) == 0
    printed = capsys.readouterr().out
    assert "NOT THE REAL DATA" in printed
    lines = printed.splitlines()
    header = next(i for i, line in enumerate(lines) if line.split()[:2] == ["latent", "of"])
    assert [line.split()[:2] for line in lines[header + 1 : header + 5]] == [
        ["z", "condition"],
        ["z", "cell_type"],
        ["w", "condition"],
        ["w", "cell_type"],
    ]
    written = anndata.read_h5ad(tmp_path / "out" / "latents.h5ad")
    assert written.obsm["X_discovr_z"].shape == (300, 10)
    assert written.obsm["X_discovr_w"].shape == (300, 2)
    assert (tmp_path / "out" / "umap.png").stat().st_size > 10_000


def test_unknown_commands_fail(capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["fly"])
    assert exit_info.value.code == 2
    assert "invalid choice: 'fly'" in capsys.readouterr().err
