"""Validation shared by the metrics: every public function turns its arguments into plain arrays here."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray


def as_matrix(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return ``value`` as a finite float array of shape (n, d); a vector becomes (n, 1)."""
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"{name} has shape {np.shape(value)}; pass shape (n,) or (n, d), not empty")
    if not np.isfinite(matrix).all():
        bad = int((~np.isfinite(matrix)).any(axis=1).sum())
        raise ValueError(f"{name} has NaN or infinite values in {bad} rows; remove those rows first")
    return matrix


def as_vector(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return ``value`` as a finite float array of shape (n,); (n, 1) is flattened."""
    matrix = as_matrix(name, value)
    if matrix.shape[1] != 1:
        raise ValueError(f"{name} has shape {matrix.shape}; pass a single column, shape (n,) or (n, 1)")
    return matrix[:, 0]


def as_codes(name: str, value: ArrayLike, *, at_least: int = 1) -> NDArray[np.intp]:
    """Return labels, so many of which must differ, as codes 0..K-1 of shape (n,), numbered by first appearance."""
    labels = value if isinstance(value, pd.Categorical | pd.Series | pd.Index) else np.asarray(value)
    if labels.ndim != 1:
        raise ValueError(f"{name} has shape {labels.shape}; pass one label per row, shape (n,)")
    codes, _ = pd.factorize(labels)
    if (codes < 0).any():
        raise ValueError(f"{name} has {int((codes < 0).sum())} missing labels; remove those rows first")
    if (n_labels := np.unique(codes).size) < at_least:
        raise ValueError(f"{name} has {n_labels} distinct labels; at least {at_least} are needed")
    return codes


def as_labelled(x: ArrayLike, labels: ArrayLike, name: str = "labels") -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return an embedding (n, d) and codes of its at least two labels (n,), which messages call ``name``."""
    points, codes = as_matrix("x", x), as_codes(name, labels, at_least=2)
    check_same_length(**{"x": points, name: codes})
    return points, codes


def is_discrete(value: ArrayLike) -> bool:
    """Whether ``value`` looks like labels: integers, booleans, strings and categoricals do, floats do not."""
    categorical = isinstance(getattr(value, "dtype", None), pd.CategoricalDtype)
    return categorical or np.asarray(value).dtype.kind != "f"


def check_same_length(**arrays: NDArray) -> None:
    """Refuse arrays whose first axes differ; the keywords are the names shown to the caller."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"lengths differ: {lengths}; pass one row per cell in each, in the same order")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value outside ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}")


def as_mask(name: str, value: ArrayLike, n: int) -> NDArray[np.bool_]:
    """A mask of n rows from one, or from row numbers."""
    rows = np.asarray(value)
    if rows.dtype == bool:
        check_same_length(**{"labels": np.arange(n), name: rows})
        return rows
    if rows.dtype.kind not in "iu" or not np.isin(rows, np.arange(n)).all():
        raise ValueError(f"{name} is neither a mask of length {n} nor indices below {n}")
    return np.isin(np.arange(n), rows)
