"""Clocks of blocks and of trainings, and the peak of memory."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

from discovr_sc import DISCOVR
from discovr_sc.data import simulate_counts
from discovr_sc.experiments.engine.clock import Clock, TrainingClock, peak_memory_mb, reset_peak_memory


def test_a_clock_tells_work_from_waiting():
    clock = Clock()
    with clock.running():
        time.sleep(0.2)
    assert clock.wall[0] >= 0.2
    assert clock.cpu[0] < 0.1


@pytest.mark.parametrize(("each", "entries"), [("epoch", 2), ("batch", 6)])
def test_epochs_or_steps_of_a_training_are_measured(each, entries):
    adata = simulate_counts(n_cells=90, n_genes=20, n_effect_genes=5)
    DISCOVR.setup_anndata(adata, "condition")
    clock = Clock()
    DISCOVR(adata).train(
        2, batch_size=30, train_size=1.0, enable_progress_bar=False, callbacks=[TrainingClock(clock, each)]
    )
    assert len(clock.cpu) == len(clock.wall) == entries
    assert min(clock.wall) > 0


def test_the_peak_is_of_what_was_held():
    gc.collect()  # what earlier tests have left is not to be freed meanwhile
    reset_peak_memory()
    before = peak_memory_mb()
    held = np.ones(200 * 2**17)  # 200 MB
    assert peak_memory_mb() - before > 0.8 * held.nbytes / 2**20
