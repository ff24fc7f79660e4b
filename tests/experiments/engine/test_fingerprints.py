"""The committed results are those of the studies as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from discovr_sc.experiments import STUDIES
from discovr_sc.experiments.engine.results import Results

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "kang-ablations"])
def test_every_committed_row_is_of_the_current_settings(name):
    results = Results.open(STUDIES[name], RESULTS)
    assert results.made_by, f"docs/results has no rows of {name}"
    assert results.outdated == []
