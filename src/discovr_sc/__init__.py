"""Separate what is shared across conditions from what a condition changes."""

from importlib.metadata import version

from discovr_sc import data, metrics, pl
from discovr_sc.model import DISCOVR
from discovr_sc.module.weights import Weights

__all__ = ["DISCOVR", "Weights", "data", "metrics", "pl"]
__version__ = version("discovr_sc")
