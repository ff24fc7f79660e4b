"""The mathematics: one skeleton, one file per objective, and the parts they are composed of."""

from discovr_sc.module.ccvae import CCVAEModule
from discovr_sc.module.csvae import CSVAEModule
from discovr_sc.module.cvae import CVAEModule
from discovr_sc.module.discovr import DISCOVRModule
from discovr_sc.module.diva import DIVAModule
from discovr_sc.module.hcsvae import HCSVAEModule
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import Weights

__all__ = [
    "CCVAEModule",
    "CSVAEModule",
    "CVAEModule",
    "DISCOVRModule",
    "DIVAModule",
    "DisentangledModule",
    "HCSVAEModule",
    "Weights",
]
