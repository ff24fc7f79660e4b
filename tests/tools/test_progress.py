"""Bars of work that takes long, and none for the rest."""

from __future__ import annotations

from time import sleep

from discovr_sc.tools import progress


def test_long_work_shows_a_bar_and_short_work_none(monkeypatch, capsys):
    assert list(progress.shown(range(3), "Short")) == [0, 1, 2]
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(progress, "DELAY", 0.01)
    for _ in progress.shown((i for i in range(3)), "Long", total=3):
        sleep(0.15)
    told = capsys.readouterr()
    assert "Long" in told.out and "/3" in told.out
    assert told.err == ""
