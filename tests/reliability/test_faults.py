"""Processes that are killed, two writers and full disks: nothing that was saved is lost, and a rerun ends as usual."""

from __future__ import annotations

import multiprocessing
import runpy
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc import DISCOVR, data

WORKER = str(Path(__file__).with_name("worker.py"))
#: Moments to kill at, in ``make test`` and in ``make test-long``.
MOMENTS = [3, pytest.param(20, marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def start():
    """Starts a process that has imported the package already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["discovr_sc.fit", "discovr_sc.experiments", "scanpy"])

    def start(job, folder, **arguments):
        given = {"JOB": job, "FOLDER": str(folder), "ARGUMENTS": arguments}
        process = context.Process(target=runpy.run_path, args=(WORKER, given))
        process.start()
        return process

    return start


def kill_after(process, seconds: float) -> None:
    process.join(seconds)
    process.kill()
    process.join()


@pytest.fixture
def folder(tmp_path):
    """With cells, and a trained model of them."""
    adata = data.simulate_counts(n_cells=80, n_genes=10, n_types=2, n_effect_genes=3, seed=1)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_hidden=8, n_latent_z=3)
    model.train(1, enable_progress_bar=False)
    model.run_name_ = "0"
    model.save(tmp_path / "model", save_anndata=True)
    return tmp_path


def timed(process) -> float:
    started = time.monotonic()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - started


@pytest.mark.parametrize("n", MOMENTS)
def test_a_fit_that_is_killed_ends_as_one_that_is_not(n, start, folder):
    timed(start("fit", folder, out="warm"))
    usual = timed(start("fit", folder, out="whole"))
    whole = DISCOVR.load(folder / "whole")
    rng = np.random.default_rng(0)
    for moment in rng.uniform(0, usual, n):
        kill_after(start("fit", folder, out="killed"), moment)
        if (folder / "killed" / "model.pt").exists():
            break
    if not (folder / "killed" / "model.pt").exists():
        timed(start("fit", folder, out="killed"))
    killed = DISCOVR.load(folder / "killed")
    for name, value in whole.module.state_dict().items():
        assert torch.equal(killed.module.state_dict()[name], value), name
    assert list(killed.history_["train_loss"].iloc[:, 0]) == list(whole.history_["train_loss"].iloc[:, 0])
    np.testing.assert_array_equal(killed.adata.obsm["X_discovr_z"], whole.adata.obsm["X_discovr_z"])
    assert sorted(path.name for path in (folder / "killed").iterdir()) == ["adata.h5ad", "checksums.json", "model.pt"]


@pytest.mark.parametrize("n", MOMENTS)
def test_a_save_that_is_killed_loses_nothing(n, start, folder):
    log = folder / "log"
    first, z = 1, DISCOVR.load(folder / "model").get_latent_representation()
    for moment in np.random.default_rng(0).uniform(0.1, 0.4, n):
        process = start("save", folder, log="log", first=first, n=100_000)
        before = log.read_text() if log.exists() else ""
        while process.is_alive() and (log.read_text() if log.exists() else "") == before:
            time.sleep(0.01)
        kill_after(process, moment)
        saved = int(log.read_text().split()[-1])
        loaded = DISCOVR.load(folder / "model")
        assert int(loaded.run_name_) >= saved >= first
        np.testing.assert_array_equal(loaded.get_latent_representation(), z)
        first = saved + 2


def test_two_processes_save_at_once(start, folder):
    """Whoever is last, the folder holds a whole model at any time."""
    writers = [start("save", folder, log=f"log{i}", first=i * 1000, n=15) for i in (1, 2)]
    n_loaded = 0
    while any(writer.is_alive() for writer in writers):
        DISCOVR.load(folder / "model")
        n_loaded += 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert n_loaded > 0
    assert DISCOVR.load(folder / "model").run_name_ in ("1014", "2014")
    assert sorted(path.name for path in (folder / "model").iterdir()) == ["adata.h5ad", "checksums.json", "model.pt"]


@pytest.mark.parametrize("size", [100, 30_000])
def test_a_full_disk_leaves_what_was_saved(size, start, folder):
    z = DISCOVR.load(folder / "model").get_latent_representation()
    start("save_to_a_full_disk", folder, size=size).join()
    assert "could not be saved" in (folder / "error.txt").read_text()
    np.testing.assert_array_equal(DISCOVR.load(folder / "model").get_latent_representation(), z)
    DISCOVR.load(folder / "model").save(folder / "model", overwrite=True)  # once there is room again
    assert not list((folder / "model").glob(".saving*"))


@pytest.mark.long
def test_a_reproduction_that_is_killed_ends_as_one_that_is_not(start, tmp_path):
    timed(start("reproduce", tmp_path, out="warm"))
    usual = timed(start("reproduce", tmp_path, out="whole"))
    for moment in np.random.default_rng(0).uniform(0, usual, 20):
        kill_after(start("reproduce", tmp_path, out="killed"), moment)
    timed(start("reproduce", tmp_path, out="killed"))
    whole, killed = (pd.read_csv(tmp_path / out / "parametric.csv") for out in ("whole", "killed"))
    is_number = ~whole["metric"].str.contains("seconds|memory|ms_per")
    pd.testing.assert_frame_equal(killed[is_number], whole[is_number])
