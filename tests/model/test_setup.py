"""Bad input gets an error that names the key, the value and the fix, and leaves the AnnData as it was."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from discovr_sc import DISCOVR
from discovr_sc.data import simulate_counts


def untouched(adata):
    return not any(column.startswith("_scvi") for column in adata.obs) and "_scvi_uuid" not in adata.uns


def spoil(adata, value):
    x = adata.X.toarray()
    x[3, 2] = value
    adata.X = csr_matrix(x)


@pytest.mark.parametrize(
    "argument",
    ["condition_key", "batch_key", "size_factor_key", "categorical_covariate_keys", "continuous_covariate_keys"],
)
def test_missing_columns(counts, argument):
    keys = {"condition_key": "condition", argument: ["nope"] if argument.endswith("keys") else "nope"}
    with pytest.raises(KeyError, match=rf"{argument} 'nope' is not a column of adata.obs; it has .*cell_type"):
        DISCOVR.setup_anndata(counts, **keys)
    assert untouched(counts)


@pytest.mark.parametrize(
    ("argument", "values", "message"),
    [
        ("batch_key", ["a"] * 119 + [None], "batch_key 'bad' has missing values"),
        ("categorical_covariate_keys", ["a"] * 119 + [None], "categorical_covariate_keys 'bad' has missing values"),
        (
            "continuous_covariate_keys",
            [1.0] * 119 + [np.nan],
            "continuous_covariate_keys 'bad' has values that are not",
        ),
        ("continuous_covariate_keys", ["x"] * 120, "continuous_covariate_keys 'bad' holds .* it needs numbers"),
        ("size_factor_key", [1.0] * 119 + [0.0], "size_factor_key 'bad' has the value 0; .* above 0"),
        ("size_factor_key", [1.0] * 119 + [np.inf], "size_factor_key 'bad' has values that are not finite"),
    ],
)
def test_bad_columns(counts, argument, values, message):
    counts.obs["bad"] = values
    keys = {argument: ["bad"] if argument.endswith("keys") else "bad"}
    with pytest.raises((ValueError, TypeError), match=message):
        DISCOVR.setup_anndata(counts, "condition", **keys)
    assert untouched(counts)


def test_lists_and_arrays_are_asked_for(counts):
    with pytest.raises(TypeError, match=r"categorical_covariate_keys='sex' is one string; give a list, \['sex'\]"):
        DISCOVR.setup_anndata(counts, "condition", categorical_covariate_keys="sex")
    counts.obsm["frame"] = counts.obs[["age"]]
    with pytest.raises(TypeError, match=r"adata.obsm\['frame'\] is a DataFrame; store a numpy array"):
        DISCOVR.setup_anndata(counts, "condition", tensor_key="frame")
    assert untouched(counts)


@pytest.mark.parametrize("column", ["lane", "sex"])
@pytest.mark.parametrize("value", ["c", None])
def test_a_refused_query_is_left_as_it_was(counts, column, value):
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane", categorical_covariate_keys=["sex"])
    model = DISCOVR(counts, n_hidden=4)
    model.train(max_epochs=1, enable_progress_bar=False)
    query = simulate_counts(n_cells=120, n_genes=20, n_types=2, n_conditions=3, n_effect_genes=5, seed=1)
    query.obs["lane"], query.obs["sex"] = "a", "f"
    query.obs[column] = [value] + ["a" if column == "lane" else "f"] * 119
    with pytest.raises(ValueError, match=rf"'{column}'.*(category 'c'|missing values)"):
        model.get_latent_representation(query)
    assert untouched(query)
    query.obs[column] = "a" if column == "lane" else "f"
    spoil(query, -1.0)
    with pytest.raises(ValueError, match="negative values"):
        model.get_latent_representation(query)
    assert untouched(query)


def test_missing_layer_and_tensor(counts):
    with pytest.raises(KeyError, match="layer 'raw' is not in adata.layers"):
        DISCOVR.setup_anndata(counts, "condition", layer="raw")
    with pytest.raises(KeyError, match="tensor_key 'image' is not in adata.obsm"):
        DISCOVR.setup_anndata(counts, "condition", tensor_key="image")
    counts.layers["raw"] = counts.X
    counts.obsm["image"] = np.zeros((120, 3))
    with pytest.raises(ValueError, match=r"layer='raw' and tensor_key='image' both"):
        DISCOVR.setup_anndata(counts, "condition", layer="raw", tensor_key="image")
    assert untouched(counts)


def test_no_data_at_all(vectors):
    with pytest.raises(ValueError, match=r"adata.X is empty.*tensor_key"):
        DISCOVR.setup_anndata(vectors, "condition")


def test_one_condition_only(counts):
    counts.obs["stim"] = "ctrl"
    with pytest.raises(ValueError, match="'stim' has one category, 'ctrl'.*at least two"):
        DISCOVR.setup_anndata(counts, "stim")
    assert untouched(counts)


def test_a_condition_with_one_cell(counts):
    counts.obs["stim"] = ["odd"] + ["ctrl"] * 60 + ["stim"] * 59
    with pytest.raises(ValueError, match="'stim' has one cell only of 'odd'"):
        DISCOVR.setup_anndata(counts, "stim")
    assert untouched(counts)


def test_missing_condition_labels(counts):
    counts.obs["stim"] = [None, None] + ["ctrl"] * 60 + ["stim"] * 58
    with pytest.raises(ValueError, match="'stim' has no label for 2 of 120 cells; drop them"):
        DISCOVR.setup_anndata(counts, "stim")
    assert untouched(counts)


def test_unused_categories_do_not_count(counts):
    counts.obs["condition"] = counts.obs["condition"].cat.add_categories(["unused"])
    DISCOVR.setup_anndata(counts, "condition")
    assert list(DISCOVR(counts, n_hidden=4).conditions) == ["control", "treated_1", "treated_2"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(counts, value):
    spoil(counts, value)
    with pytest.raises(ValueError, match=r"adata.X has 1 values that are not finite"):
        DISCOVR.setup_anndata(counts, "condition")
    assert untouched(counts)


def test_tensor_values_that_are_not_finite(vectors):
    vectors.obsm["x"][4, 0] = np.nan
    with pytest.raises(ValueError, match=r"adata.obsm\['x'\] has 1 values that are not finite"):
        DISCOVR.setup_anndata(vectors, "condition", tensor_key="x")


def test_negative_counts(counts):
    spoil(counts, -2.0)
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.raises(ValueError, match=r"adata.X has negative values \(the smallest is -2\).*'gaussian'"):
        DISCOVR(counts)


def test_cells_with_no_counts(counts):
    x = counts.X.toarray()
    x[[7, 9]] = 0
    counts.X = csr_matrix(x)
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.raises(ValueError, match=r"2 cells with no counts \(the first is row 7\).*filter_cells"):
        DISCOVR(counts)
    DISCOVR(counts, likelihood="gaussian")


def test_counts_that_are_not_whole_warn(counts):
    counts.X = counts.X * 1.5
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.warns(UserWarning, match="does not contain unnormalized count data"):
        DISCOVR(counts)


def test_a_model_needs_setup_first(counts):
    with pytest.raises(ValueError, match="setup_anndata first"):
        DISCOVR(counts)


def test_layers_are_modelled_in_place_of_x(counts):
    counts.layers["raw"] = counts.X.copy()
    counts.X = csr_matrix(counts.X.shape, dtype=np.float32)
    DISCOVR.setup_anndata(counts, "condition", layer="raw")
    model = DISCOVR(counts, n_hidden=4)
    batch = next(iter(model._make_data_loader(counts, batch_size=5)))
    np.testing.assert_array_equal(batch["X"].numpy(), counts.layers["raw"][:5].toarray())


@pytest.mark.parametrize("argument", ["batch_key", "categorical_covariate_keys"])
def test_the_condition_cannot_be_a_covariate_as_well(counts, argument):
    keys = {argument: ["condition"] if argument.endswith("keys") else "condition"}
    with pytest.raises(ValueError, match=rf"{argument} and condition_key both name 'condition'.*Leave it out"):
        DISCOVR.setup_anndata(counts, "condition", **keys)
    assert untouched(counts)


def test_a_key_may_have_the_name_of_the_condition_in_its_own(counts):
    counts.obs["condition_batch"] = counts.obs["lane"]
    DISCOVR.setup_anndata(counts, "condition", batch_key="condition_batch")
    assert DISCOVR(counts).summary_stats.n_batch == 2


def test_a_measurement_is_no_condition(counts):
    with pytest.raises(ValueError, match="condition_key 'age' holds 120 different numbers"):
        DISCOVR.setup_anndata(counts, "age")
    counts.obs["dose"] = np.repeat([0.0, 0.5, 1.0], 40)
    DISCOVR.setup_anndata(counts, "dose")


def test_unknown_setup_arguments_raise(counts):
    with pytest.raises(
        TypeError, match="does not take labels_key. The condition is named by condition_key, cell types"
    ):
        DISCOVR.setup_anndata(counts, "condition", labels_key="cell_type")
    assert untouched(counts)
