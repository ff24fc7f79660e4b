"""The paper's experiments: a Study is data, one runner runs any of them."""

from discovr_sc.experiments.published import BLOCKS, load_published
from discovr_sc.experiments.runner import run_study
from discovr_sc.experiments.studies import STUDIES
from discovr_sc.experiments.study import Method, Preset, Study

__all__ = ["BLOCKS", "STUDIES", "Method", "Preset", "Study", "load_published", "run_study"]
