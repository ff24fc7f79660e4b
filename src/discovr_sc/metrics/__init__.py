"""Metrics: arrays in, numbers out.

Informations are in nats, embeddings have one row per cell, and everything is deterministic for a seed.
"""

from .clustering import ClusterScore, WithinScore, kmeans_ari, kmeans_nmi, kmeans_nmi_within, silhouette
from .composition import Leak, composition_floor, leak_within_types, type_accuracy, type_recalls, type_transfer
from .images import attribute_gap, color_gap, half_squared_error
from .mutual_information import knn_conditional_mutual_information, knn_mutual_information
from .neural_information import mine
from .populations import MeanScore, delta_correlation, energy_distance, mean_score
from .posterior import (
    delta_bayes,
    marginal_rmse,
    posterior_kl_w,
    posterior_kl_z,
    posterior_wasserstein_w,
    sample_parametric_posterior,
)
from .probes import ProbeResult, best_probe, probe
from .scib import scib_scores
from .summary import InformationTable, information_table, mic, mig, rank_methods

__all__ = [
    "ClusterScore",
    "InformationTable",
    "Leak",
    "MeanScore",
    "ProbeResult",
    "WithinScore",
    "attribute_gap",
    "best_probe",
    "color_gap",
    "composition_floor",
    "delta_bayes",
    "delta_correlation",
    "energy_distance",
    "half_squared_error",
    "information_table",
    "kmeans_ari",
    "kmeans_nmi",
    "kmeans_nmi_within",
    "knn_conditional_mutual_information",
    "knn_mutual_information",
    "leak_within_types",
    "marginal_rmse",
    "mean_score",
    "mic",
    "mig",
    "mine",
    "posterior_kl_w",
    "posterior_kl_z",
    "posterior_wasserstein_w",
    "probe",
    "rank_methods",
    "sample_parametric_posterior",
    "scib_scores",
    "silhouette",
    "type_accuracy",
    "type_recalls",
    "type_transfer",
]
