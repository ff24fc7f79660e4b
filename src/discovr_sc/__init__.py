"""Separate what is shared across conditions from what a condition changes."""

from importlib.metadata import version

from discovr_sc import data, metrics, pl
from discovr_sc.model import CCVAE, CSVAE, CVAE, DISCOVR, DIVA, HCSVAE
from discovr_sc.settings import Weights

__all__ = ["CCVAE", "CSVAE", "CVAE", "DISCOVR", "DIVA", "HCSVAE", "Weights", "data", "metrics", "pl"]
__version__ = version("discovr_sc")
