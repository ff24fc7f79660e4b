"""The command line and the demo, on simulated cells."""

from __future__ import annotations

import re
import subprocess
import sys

import anndata
import numpy as np
import pandas as pd
import pytest

from discovr_sc import DISCOVR, __version__, cli, data
from discovr_sc.errors import InputError, InputTypeError, MissingKeyError
from discovr_sc.fit import load
from discovr_sc.tools.report import headline


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


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "discovr_sc", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.fixture
def file(tmp_path):
    adata = data.simulate_counts(n_cells=200, n_genes=60, n_types=2)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return tmp_path / "cells.h5ad"


def test_fit_and_report(file, tmp_path, capsys):
    out = tmp_path / "model"
    fit = ["fit", str(file), "--condition-key", "condition", "--out", str(out), "--max-epochs", "2"]
    assert cli.main([*fit, "--n-top-genes", "40"]) == 0
    assert "200 cells, 40 genes, conditions ['control', 'treated_1']" in capsys.readouterr().out
    assert anndata.read_h5ad(out / "adata.h5ad").obsm["X_discovr_w"].shape == (200, 2)
    assert cli.main(["report", str(out), "--cell-type-key", "cell_type", "--probes", "knn"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"reads 'condition' with balanced accuracy 0\.\d+ from z and 1\.000 from w \(w is given", told)
    assert "held-out cells" in told
    assert "probe_knn" in (out / "report.csv").read_text()
    for name in ("report.html", "report.csv", "history.png", "disentanglement.png"):
        assert (out / name).stat().st_size > 500
    assert cli.main(fit) == 2
    assert "is there already; give another --out, or --overwrite" in capsys.readouterr().err
    assert cli.main([*fit, "--overwrite", "--model", "CVAE"]) == 0
    assert not (out / "report.csv").exists()  # it was of the model before
    assert cli.main(["report", str(out), "--probes", "knn"]) == 0


@pytest.mark.parametrize(
    ("z", "w", "said"), [(0.52, 0.95, []), (0.52, 0.58, ["train longer"]), (0.8, 0.95, ["z reveals the condition"])]
)
def test_the_headline_of_a_report_says_what_to_do(z, w, said):
    probes = [
        {"split": split, "latent": latent, "of": "stim", "metric": "probe_best", "value": value, "null_high": 0.51}
        for split, values in {"train": {"z": 0.9, "w": 0.5}, "held-out": {"z": z, "w": w}}.items()
        for latent, value in values.items()
    ]
    rows, text = headline(pd.DataFrame([*probes, probes[0] | {"metric": "silhouette"}]))
    assert list(rows["value"]) == [z, w]
    assert f"reads 'stim' with balanced accuracy {z:.3f} from z and {w:.3f} from w" in text
    assert [advice for advice in ("train longer", "z reveals the condition") if advice in text] == said


def test_fit_takes_what_setup_and_training_take(file, tmp_path):
    adata = anndata.read_h5ad(file)
    n = adata.n_obs
    adata.obs["donor"] = np.where(np.arange(n) % 2 == 0, "d1", "d2")
    adata.obs["chip"] = np.where(np.arange(n) % 3 == 0, "c1", "c2")
    adata.obs["age"] = np.linspace(20, 80, n)
    adata.obs["depth"] = np.asarray(adata.X.sum(axis=1)).ravel()
    adata.write_h5ad(file)
    arguments = """--condition-key condition donor --unlabeled-category unknown --size-factor-key depth
        --batch-key chip --categorical-covariate-keys chip --continuous-covariate-keys age --balance-conditions"""
    assert cli.main(["fit", str(file), *arguments.split(), "--out", str(tmp_path / "model"), "--max-epochs", "1"]) == 0
    model = load(tmp_path / "model")
    assert model.condition_keys == ["condition", "donor"]
    assert list(model.conditions) == ["control & d1", "control & d2", "treated_1 & d1", "treated_1 & d2"]
    setup = model.registry["setup_args"]
    assert setup["unlabeled_category"] == "unknown"
    assert setup["batch_key"] == "chip"
    assert setup["size_factor_key"] == "depth"
    assert setup["categorical_covariate_keys"] == ["chip"]
    assert setup["continuous_covariate_keys"] == ["age"]


def test_wrong_arguments_of_fit_and_report_exit_with_2_and_say_why(file, tmp_path, capsys):
    out = ["--out", str(tmp_path / "model")]
    cases = {
        "'mood' is not a column of adata.obs": ["fit", str(file), "--condition-key", "mood", *out],
        "model 'GPT' is not known": ["fit", str(file), "--condition-key", "condition", "--model", "GPT", *out],
        "is not a file; give an h5ad file": ["fit", "nowhere.h5ad", "--condition-key", "condition", *out],
        "is not a readable h5ad file": ["fit", __file__, "--condition-key", "condition", *out],
        "layer 'raw' is not in adata.layers": [
            *("fit", str(file), "--condition-key", "condition", "--layer", "raw", "--n-top-genes", "9", *out)
        ],
        "has no model (model.pt)": ["report", str(tmp_path)],
        "max_epochs=0; give a whole number of at least 1": [
            *("fit", str(file), "--condition-key", "condition", "--max-epochs", "0", "--out", str(tmp_path / "other"))
        ],
    }
    for message, arguments in cases.items():
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_an_unknown_column_of_types_exits_with_2(file, tmp_path, capsys):
    out = str(tmp_path / "model")
    assert cli.main(["fit", str(file), "--condition-key", "condition", "--out", out, "--max-epochs", "1"]) == 0
    assert cli.main(["report", out, "--cell-type-key", "mood"]) == 2
    assert capsys.readouterr().err.startswith("discovr-sc: cell_type_key 'mood' is not a column of adata.obs; it has")


@pytest.mark.parametrize("bug", [KeyError("x_inner"), TypeError("unsupported"), IndexError("7")])
def test_a_bug_keeps_its_traceback(file, tmp_path, monkeypatch, bug):
    def broken(*args, **kwargs):
        raise bug

    monkeypatch.setattr(DISCOVR, "setup_anndata", broken)
    with pytest.raises(type(bug)) as info:
        cli.main(["fit", str(file), "--condition-key", "condition", "--out", str(tmp_path / "model")])
    assert info.value is bug
    assert info.traceback[-1].name == "broken"


def test_a_users_wrong_key_is_one_line(file, tmp_path, capsys):
    assert cli.main(["fit", str(file), "--condition-key", "mood", "--out", str(tmp_path / "model")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("discovr-sc: condition_key 'mood' is not a column of adata.obs; it has")


def test_errors_of_users_are_of_both_kinds():
    assert issubclass(MissingKeyError, KeyError) and issubclass(InputTypeError, TypeError)
    assert issubclass(MissingKeyError, InputError) and issubclass(InputError, ValueError)
    assert str(MissingKeyError("layer 'x' is not there")) == "layer 'x' is not there"


def test_a_study_whose_data_are_missing_says_what_to_put_where(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DISCOVR_SC_DATA", str(tmp_path))
    arguments = ["reproduce", "colored-mnist", "--preset", "laptop", "--jobs", "1", "--out", str(tmp_path / "results")]
    assert cli.main(arguments) == 2
    assert "mnist" in capsys.readouterr().err
