"""Fingerprints of data: whether a model's AnnData is as it was, cheaply enough to ask at every query."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse import issparse

from discovr_sc.errors import InputError
from discovr_sc.model.checks import find_data
from discovr_sc.model.conditions import condition_keys

#: Rows of the data, and of columns of ``obs``, that are looked at; they are spread over all of them.
N_ROWS, N_LABELS = 16, 4096
CELLS, GENES = "names of cells", "names of genes"

#: Names whose hashes are known, the latest last: an Index never changes, and a million names take a tenth of a second.
_KNOWN: list[tuple[pd.Index, str]] = []


def fingerprint(adata: AnnData, setup: dict[str, Any] | None) -> dict[str, str]:
    """Hashes of the names of cells and genes, of a sample of values, and of the columns that the model uses.

    Parameters
    ----------
    adata
        Cells.
    setup
        Arguments of ``setup_anndata``; None for names alone.
    """
    found = {CELLS: _of_names(adata.obs_names), GENES: _of_names(adata.var_names)}
    if setup is None:
        return found
    matrix, place = find_data(adata, setup["layer"], setup["tensor_key"])
    found[place] = _digest(_sample(matrix).tobytes())
    keys = condition_keys(setup["condition_key"])
    keys += [setup[name] for name in ("batch_key", "size_factor_key", "cell_type_key") if setup.get(name)]
    for name in ("categorical_covariate_keys", "continuous_covariate_keys"):
        keys += setup.get(name) or []
    rows = _spread(adata.n_obs, N_LABELS)
    for key in keys:
        if key in adata.obs:  # a query may lack the condition
            found[f"adata.obs[{key!r}]"] = _digest("\n".join(map(str, adata.obs[key].iloc[rows])).encode())
    return found


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What differs between two fingerprints, of what both have."""
    return [part for part in expected if part in found and found[part] != expected[part]]


def check_unchanged(found: dict[str, str], expected: dict[str, str]) -> None:
    """Raise where data differ from what they were."""
    changed = differences(found, expected) + [part for part in expected if part not in found]
    if changed:
        raise InputError(
            f"The model's AnnData is not what it was when the model was given it: {', '.join(changed)} changed. Its "
            "answers would be about other data. Work on a copy (adata.copy()), undo the change, or pass cells as "
            "adata=..., set up as before."
        )


def _of_names(names: pd.Index) -> str:
    for index, digest in _KNOWN:
        if index is names:
            return digest
    digest = _digest("\n".join(map(str, names)).encode())
    _KNOWN[:] = [*_KNOWN[-3:], (names, digest)]
    return digest


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _spread(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int)) if n else np.arange(0)


def _sample(matrix: Any) -> np.ndarray:
    """Some rows, as single precision whatever they are stored as."""
    rows = _spread(matrix.shape[0], N_ROWS)
    values = matrix[rows]
    values = values.toarray() if issparse(values) else np.asarray(values)
    return np.ascontiguousarray(values, dtype=np.float32)
