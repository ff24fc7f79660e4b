"""Studies are found in their files, and only where they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from discovr_sc.experiments import STUDIES, studies
from discovr_sc.experiments.studies import kang


def test_every_study_is_known_by_its_name():
    assert len(STUDIES) == 23
    assert all(study.name == name for name, study in STUDIES.items())
    assert STUDIES["kang"] is kang.KANG


def test_a_study_needs_one_file_and_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    text = "from dataclasses import replace\nfrom discovr_sc.experiments.studies.kang import KANG\n"
    (tmp_path / "mine.py").write_text(text + "MINE = replace(KANG, name='mine')\n")
    assert set(studies.find_studies()) == {*STUDIES, "mine"}
    (tmp_path / "zwin.py").write_text(text + "TWIN = replace(KANG, name='mine')\n")
    with pytest.raises(ValueError, match="two studies are called 'mine'"):
        studies.find_studies()


def test_the_command_line_imports_no_study_before_one_is_asked_for():
    code = """
import sys
from discovr_sc import cli
try:
    cli.main(["reproduce", "--help"])
except SystemExit:
    pass
sys.exit(any(name.startswith("discovr_sc.experiments") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--list" in done.stdout
