"""Every study, by name."""

from __future__ import annotations

from discovr_sc.experiments.counterfactual import COUNTERFACTUAL
from discovr_sc.experiments.differential import DIFFERENTIAL_EXPRESSION
from discovr_sc.experiments.images import CELEBA_GLASSES, CELEBA_HATS, COLORED_MNIST, COLORED_MNIST_ABLATIONS
from discovr_sc.experiments.kang import KANG, KANG_ABLATIONS
from discovr_sc.experiments.new_condition import NEW_CONDITION
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
        COUNTERFACTUAL,
        DIFFERENTIAL_EXPRESSION,
        NEW_CONDITION,
        COLORED_MNIST,
        COLORED_MNIST_ABLATIONS,
        CELEBA_GLASSES,
        CELEBA_HATS,
    )
}
