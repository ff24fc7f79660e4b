"""Where data files are looked for and kept."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs

DATA_VARIABLE = "DISCOVR_SC_DATA"


def cache_folder(cache: str | Path | None) -> Path:
    """Return `cache` if given, else the user's cache folder for this package."""
    return platformdirs.user_cache_path("discovr_sc") if cache is None else Path(cache)


def find_file(name: str, *, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """Look a file up in `root`, which must have it, else in the folder DISCOVR_SC_DATA names, else in the cache.

    `name` is its path below any of them, `cache` a folder to use in place of the user's. None if no folder has it.
    """
    path = find_first([name], root=root, cache=cache)
    if path is None and root is not None:
        raise FileNotFoundError(f"root {str(root)!r} has no file {name}; put it there or leave root out.")
    return path


def find_image_file(
    names: Sequence[str], folders: Sequence[str], advice: str, *, root: str | Path | None, cache: str | Path | None
) -> Path:
    """Look a file up that goes by one of several names in one of several folders; an error with advice if nowhere."""
    path = find_first([f"{folder}{name}" for folder in folders for name in names], root=root, cache=cache)
    if path is None:
        where = "no folder has" if root is None else f"root {str(root)!r} has no"
        raise FileNotFoundError(f"{where} {' or '.join(names)}. {advice}")
    return path


def find_first(names: Sequence[str], *, root: str | Path | None, cache: str | Path | None) -> Path | None:
    """Look a file or folder that goes by one of several names up, as :func:`find_file` does; None if it is nowhere."""
    folders = [cache_folder(cache)] if root is None else [Path(root)]
    if root is None and os.environ.get(DATA_VARIABLE):
        folders.insert(0, Path(os.environ[DATA_VARIABLE]))
    return next((folder / name for folder in folders for name in names if (folder / name).exists()), None)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside another, which it then replaces: a stop leaves the old file or the new one."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
