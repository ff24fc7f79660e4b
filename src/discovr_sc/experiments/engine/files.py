"""Files that several runs share, and the one writer of Markdown tables."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd

from discovr_sc.data.cache import replacing

#: Seconds after which a lock was left behind by a process that is gone; what is done under one takes far less.
STALE_AFTER = 60.0


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, on any system: the one that made the lock file goes on, the others wait."""
    lock = folder / ".lock"
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time.time() - lock.stat().st_mtime > STALE_AFTER:
                    lock.unlink()
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text in the place of another."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def markdown_table(table: pd.DataFrame) -> str:
    """A table's columns as Markdown, without its index.

    Examples
    --------
    >>> print(markdown_table(pd.DataFrame({"method": ["discovr"], "score": [0.5]})), end="")
    | method | score |
    |---|---|
    | discovr | 0.5 |
    """
    rows = [table.columns, *table.itertuples(index=False)]
    heading, *lines = ("| " + " | ".join(map(str, row)) + " |" for row in rows)
    return "\n".join([heading, "|---" * len(table.columns) + "|", *lines]) + "\n"
