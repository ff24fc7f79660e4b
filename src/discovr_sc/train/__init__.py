"""Training: the one plan for every method, and the runner around it."""

from discovr_sc.train.checkpoints import EpochCheckpoint
from discovr_sc.train.plan import AdversarialPlan
from discovr_sc.train.runner import InterruptibleTrainRunner
from discovr_sc.train.splitter import Splitter

__all__ = ["AdversarialPlan", "EpochCheckpoint", "InterruptibleTrainRunner", "Splitter"]
