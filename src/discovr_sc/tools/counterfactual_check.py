"""Whether predicted cells change as much as real ones do, or are the cells as they were."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData
from scvi import REGISTRY_KEYS

from discovr_sc.data import log_counts

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Genes that differ most between the measured cells, over which effects are compared.
N_GENES = 100
#: Cells of each side that are compared at most.
MOST_CELLS = 2000
#: A predicted effect of less than this part of the measured one is warned of.
SMALLEST_PART = 0.5
COLUMNS = ("measured", "predicted", "slope", "correlation")


def compare_effects(model: ModelInterface, adata: AnnData | None = None, *, seed: int = 0) -> pd.DataFrame:
    """Compare predicted with measured effects of every condition.

    The cells of all other conditions are predicted in the condition. Their mean change should be the difference
    between the cells that were measured in the condition and those others. Where it is much smaller, the predictions
    are the cells as they were, and a warning says so. Cell types that differ in their shares add to the measured
    difference, but not to a prediction: compare within a type, where shares differ.

    Parameters
    ----------
    adata
        Cells with known conditions; by default the cells that training held out for validation, or all where it held
        out none.
    seed
        Of the choice of cells and of the predictions.

    Returns
    -------
    A row for each condition: ``n_cells`` measured in it, ``measured`` and ``predicted`` effect (root mean square over
    the 100 genes that differ most, in log(1 + counts per 10,000)), ``slope`` of the predicted on the measured change
    of these genes (1 at best, 0 where nothing changes) and their ``correlation``.

    Examples
    --------
    >>> list(model.compare_effects().columns)
    ['n_cells', 'measured', 'predicted', 'slope', 'correlation']
    """
    if not model.module.likelihood.counts:
        raise ValueError("compare_effects is for counts (likelihood 'zinb' or 'nb'); this model has other data.")
    given = adata is not None
    cells = model.validate(adata)
    rows = np.arange(cells.n_obs) if given or model.validation_indices is None else np.sort(model.validation_indices)
    rows = rows if len(rows) else np.arange(cells.n_obs)
    rows = rows[model.is_known(cells)[rows]]
    of_rows = model.condition_indices(cells)[rows]
    rng = np.random.default_rng(seed)
    found = {}
    for code, name in enumerate(model.conditions):
        inside, outside = (
            np.sort(rng.permutation(rows[chosen])[:MOST_CELLS]) for chosen in (of_rows == code, of_rows != code)
        )
        if min(len(inside), len(outside)) >= 2:
            found[name] = {"n_cells": len(inside)} | _effects(model, cells, name, inside, outside, seed)
    table = pd.DataFrame.from_dict(found, orient="index", columns=["n_cells", *COLUMNS])
    weak = table.index[table["slope"] < SMALLEST_PART]
    if len(weak):
        warnings.warn(
            f"Cells predicted in {list(weak)} change by less than {SMALLEST_PART:.0%} of what was measured (slope "
            f"{table.loc[weak[0], 'slope']:.2f} in {weak[0]!r}): they are nearly the cells as they were. Train for "
            "longer, or give n_latent_w more dimensions; if cell types differ in their shares, compare within a type.",
            UserWarning,
            stacklevel=2,
        )
    return table


def _effects(
    model: ModelInterface, cells: AnnData, target: str, inside: np.ndarray, outside: np.ndarray, seed: int
) -> dict[str, float]:
    """Measured and predicted change of the genes that differ most."""
    predicted = model.predict_counterfactual(cells, target=target, indices=outside, kind="counts", seed=seed)
    counts = model.get_anndata_manager(cells, required=True).get_from_registry(REGISTRY_KEYS.X_KEY)
    there, here, moved = (log_counts(x).mean(0) for x in (counts[inside], counts[outside], predicted.X))
    genes = np.argsort(-np.abs(there - here), kind="stable")[:N_GENES]
    measured, change = (there - here)[genes], (moved - here)[genes]
    sizes = [float(np.sqrt(np.mean(effect**2))) for effect in (measured, change)]
    slope = float(measured @ change / max(measured @ measured, np.finfo(float).tiny))
    correlation = 0.0 if min(np.ptp(measured), np.ptp(change)) == 0 else float(np.corrcoef(measured, change)[0, 1])
    return dict(zip(COLUMNS, (*sizes, slope, correlation), strict=True))
