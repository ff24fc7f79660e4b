"""What processes do that the tests of faults kill: run by ``runpy.run_path``, ``JOB`` and its arguments given."""

import logging
import os
import resource
import sys
from pathlib import Path

import torch


def quiet() -> None:
    """Nobody reads what a process says that is killed."""
    for name in ("lightning.pytorch", "lightning.fabric", "scvi"):
        logging.getLogger(name).setLevel(logging.ERROR)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)
    torch.set_num_threads(1)


def fit(folder: Path, arguments: dict) -> None:
    """As the command line does, with a checkpoint after every epoch."""
    from discovr_sc.fit import fit

    fit(folder / "cells.h5ad", folder / arguments["out"], condition_key="condition", max_epochs=8, checkpoint_every=0)


def save(folder: Path, arguments: dict) -> None:
    """Save again and again, and note what was saved."""
    from discovr_sc import DISCOVR

    model = DISCOVR.load(folder / "model")
    with (folder / arguments["log"]).open("a") as log:
        for number in range(arguments["first"], arguments["first"] + arguments["n"]):
            model.run_name_ = str(number)
            model.save(folder / "model", overwrite=True, save_anndata=True)
            log.write(f"{number}\n")
            log.flush()


def save_to_a_full_disk(folder: Path, arguments: dict) -> None:
    """No file may grow beyond a size, as where a disk is full."""
    from discovr_sc import DISCOVR

    model = DISCOVR.load(folder / "model")
    resource.setrlimit(resource.RLIMIT_FSIZE, (arguments["size"], resource.RLIM_INFINITY))
    try:
        model.save(folder / "model", overwrite=True, save_anndata=True)
    except OSError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (folder / "error.txt").write_text(str(error))
    os._exit(0)  # HDF5 would try to write the rest


def reproduce(folder: Path, arguments: dict) -> None:
    """A small study."""
    from dataclasses import replace

    from discovr_sc.experiments import STUDIES, Preset, run_study

    tiny = Preset(n_train=200, n_eval=200, max_epochs=2, patience=2, batch_size=100, n_likelihood=10, n_mc_samples=2)
    study = STUDIES["parametric"]
    methods = {name: study.methods[name] for name in ("discovr-paper", "diva")}
    run_study(replace(study, presets={"tiny": tiny}, methods=methods), folder / arguments["out"], n_seeds=2, jobs=1)


if "JOB" in globals():  # given by run_path
    quiet()
    globals()[globals()["JOB"]](Path(globals()["FOLDER"]), globals()["ARGUMENTS"])
