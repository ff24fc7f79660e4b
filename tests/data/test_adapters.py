from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc.data import anndata_to_tensors, tensors_to_anndata


def test_round_trip_keeps_values_and_codes():
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    tensor, codes = anndata_to_tensors(tensors_to_anndata(torch.tensor(x), torch.tensor([2, 0, 2, 1, 0])))
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor.numpy(), x)
    assert codes.dtype == torch.int64
    assert codes.tolist() == [2, 0, 2, 1, 0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("uint8", "uint8"),
        ("int64", "int64"),
        ("bool", "bool"),
        ("float32", "float32"),
        ("float64", "float32"),
    ],
)
def test_type_is_kept_except_for_wide_floats(given, kept):
    adata = tensors_to_anndata(np.ones((2, 3), dtype=given), ["a", "b"])
    assert adata.obsm["x"].dtype == kept


def test_bfloat16_and_gradients_are_accepted():
    x = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    assert tensors_to_anndata(x, [0, 1]).obsm["x"].dtype == np.float32


def test_vector_becomes_a_column_and_there_are_no_genes():
    adata = tensors_to_anndata(np.arange(4.0), [0, 1, 0, 1])
    assert adata.obsm["x"].shape == (4, 1)
    assert adata.X is None
    assert adata.n_vars == 0


@pytest.mark.parametrize(
    ("labels", "categories"),
    [
        ([10, 2, 2], ["2", "10"]),
        (["b", "a", "b"], ["a", "b"]),
        ([True, False, True], ["False", "True"]),
        (pd.Categorical(["b", "a", "b"], categories=["b", "unused", "a"]), ["b", "a"]),
        (pd.Series(["b", "a", "b"], index=[7, 8, 9]), ["a", "b"]),
    ],
)
def test_conditions_become_string_categories_in_order(labels, categories):
    condition = tensors_to_anndata(np.zeros(3), labels).obs["condition"]
    assert list(condition.cat.categories) == categories
    assert condition.tolist() == [str(label) for label in labels]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_survive_an_h5ad_file(tmp_path, dtype):
    images = np.random.default_rng(0).integers(0, 255, (6, 3, 5, 4)).astype(dtype)
    adata = tensors_to_anndata(images, list("abcabc"), obs={"age": range(6)}, tensor_key="image", condition_key="hat")
    adata.write_h5ad(tmp_path / "images.h5ad")
    back = anndata.read_h5ad(tmp_path / "images.h5ad")
    assert back.obsm["image"].dtype == dtype
    np.testing.assert_array_equal(back.obsm["image"], images)
    tensor, codes = anndata_to_tensors(back, tensor_key="image", condition_key="hat")
    assert tensor.shape == (6, 3, 5, 4)
    assert codes.tolist() == [0, 1, 2, 0, 1, 2]
    assert back.obs["age"].tolist() == list(range(6))


def test_obs_goes_by_position_and_names_the_samples():
    table = pd.DataFrame({"age": [30, 40]}, index=["p", "q"])
    adata = tensors_to_anndata(np.zeros(2), pd.Series(["a", "b"], index=[5, 6]), obs=table)
    assert list(adata.obs_names) == ["p", "q"]
    assert adata.obs["age"].tolist() == [30, 40]
    assert adata.obs["condition"].tolist() == ["a", "b"]
    series = {"age": pd.Series([30, 40], index=[9, 8])}
    assert tensors_to_anndata(np.zeros(2), [0, 1], obs=series).obs["age"].tolist() == [30, 40]
    assert list(table) == ["age"]


def test_tensors_are_copies():
    adata = tensors_to_anndata(np.zeros((2, 1)), [0, 1])
    anndata_to_tensors(adata)[0].fill_(5)
    assert (adata.obsm["x"] == 0).all()


@pytest.mark.parametrize(
    ("x", "y", "obs", "message"),
    [
        (np.zeros((3, 2)), [0, 1], None, "x has 3 samples but y has 2 labels"),
        (np.float64(1), [0], None, "single number"),
        (np.array([0.0, np.nan]), [0, 1], None, "1 values that are NaN or infinite.*sample 1"),
        (np.array([[0.0], [np.inf]]), [0, 1], None, "NaN or infinite"),
        (np.array([0.0, 1e300]), [0, 1], None, "as float32"),
        (np.array(["a", "b"]), [0, 1], None, "x has type <U1"),
        (np.array([1j, 2]), [0, 1], None, "complex"),
        (np.zeros(2), ["a", None], None, "y is missing for 1 samples"),
        (np.zeros(2), [[0], [1]], None, "y has 2 dimensions"),
        (np.zeros(2), [1, "1"], None, "differ only in type"),
        (np.zeros(2), [0, 1], {"condition": [1, 2]}, "already has a column 'condition'"),
        (np.zeros(2), [0, 1], {"age": [1, 2, 3]}, "'age' has 3 values for 2 samples"),
        (np.zeros(2), [0, 1], pd.DataFrame(index=list("abc")), "obs has 3 values for 2 samples"),
    ],
)
def test_bad_input_is_named(x, y, obs, message):
    with pytest.raises(ValueError, match=message):
        tensors_to_anndata(x, y, obs=obs)


def test_missing_keys_are_named():
    adata = tensors_to_anndata(np.zeros(2), [0, 1])
    with pytest.raises(KeyError, match="tensor_key 'image'"):
        anndata_to_tensors(adata, tensor_key="image")
    with pytest.raises(KeyError, match="condition_key 'stim'"):
        anndata_to_tensors(adata, condition_key="stim")


def test_missing_conditions_and_bad_values_are_named_on_the_way_back():
    adata = tensors_to_anndata(np.zeros(2), [0, 1])
    adata.obs["gap"] = pd.Categorical(["a", None])
    with pytest.raises(ValueError, match="missing for 1 samples"):
        anndata_to_tensors(adata, condition_key="gap")
    adata.obsm["bad"] = np.array([[0.0], [np.nan]])
    with pytest.raises(ValueError, match=r"obsm\['bad'\] has 1 values"):
        anndata_to_tensors(adata, tensor_key="bad")
