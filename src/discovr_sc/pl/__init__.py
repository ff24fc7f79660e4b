"""Plots over scanpy and matplotlib; each returns Axes."""

from discovr_sc.pl.effects import condition_effect, condition_tree, gene_variance, ma, volcanoes
from discovr_sc.pl.embeddings import latents, response, to_plane
from discovr_sc.pl.predictions import counterfactual
from discovr_sc.pl.responses import response_dotplot, response_heatmap, upset
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
    "ma",
    "response",
    "response_dotplot",
    "response_heatmap",
    "to_plane",
    "upset",
    "volcanoes",
]
