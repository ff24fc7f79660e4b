"""Plots over scanpy and matplotlib; each returns Axes."""

from discovr_sc.pl.effects import condition_effect, condition_tree, gene_variance
from discovr_sc.pl.embeddings import latents, to_plane
from discovr_sc.pl.predictions import counterfactual
from discovr_sc.pl.shares import composition
from discovr_sc.pl.training import disentanglement, history

__all__ = [
    "composition",
    "condition_effect",
    "condition_tree",
    "counterfactual",
    "disentanglement",
    "gene_variance",
    "history",
    "latents",
    "to_plane",
]
