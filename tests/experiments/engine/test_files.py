"""Files that runs share: one writer at a time, whole files, tables."""

from __future__ import annotations

import os
import threading
import time

import pandas as pd
import pytest

from discovr_sc.experiments.engine import files
from discovr_sc.experiments.engine.files import locked, markdown_table, replacing, write_atomically


def test_a_lock_lets_one_in_at_a_time(tmp_path):
    inside, most = [], []

    def work():
        with locked(tmp_path):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6
    assert not list(tmp_path.iterdir())


def test_a_lock_is_let_go_of_after_an_error_and_a_stale_one_is_ignored(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    lock = tmp_path / ".lock"
    lock.touch()
    long_ago = time.time() - 2 * files.STALE_AFTER
    os.utime(lock, (long_ago, long_ago))
    with locked(tmp_path):
        assert lock.exists()
    assert not lock.exists()


def test_a_stop_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    write_atomically(path, "old ± 1")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text(encoding="utf-8") == "old ± 1"
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_without_rows_has_its_heading():
    assert markdown_table(pd.DataFrame(columns=["a", "b"])) == "| a | b |\n|---|---|\n"
