"""Plots over scanpy and matplotlib; each returns Axes."""

from discovr_sc.pl.effects import condition_effect, condition_tree, counterfactual, gene_variance
from discovr_sc.pl.embeddings import latents
from discovr_sc.pl.training import disentanglement, history

__all__ = [
    "condition_effect",
    "condition_tree",
    "counterfactual",
    "disentanglement",
    "gene_variance",
    "history",
    "latents",
]
