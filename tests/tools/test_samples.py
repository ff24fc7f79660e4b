"""Differences of conditions in w, and where their cells lie in z, against closed forms and a simulated truth."""

from __future__ import annotations

import numpy as np
import pytest
import scvi
from scipy.stats import norm

from discovr_sc import CVAE, DISCOVR, data
from discovr_sc.tools import samples


@pytest.fixture(scope="module")
def model():
    # the two conditions have the types in unequal shares
    adata = data.simulate_counts(
        n_cells=600, n_genes=60, n_types=2, type_proportions=[[0.8, 0.2], [0.2, 0.8]], n_donors=3, seed=1
    )
    DISCOVR.setup_anndata(adata, condition_key="condition", cell_type_key="cell_type")
    scvi.settings.seed = 0
    model = DISCOVR(adata, n_hidden=16)
    model.train(max_epochs=40, batch_size=128, enable_progress_bar=False)
    return model


def test_differences_are_of_the_means_within_groups(model):
    table = model.get_w_differences(groupby="cell_type")
    assert list(table["group"]) == ["type_0", "type_1"]
    w, obs = model.get_latent_representation(kind="w"), model.adata.obs
    for row in table.itertuples():
        parts = [w[(obs["cell_type"] == row.group) & (obs["condition"] == name)] for name in (row.first, row.second)]
        assert [len(part) for part in parts] == [row.n_first, row.n_second]
        np.testing.assert_allclose([row.w_0, row.w_1], parts[1].mean(0) - parts[0].mean(0), atol=1e-5)
        noise = sum(part.var(0, ddof=1).sum() / len(part) for part in parts)
        assert row.distance == pytest.approx(
            np.sqrt(((parts[1].mean(0) - parts[0].mean(0)) ** 2).sum() - noise), rel=1e-4
        )


def test_conditions_are_further_apart_than_random_parts(model):
    adata = model.adata.copy()
    adata.obs["part"] = np.random.default_rng(0).choice(["a", "b", "c"], adata.n_obs)
    adata.obs.iloc[:3, adata.obs.columns.get_loc("part")] = np.nan
    parts = model.get_w_differences(adata[adata.obs["condition"] == "control"].copy(), sample_key="part")
    assert len(parts) == 3
    assert parts["distance"].max() < 0.2 * model.get_w_differences()["distance"].min()


def test_samples_that_cannot_be_compared(model):
    with pytest.raises(KeyError, match="sample_key 'mood' is not a column"):
        model.get_w_differences(sample_key="mood")
    with pytest.raises(ValueError, match="no group of groupby=None has two cells each"):
        model.get_w_differences(model.adata[[0]].copy())
    with pytest.raises(ValueError, match="has one cell; drop it"):
        model.differential_abundance(model.adata[[0]].copy())
    adata = model.adata.copy()
    CVAE.setup_anndata(adata, condition_key="condition")
    plain = CVAE(adata, n_hidden=8)
    plain.train(max_epochs=1, enable_progress_bar=False)
    with pytest.raises(ValueError, match="CVAE has no w"):
        plain.get_w_differences()


def test_cells_are_frequent_where_their_type_is(model):
    density = model.differential_abundance()
    assert list(density.columns) == list(model.adata.obs["condition"].unique())
    more = (density["treated_1"] - density["control"]).groupby(model.adata.obs["cell_type"], observed=True).median()
    assert more["type_0"] < 0 < more["type_1"]
    assert model.adata.obsm["da_log_probs"].equals(density)
    by_donor = model.differential_abundance(sample_key="donor", num_cells_posterior=50)
    assert by_donor.shape == (600, 3)


def test_density_is_that_of_the_other_cells(monkeypatch):
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(6, 2)), rng.uniform(0.5, 2, (6, 2))
    found = samples._log_density(mean, variance, np.arange(6), np.array([0, 1, 4]))
    for i in range(6):
        others = [j for j in (0, 1, 4) if j != i]
        expected = np.mean([norm.pdf(mean[i], mean[j], np.sqrt(variance[j])).prod() for j in others])
        assert found[i] == pytest.approx(np.log(expected))
