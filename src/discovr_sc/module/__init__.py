"""The mathematics: one skeleton, one file per objective, and the parts they are composed of."""

from discovr_sc.module.discovr import DISCOVRModule
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.module.weights import Weights

__all__ = ["DISCOVRModule", "DisentangledModule", "Weights"]
