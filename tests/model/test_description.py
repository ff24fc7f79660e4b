"""What a model says of itself, and what it does not say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from discovr_sc import CVAE, DISCOVR
from discovr_sc.data import simulate_counts

#: What the README does, with few cells.
DEFAULT_RUN = """
import discovr_sc
from discovr_sc import DISCOVR, data
adata = data.prepare_counts(data.simulate_counts(n_cells=300, n_genes=60, n_types=2), 50)
DISCOVR.setup_anndata(adata, condition_key="condition")
model = DISCOVR(adata)
model.train(2, train_size=0.8, validation_size=0.1)
model.get_latent_representation(kind="w")
model.get_normalized_expression(kind="marginal")
model.predict_counterfactual(target="treated_1", n_samples=2)
model.disentanglement_report("cell_type", probes=["linear"])
model.predict_condition(n_samples=2)
model.save("model", save_anndata=True)
DISCOVR.load("model").view_anndata_setup()
print(model)
"""


def test_a_model_tells_its_settings_its_training_and_its_separation(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=3, n_hidden=16)
    assert "not trained" in repr(model)
    model.train(2, train_size=0.7, enable_progress_bar=False)
    told = repr(model)
    for part in ("120 cells and 20 genes", "n_hidden=16", "2 epochs on 84 cells", "validation loss", "chance 0.33"):
        assert part in told
    assert len(told.splitlines()) == 5


def test_images_and_models_without_adversary_tell_what_they_have(images):
    CVAE.setup_anndata(images, "condition", tensor_key="x")
    told = repr(CVAE(images, likelihood="image-gaussian", network="cnn"))
    assert "images 2 x 9 x 8" in told
    assert "network='cnn'" in told


def test_the_setup_can_be_viewed(counts, capsys):
    DISCOVR.setup_anndata(counts, "condition")
    DISCOVR(counts).view_anndata_setup()
    assert "condition_key" in capsys.readouterr().out


@pytest.mark.slow
def test_a_default_run_writes_nothing_to_standard_error(tmp_path):
    done = subprocess.run([sys.executable, "-c", DEFAULT_RUN], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for noise in ("GPU", "TPU", "Tip:", "deprecated", "already downloaded", "max_epochs"):
        assert noise not in done.stdout
    assert "adversary_accuracy_train" in done.stdout


@pytest.mark.slow
def test_the_command_line_writes_nothing_to_standard_error(tmp_path):
    simulate_counts(n_cells=300, n_genes=60, n_types=2).write_h5ad(tmp_path / "cells.h5ad")
    fit = ["fit", "cells.h5ad", "--condition-key", "condition", "--out", "model", "--max-epochs", "2"]
    for command in (fit, ["report", "model", "--cell-type-key", "cell_type", "--probes", "linear"]):
        done = subprocess.run(
            [sys.executable, "-m", "discovr_sc", *command], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
