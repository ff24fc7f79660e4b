"""Further real sets of cells, read from a folder that the user has."""

from pathlib import Path

import anndata
from anndata import AnnData

from .cache import DATA_VARIABLE, find_file
from .counts import prepare_counts


def pancreas(root: str | Path | None = None, *, n_top_genes: int | None = 2000) -> AnnData:
    """Load 3,274 human pancreas cells and nuclei of four studies and 20 donors.

    The counts are those of the source distribution of the package hormone2cell 0.1.2 on PyPI
    (`hormone2cell/pancreas_downsample200CT.h5ad`, counts in `raw`), here as `pancreas/pancreas_3274.h5ad`.

    Parameters
    ----------
    root
        Folder that must have the file; else it is looked for in the folder that DISCOVR_SC_DATA names, and in the
        cache.
    n_top_genes
        How many highly variable genes to keep (see :func:`prepare_counts`); None keeps all.

    Returns
    -------
    AnnData
        `obs`: `suspension_type` (cell, nucleus), `cell_type` (9), `donor_id` (20), `Dataset` (4).

    Examples
    --------
    >>> pancreas().shape  # doctest: +SKIP
    (3274, 2000)
    """
    return _load("pancreas/pancreas_3274.h5ad", root, n_top_genes)


def glioblastoma(root: str | Path | None = None, *, n_top_genes: int | None = None) -> AnnData:
    """Load 5,000 cells of five glioblastoma patients, untreated and treated with panobinostat (Zhao et al. 2021).

    They are the example data of the R package lemur, 300 genes, here as `glioblastoma/glioblastoma_zhao_5000.h5ad`.

    Parameters
    ----------
    root, n_top_genes
        See :func:`pancreas`; all genes by default.

    Returns
    -------
    AnnData
        `obs`: `condition` (ctrl, panobinostat), `patient_id` (5).

    Examples
    --------
    >>> glioblastoma().shape  # doctest: +SKIP
    (5000, 300)
    """
    return _load("glioblastoma/glioblastoma_zhao_5000.h5ad", root, n_top_genes)


def papalexi(root: str | Path | None = None, *, n_top_genes: int | None = None) -> AnnData:
    """Load 20,729 THP-1 cells, each with one of 25 genes knocked out or none (Papalexi et al. 2021).

    They are the low-MOI example data of the R package sceptredata, 299 genes, here as
    `papalexi/papalexi_lowmoi_20729.h5ad`.

    Parameters
    ----------
    root, n_top_genes
        See :func:`pancreas`; all genes by default.

    Returns
    -------
    AnnData
        `obs`: `target` (26, one of them non-targeting), `grna` (107), `bio_rep` (3).

    Examples
    --------
    >>> papalexi().shape  # doctest: +SKIP
    (20729, 299)
    """
    return _load("papalexi/papalexi_lowmoi_20729.h5ad", root, n_top_genes)


def _load(name: str, root: str | Path | None, n_top_genes: int | None) -> AnnData:
    path = find_file(name, root=root, cache=None)
    if path is None:
        raise FileNotFoundError(
            f"no folder has {name}; its docstring says where the counts come from. Put the file into a folder, and "
            f"name that with root=... or the environment variable {DATA_VARIABLE}."
        )
    return prepare_counts(anndata.read_h5ad(path), n_top_genes)
