"""Plots over scanpy and matplotlib; each returns Axes."""

from discovr_sc.pl.latents import latents

__all__ = ["latents"]
