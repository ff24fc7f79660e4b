"""A condition that is added from 200 cells, beside a model that has it from the start."""

from __future__ import annotations

import numpy as np
import pytest
import scvi

from discovr_sc import DISCOVR, data, metrics

QUIET = {"enable_progress_bar": False}
SETTINGS = {"n_hidden": 64, "n_hidden_adversary": 64}


def measure(model, cells):
    """Probes of the new condition in z and w, the reconstruction error of its cells, on held-out cells."""
    is_new = (cells.obs["condition"] == "treated_2").to_numpy()
    z, w = (model.get_latent_representation(cells.copy(), kind=kind) for kind in "zw")
    labels = is_new.astype(str)
    return {
        "z_linear": metrics.probe(z, labels, kind="linear").accuracy,
        "z_knn": metrics.probe(z, labels, kind="knn").accuracy,
        "w_knn": metrics.probe(w, labels, kind="knn").accuracy,
        "error": model.get_reconstruction_error(cells[is_new].copy()),
        "error_of_old": model.get_reconstruction_error(cells[~is_new].copy()),
    }


@pytest.mark.long
def test_a_condition_added_from_200_cells_is_as_good_as_one_from_the_start():
    adata = data.simulate_counts(7200, 200, n_types=3, n_conditions=3, n_effect_genes=30, seed=0)
    rng = np.random.default_rng(0)
    is_new = (adata.obs["condition"] == "treated_2").to_numpy()
    new, old = (rng.permutation(np.flatnonzero(mask)) for mask in (is_new, ~is_new))
    test = adata[np.concatenate([new[200:1800], old[1200:2800]])].copy()

    def train(rows):
        scvi.settings.seed = 0
        cells = adata[rows].copy()
        DISCOVR.setup_anndata(cells, "condition")
        model = DISCOVR(cells, **SETTINGS)
        model.train(100, **QUIET)
        return model

    reference = train(old[:1200])
    scvi.settings.seed = 0
    added = measure(reference.add_condition(adata[new[:200]].copy(), **QUIET), test)
    whole = measure(train(np.concatenate([old[:1200], new[:200]])), test)
    before = reference.get_reconstruction_error(test[(test.obs["condition"] != "treated_2").to_numpy()].copy())
    print({name: (round(added[name], 3), round(value, 3)) for name, value in whole.items()}, round(before, 3))
    assert added["z_linear"] < 1.1 * whole["z_linear"]
    assert added["z_knn"] < 1.1 * whole["z_knn"]
    assert added["w_knn"] > 0.9 * whole["w_knn"]
    assert added["error"] < 1.1 * whole["error"]
    assert added["error_of_old"] < 1.1 * before
