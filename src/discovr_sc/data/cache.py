"""Where data files are looked for and kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs

DATA_VARIABLE = "DISCOVR_SC_DATA"


def cache_folder(cache: str | Path | None) -> Path:
    """Return `cache` if given, else the user's cache folder for this package."""
    return platformdirs.user_cache_path("discovr_sc") if cache is None else Path(cache)


def find_file(name: str, *, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """Look a data file up in `root`, else in the folder DISCOVR_SC_DATA names, else in the cache.

    Parameters
    ----------
    name
        Path of the file below any of the folders.
    root
        Folder that must have the file; the others are then not looked at.
    cache
        Folder to use in place of the user's cache.

    Returns
    -------
    Path or None
        The file, or None where no folder has it.

    Raises
    ------
    FileNotFoundError
        If `root` is given and lacks the file.
    """
    if root is not None:
        path = Path(root) / name
        if not path.is_file():
            raise FileNotFoundError(f"root {str(root)!r} has no file {name}; put it there or leave root out.")
        return path
    return find_first([name], root=None, cache=cache)


def find_first(names: Sequence[str], *, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """Look a file or folder that goes by one of several names up, as :func:`find_file` does; None if it is nowhere."""
    folders = [cache_folder(cache)] if root is None else [Path(root)]
    if root is None and os.environ.get(DATA_VARIABLE):
        folders.insert(0, Path(os.environ[DATA_VARIABLE]))
    return next((folder / name for folder in folders for name in names if (folder / name).exists()), None)
