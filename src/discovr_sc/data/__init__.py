"""Data: tensors to and from AnnData, simulators that keep their truth, and the real sets."""

from .adapters import anndata_to_tensors, tensors_to_anndata
from .counts import log_counts, prepare_counts
from .load_celeba import celeba
from .load_kang import DataUnavailableError, kang
from .load_mnist import colored_mnist
from .load_sets import glioblastoma, pancreas, papalexi
from .simulate import CountSettings, noisy_swiss_roll, parametric_model, simulate_counts

__all__ = [
    "CountSettings",
    "DataUnavailableError",
    "anndata_to_tensors",
    "celeba",
    "colored_mnist",
    "glioblastoma",
    "kang",
    "log_counts",
    "noisy_swiss_roll",
    "pancreas",
    "papalexi",
    "parametric_model",
    "prepare_counts",
    "simulate_counts",
    "tensors_to_anndata",
]
