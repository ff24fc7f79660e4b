from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from discovr_sc.data import prepare_counts


@pytest.fixture
def poisson() -> AnnData:
    """400 Poisson cells x 200 genes, of which 0-9 are overdispersed and 10 differs between batches only."""
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(1, 1, 200))
    mean[:11] = 4
    rate = np.tile(mean, (400, 1))
    rate[:, :10] *= rng.gamma(0.3, 1 / 0.3, (400, 10))
    batch = np.repeat(["a", "b"], 200)
    rate[batch == "b", 10] = 40
    names = [f"gene_{g}" for g in range(200)]
    return AnnData(
        rng.poisson(rate).astype(np.float64),
        obs=pd.DataFrame({"batch": batch}, index=[f"cell_{i}" for i in range(400)]),
        var=pd.DataFrame({"mean": mean}, index=names),
    )


def test_variable_genes_are_kept_in_order_as_raw_counts(poisson):
    kept = prepare_counts(poisson, 11)
    assert list(kept.var_names) == [f"gene_{g}" for g in range(11)]
    assert sparse.isspmatrix_csr(kept.X) and kept.X.dtype == np.float32
    np.testing.assert_array_equal(kept.X.toarray(), poisson.X[:, :11])
    assert list(kept.var) == ["mean"]


def test_batch_key_leaves_out_genes_that_only_differ_between_batches(poisson):
    assert "gene_10" not in prepare_counts(poisson, 11, batch_key="batch").var_names


def test_none_keeps_all_genes_and_the_input_is_not_changed(poisson):
    before = poisson.X.copy()
    kept = prepare_counts(poisson, None)
    assert kept.shape == poisson.shape
    kept.X.data[:] = 7
    np.testing.assert_array_equal(poisson.X, before)


@pytest.mark.parametrize("n_top_genes", [0, 201])
def test_number_of_genes_out_of_range_is_named(poisson, n_top_genes):
    with pytest.raises(ValueError, match=f"n_top_genes is {n_top_genes} but adata has 200 genes"):
        prepare_counts(poisson, n_top_genes)


def test_unknown_batch_key_is_named(poisson):
    with pytest.raises(KeyError, match="batch_key 'donor'"):
        prepare_counts(poisson, 10, batch_key="donor")


@pytest.mark.parametrize("value", [0.5, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_values_that_are_no_counts_are_named(poisson, value, form):
    poisson.X[3, 4] = value
    poisson.X = form(poisson.X)
    with pytest.raises(ValueError, match=f"raw counts, but has values such as {value}"):
        prepare_counts(poisson, 10)


def test_missing_matrix_is_named():
    with pytest.raises(ValueError, match="no X"):
        prepare_counts(AnnData(obs=pd.DataFrame(index=["a"])), None)


def test_cells_left_empty_are_named(poisson):
    poisson.X[5] = 0
    with pytest.raises(ValueError, match=r"1 cells have no count.*'cell_5'"):
        prepare_counts(poisson, None)
