"""What a user touches: one thin class per method over one base."""

from discovr_sc.model.discovr import DISCOVR

__all__ = ["DISCOVR"]
