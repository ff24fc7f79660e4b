"""Fitting and reporting for the command line: from an h5ad to a model's folder, and from that to a report."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import anndata
import pandas as pd
import scvi
from anndata import AnnData

import discovr_sc
from discovr_sc.data import prepare_counts
from discovr_sc.errors import InputError
from discovr_sc.model import __all__ as MODELS
from discovr_sc.model.base import DisentangledModel
from discovr_sc.model.checks import check_columns, find_data
from discovr_sc.tools.page import PROBES
from discovr_sc.tools.report import judged_split
from discovr_sc.train.checkpoints import EpochCheckpoint, job_of

#: What :func:`report` writes.
REPORT_FILES = ("report.csv", "report.html", "history.png", "disentanglement.png")
#: File with the state of an unfinished training.
CHECKPOINT = "checkpoint.ckpt"


def fit(
    path: str | Path,
    out: str | Path,
    *,
    condition_key: str | list[str],
    model: str = "DISCOVR",
    layer: str | None = None,
    n_top_genes: int | None = None,
    max_epochs: int | None = None,
    balance_conditions: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    checkpoint_every: float = 60.0,
    **setup,
) -> DisentangledModel:
    """Train a model on an h5ad file and save it with its cells and their latents.

    A training that was killed goes on from its last checkpoint, some epochs before, when this is called again with the
    same arguments, and ends with the weights of one that was not.

    Parameters
    ----------
    path, out
        An h5ad file with counts, and the folder to write: the model, and ``adata.h5ad`` with ``obsm["X_<model>_z"]``
        and ``_w``. One that is there is replaced with ``overwrite`` only.
    model, n_top_genes, seed
        Name of a model class, how many highly variable genes to keep (all by default), and seed of everything random.
    condition_key, layer, max_epochs, balance_conditions, **setup
        See :meth:`DISCOVR.setup_anndata` and :meth:`DISCOVR.train`.
    checkpoint_every
        Seconds between checkpoints.
    """
    out = Path(out)
    if model not in MODELS:
        raise ValueError(f"model {model!r} is not known; choose from {list(MODELS)}.")
    checkpoint = out / CHECKPOINT
    is_taken = out.is_file() or (out.exists() and any(not path.name.startswith(".") for path in out.iterdir()))
    if is_taken and not overwrite and not checkpoint.exists():
        raise FileExistsError(f"{out} is there already; give another --out, or --overwrite.")
    adata = read(path)
    if n_top_genes is not None:
        if layer is not None:
            adata.X, layer = find_data(adata, layer, None)[0].copy(), None
        adata = prepare_counts(adata, n_top_genes)
    model_cls = getattr(discovr_sc, model)
    model_cls.setup_anndata(adata, condition_key, layer=layer, **setup)
    scvi.settings.seed = seed
    with warnings.catch_warnings():
        # At the command line nobody may be there to read a warning.
        warnings.filterwarnings("error", message=".*does not contain unnormalized count data")
        try:
            fitted = model_cls(adata)
        except UserWarning as warning:
            raise InputError(f"{warning} (with --layer)") from None
    out.mkdir(parents=True, exist_ok=True)  # before the training, which would be lost if this failed
    job = {"model": model, "seed": seed, "max_epochs": max_epochs, "balance_conditions": balance_conditions}
    job |= {"version": discovr_sc.__version__, "setup": fitted.registry["setup_args"], "data": fitted.own_fingerprint()}
    old_job = job_of(checkpoint)
    if old_job not in (None, job) and not overwrite:
        raise InputError(
            f"{out} has an unfinished training with other arguments or data; give those, another --out, or --overwrite."
        )
    goes_on = checkpoint if old_job == job else None
    if goes_on:
        print(f"Going on with the training of {checkpoint}", flush=True)
    print(f"{adata.n_obs:,} cells, {adata.n_vars:,} genes, conditions {list(map(str, fitted.conditions))}", flush=True)
    fitted.train(
        max_epochs,
        train_size=0.8,
        validation_size=0.1,
        balance_conditions=balance_conditions,
        callbacks=[EpochCheckpoint(checkpoint, every=checkpoint_every, job=job)],
        ckpt_path=goes_on,
    )
    for latent in fitted.latents:
        adata.obsm[f"X_{model.lower()}_{latent}"] = fitted.get_latent_representation(kind=latent)
    fitted.save(str(out), overwrite=True, save_anndata=True)
    for name in REPORT_FILES:
        (out / name).unlink(missing_ok=True)  # they were of the model that is replaced
    for path in (checkpoint, *out.glob(f".{CHECKPOINT}-*")):  # processes that were killed may have left some
        path.unlink(missing_ok=True)
    return fitted


def report(
    folder: str | Path, *, cell_type_key: str | None = None, probes: Sequence[str] = PROBES, seed: int = 0, **page
) -> pd.DataFrame:
    """Write to the folder of a model that :func:`fit` saved its report and pictures, and return the report's table.

    The files are those of ``REPORT_FILES``; for the arguments see :meth:`DISCOVR.report`.
    """
    from discovr_sc import pl

    folder = Path(folder)
    model = load(folder)
    if cell_type_key is not None:
        check_columns(model.adata, [cell_type_key], "cell_type_key")
    of_table, of_page, of_history, of_probes = (folder / name for name in REPORT_FILES)
    table = model.report(of_page, cell_type_key=cell_type_key, probes=probes, seed=seed, **page).table
    table.to_csv(of_table, index=False)
    pl.history(model, show=False, save=of_history)
    pl.disentanglement(table, split=judged_split(table), show=False, save=of_probes)
    return table


def load(folder: str | Path) -> DisentangledModel:
    """The model in a folder, whichever its class."""
    folder = Path(folder)
    name = DisentangledModel.load_registry(str(folder))["model_name"]
    if name not in MODELS:
        raise ValueError(f"{folder} holds a {name}, which is not a model of discovr_sc.")
    return getattr(discovr_sc, name).load(str(folder))


def read(path: str | Path) -> AnnData:
    """An h5ad file, or an error that says what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give an h5ad file.")
    try:
        return anndata.read_h5ad(path)
    except OSError as error:
        raise ValueError(f"{path} is not a readable h5ad file ({error}).") from error
