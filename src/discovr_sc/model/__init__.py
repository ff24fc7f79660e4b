"""What a user touches: one thin class per method over one base."""

from discovr_sc.model.baselines import CCVAE, CSVAE, CVAE, DIVA, HCSVAE
from discovr_sc.model.discovr import DISCOVR

__all__ = ["CCVAE", "CSVAE", "CVAE", "DISCOVR", "DIVA", "HCSVAE"]
