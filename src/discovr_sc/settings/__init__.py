"""The one home of settings: what modules and the training plan take, their defaults, and the paper's experiments."""

from discovr_sc.settings.defaults import (
    BANDWIDTHS,
    COUNT_PLAN,
    COUNTS,
    IMAGES,
    VECTOR_PLAN,
    VECTORS,
    ByData,
    CCVAESettings,
    CSVAESettings,
    CVAESettings,
    DISCOVRSettings,
    DIVASettings,
    HCSVAESettings,
    PlanSettings,
    Settings,
    default_epochs,
)
from discovr_sc.settings.paper import PAPER, paper_plan, paper_settings, paper_weights
from discovr_sc.settings.weights import Weights

__all__ = [
    "BANDWIDTHS",
    "COUNTS",
    "COUNT_PLAN",
    "IMAGES",
    "PAPER",
    "VECTORS",
    "VECTOR_PLAN",
    "ByData",
    "CCVAESettings",
    "CSVAESettings",
    "CVAESettings",
    "DISCOVRSettings",
    "DIVASettings",
    "HCSVAESettings",
    "PlanSettings",
    "Settings",
    "Weights",
    "default_epochs",
    "paper_plan",
    "paper_settings",
    "paper_weights",
]
