"""Checks of values, in memory or on disk; what is on disk is read in parts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scvi import settings

from discovr_sc.errors import InputError, InputTypeError

#: Numbers of a part that is read from disk at once.
NUMBERS_PER_PART = 20_000_000
#: Sums of counts beyond this, and squares of values beyond this, are lost in single precision.
LARGEST_COUNT, LARGEST_VALUE = 1e9, 1e15


def check_finite(matrix: Any, place: str) -> None:
    """Raise where values are missing, infinite, too large for single precision, or no numbers."""
    n_bad, largest = 0, 0.0
    for _, values in parts(matrix, place):
        n_bad += values.size - int(np.isfinite(values).sum())
        largest = max(largest, float(np.abs(values).max(initial=0)))
    if n_bad:
        raise InputError(f"{place} has {n_bad} values that are not finite (NaN or infinite); remove or fill them.")
    if largest > LARGEST_VALUE:
        raise InputError(
            f"{place} has values up to {largest:.3g}, too large for single precision; give raw counts, or rescale them."
        )


def check_counts(matrix: Any, place: str) -> None:
    """Raise where the values cannot be counts; warn where they are not whole numbers, as scvi-tools does."""
    smallest, largest, n_fractions = 0.0, 0.0, 0
    empty: list[int] = []
    n_empty = n_rows = 0
    for part, values in parts(matrix, place):
        smallest = min(smallest, float(values.min(initial=0)))
        largest = max(largest, float(values.max(initial=0)))
        n_fractions += 0 if np.issubdtype(values.dtype, np.integer) else int((values % 1 != 0).sum())
        without = np.flatnonzero(np.asarray(part.sum(axis=1)).ravel() == 0)
        n_empty += len(without)
        empty += [n_rows + int(row) for row in without[:1]]
        n_rows += part.shape[0]
    if smallest < 0:
        raise InputError(
            f"{place} has negative values (the smallest is {smallest:.4g}), but likelihoods 'zinb' and 'nb' are of "
            "counts; give raw counts (see layer=...), or likelihood='gaussian'."
        )
    if largest > LARGEST_COUNT:
        raise InputError(f"{place} has the value {largest:.3g}, which is no count; give raw counts (see layer=...).")
    if empty:
        raise InputError(
            f"{place} has {n_empty} cells with no counts (the first is row {empty[0]}); remove them, in adata.X with "
            "scanpy.pp.filter_cells(adata, min_counts=1)."
        )
    if n_fractions:
        warnings.warn(
            f"{place} does not contain unnormalized count data: {n_fractions} values are not whole numbers. Are you "
            "sure this is what you want? Give raw counts (see layer=...), or likelihood='gaussian'.",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )


def check_unit_interval(matrix: Any, place: str) -> None:
    """Raise where values lie outside of [0, 1]."""
    found = [values for _, values in parts(matrix, place) if values.dtype != np.uint8]
    low = min((float(values.min(initial=0)) for values in found), default=0.0)
    high = max((float(values.max(initial=0)) for values in found), default=0.0)
    if low < 0 or high > 1:
        raise InputError(
            f"{place} has values from {low:.4g} to {high:.4g}, but likelihoods 'bernoulli' and 'image-gaussian' take "
            "values in [0, 1] (or bytes); rescale them, or use likelihood='gaussian'."
        )


def parts(matrix: Any, place: str) -> Iterator[tuple[Any, np.ndarray]]:
    """Rows of an array, all of them or, from disk, as many as fit into memory; and the values that they store."""
    if isinstance(matrix, np.ndarray) or issparse(matrix):
        blocks: Any = (matrix,)
    elif hasattr(matrix, "shape") and hasattr(matrix, "__getitem__"):
        size = max(1, NUMBERS_PER_PART // max(1, int(np.prod(matrix.shape[1:]))))
        blocks = (matrix[start : start + size] for start in range(0, matrix.shape[0], size))
    else:
        raise InputTypeError(f"{place} is a {type(matrix).__name__}; store a numpy array or a scipy sparse matrix.")
    for block in blocks:
        part = block.compute() if hasattr(block, "compute") else block
        values = part.data if issparse(part) else np.asarray(part)
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool) or np.iscomplexobj(values):
            raise InputTypeError(
                f"{place} holds values of type {values.dtype}; it needs numbers: use astype('float32')."
            )
        yield part, values


def row_numbers(indices: Any, n: int) -> np.ndarray:
    """Numbers of the rows that are asked for: all of ``n``, those listed or sliced, or those where a mask is true."""
    if indices is None:
        rows = np.arange(n)
    elif isinstance(indices, slice):
        rows = np.arange(n)[indices]
    else:
        rows = np.asarray(indices)
        if rows.ndim != 1:
            raise InputTypeError(f"indices={indices!r} is not a list; give numbers of rows, a mask or a slice.")
        if rows.dtype == bool:
            if len(rows) != n:
                raise InputError(
                    f"indices is a mask of {len(rows)} values, but there are {n} cells; give one for each."
                )
            rows = np.flatnonzero(rows)
        elif len(rows) and not np.issubdtype(rows.dtype, np.integer):
            raise InputTypeError(
                f"indices holds {rows.dtype} values such as {rows[0]!r}; give numbers of rows, for names "
                "adata.obs_names.get_indexer(names)."
            )
    if len(rows) == 0:
        raise InputError("indices names no cell; give at least one." if indices is not None else "adata has no cells.")
    rows = rows.astype(np.int64)
    outside = rows[(rows < -n) | (rows >= n)]
    if len(outside):
        raise InputError(f"indices has {outside[0]}, but there are {n} cells, numbered from 0 to {n - 1}.")
    return np.where(rows < 0, rows + n, rows)
