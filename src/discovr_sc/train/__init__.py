"""Training: the one plan for every method, and the runner around it."""

from discovr_sc.train.plan import AdversarialPlan
from discovr_sc.train.runner import InterruptibleTrainRunner

__all__ = ["AdversarialPlan", "InterruptibleTrainRunner"]
