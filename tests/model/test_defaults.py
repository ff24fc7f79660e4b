"""The defaults on cells that they were not tuned on: several conditions of unequal sizes and type proportions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scvi

from discovr_sc import DISCOVR, data, metrics


def unequal_cells(n_conditions: int, seed: int):
    """Conditions of sizes from 1 to 2, and types of other shares in each."""
    rng = np.random.default_rng(seed)
    n_types, sizes = 5, np.linspace(1, 2, n_conditions)
    return data.simulate_counts(
        6000,
        1000,
        n_types=n_types,
        n_conditions=n_conditions,
        condition_sizes=(sizes / sizes.sum()).tolist(),
        type_proportions=rng.dirichlet(np.full(n_types, 10.0), size=n_conditions),
        seed=seed,
    )


@pytest.mark.long
@pytest.mark.parametrize("n_conditions", [2, 3, 6])
def test_z_tells_no_more_of_the_condition_than_the_types_do(n_conditions):
    adata = unequal_cells(n_conditions, seed=n_conditions)
    scvi.settings.seed = 0
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata)
    model.train(train_size=0.7, validation_size=0.1, enable_progress_bar=False)
    z = model.get_latent_representation()
    condition, types = (adata.obs[column].astype(str).to_numpy() for column in ("condition", "cell_type"))
    fit_on = {"train": model.train_indices, "seed": 0}
    leaked = metrics.best_probe(z, condition, **fit_on).accuracy
    from_types = metrics.best_probe(pd.get_dummies(types).to_numpy(float), condition, **fit_on).accuracy
    assert leaked <= from_types + 0.08
    assert metrics.probe(z, types, kind="knn", **fit_on).accuracy >= 0.9
