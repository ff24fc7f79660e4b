"""Checks of the data, with errors that name the place, the value and the fix."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.sparse import issparse
from scvi import settings

from discovr_sc._scvi import is_count_matrix


def stored_values(matrix) -> np.ndarray:
    """The values of an array, for a sparse one those that it stores."""
    return matrix.data if issparse(matrix) else np.asarray(matrix)


def check_finite(matrix, place: str) -> None:
    """Raise where values are missing or infinite."""
    values = stored_values(matrix)
    n_bad = values.size - int(np.isfinite(values).sum())
    if n_bad:
        raise ValueError(f"{place} has {n_bad} values that are not finite (NaN or infinite); remove or fill them.")


def check_counts(matrix, place: str) -> None:
    """Raise where the values cannot be counts; warn where they are not whole numbers, as scvi-tools does."""
    values = stored_values(matrix)
    if values.size and values.min() < 0:
        raise ValueError(
            f"{place} has negative values (the smallest is {values.min():.4g}), but likelihoods 'zinb' and 'nb' are of "
            "counts; give raw counts (see layer=...), or likelihood='gaussian'."
        )
    empty = np.flatnonzero(np.asarray(matrix.sum(axis=1)).ravel() == 0)
    if len(empty):
        raise ValueError(
            f"{place} has {len(empty)} cells with no counts (the first is row {empty[0]}); remove them with "
            "scanpy.pp.filter_cells(adata, min_counts=1)."
        )
    if not is_count_matrix(matrix):
        warnings.warn(
            f"{place} does not contain unnormalized count data. Are you sure this is what you want?",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )


def check_unit_interval(matrix, place: str) -> None:
    """Raise where values lie outside of [0, 1]."""
    values = stored_values(matrix)
    if values.dtype != np.uint8 and (values.min() < 0 or values.max() > 1):
        raise ValueError(
            f"{place} has values from {values.min():.4g} to {values.max():.4g}, but likelihood='bernoulli' takes "
            "values in [0, 1] (or bytes); rescale them, or use likelihood='gaussian'."
        )
