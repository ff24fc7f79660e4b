"""Two processes over gloo against one."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from discovr_sc.module.priors import over_ranks
from discovr_sc.train.runner import StoppingTrainer

SCRIPT = Path(__file__).parent / "distributed_training.py"


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")}
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, env=environment, cwd=tmp_path, timeout=600)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    for key in ("weights", "condition_means"):
        np.testing.assert_allclose(first[key], second[key], rtol=1e-4, atol=1e-5)
    assert first["n_epochs"] == second["n_epochs"]

    one = runpy.run_path(str(SCRIPT))["train"](1)
    assert max(first["n_epochs"], one["n_epochs"]) < 60  # early stopping works in both
    assert first["error"] == pytest.approx(one["error"], rel=0.05)
    assert first["type_probe"] == pytest.approx(one["type_probe"], abs=0.1)
    assert first["condition_probe"] == pytest.approx(one["condition_probe"], abs=0.1)


def test_sums_over_one_process_stay():
    total = torch.ones(3, requires_grad=True)
    assert over_ranks(total) is total


def test_early_stopping_is_kept_in_several_processes():
    trainer = StoppingTrainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        early_stopping=True,
        early_stopping_monitor="validation_loss",
        early_stopping_patience=7,
        logger=False,
    )
    assert trainer.early_stopping_callback.monitor == "validation_loss"
    assert trainer.early_stopping_callback.patience == 7
    assert StoppingTrainer(accelerator="cpu", devices=2, strategy="ddp", logger=False).early_stopping_callback is None
