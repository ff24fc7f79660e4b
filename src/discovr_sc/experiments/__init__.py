"""The paper's experiments: a Study is data, one runner runs any of them."""

from discovr_sc.experiments.engine.published import BLOCKS, load_published
from discovr_sc.experiments.engine.runner import run_study
from discovr_sc.experiments.engine.study import Method, Preset, Study
from discovr_sc.experiments.studies import STUDIES

__all__ = ["BLOCKS", "STUDIES", "Method", "Preset", "Study", "load_published", "run_study"]
