"""Plots over scanpy and matplotlib; each returns Axes."""

from discovr_sc.pl.effects import condition_effect, counterfactual, gene_variance
from discovr_sc.pl.embeddings import latents, to_plane
from discovr_sc.pl.training import disentanglement, history

__all__ = ["condition_effect", "counterfactual", "disentanglement", "gene_variance", "history", "latents", "to_plane"]
