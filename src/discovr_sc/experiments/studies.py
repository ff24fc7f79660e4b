"""Every study, by name."""

from __future__ import annotations

from discovr_sc.experiments.kang import KANG, KANG_ABLATIONS
from discovr_sc.experiments.search import PARAMETRIC_SEARCH, SWISS_ROLL_SEARCH
from discovr_sc.experiments.study import Study
from discovr_sc.experiments.synthetic import ABLATIONS, PARAMETRIC, PARAMETRIC_NOISE, SWISS_ROLL

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        PARAMETRIC,
        PARAMETRIC_SEARCH,
        PARAMETRIC_NOISE,
        SWISS_ROLL,
        SWISS_ROLL_SEARCH,
        ABLATIONS,
        KANG,
        KANG_ABLATIONS,
    )
}
