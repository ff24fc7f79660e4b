"""Arrays and tensors of any shape to AnnData and back, so that one API serves vectors, images and cells."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData


def tensors_to_anndata(
    x: np.ndarray | torch.Tensor,
    y: Sequence | np.ndarray | torch.Tensor | pd.Series | pd.Categorical,
    *,
    obs: pd.DataFrame | Mapping[str, Sequence] | None = None,
    tensor_key: str = "x",
    condition_key: str = "condition",
) -> AnnData:
    """Wrap samples of any shape and their condition labels in an AnnData without genes and `X`, shape (n, 0).

    Parameters
    ----------
    x
        Samples, shape (n, ...): vectors (n, d), images (n, channels, height, width). A 1-D array becomes
        (n, 1). Floating-point values are stored as float32; integers and booleans (uint8 images) are kept.
    y
        Condition of each sample, length n: integers, strings, booleans or a pandas categorical.
    obs
        Further columns of n values each. The index of a DataFrame names the samples.
    tensor_key, condition_key
        Where `x` goes in `obsm`, and `y` in `obs`, as a categorical of strings. A categorical `y` keeps the order of
        its categories (those without samples are dropped); others are sorted by value, so 2 comes before 10.

    Examples
    --------
    >>> images = np.zeros((4, 3, 8, 8), dtype=np.uint8)
    >>> adata = tensors_to_anndata(images, ["hat", "none", "none", "hat"])
    >>> adata.shape, adata.obsm["x"].shape, adata.obsm["x"].dtype
    ((4, 0), (4, 3, 8, 8), dtype('uint8'))
    >>> list(adata.obs["condition"].cat.categories)
    ['hat', 'none']
    """
    values = _numeric_array(x, name="x")
    if values.ndim == 0:
        raise ValueError("x is a single number; pass an array whose first dimension counts the samples.")
    if values.ndim == 1:
        values = values[:, None]
    n = len(values)

    labels = _condition_labels(y)
    if len(labels) != n:
        raise ValueError(f"x has {n} samples but y has {len(labels)} labels; give one label per sample.")

    table = _obs_table(obs, n)
    if condition_key in table:
        raise ValueError(f"obs already has a column {condition_key!r}, where y would go; rename it or condition_key.")
    table[condition_key] = labels
    return AnnData(obs=table, obsm={tensor_key: values})


def anndata_to_tensors(
    adata: AnnData, *, tensor_key: str = "x", condition_key: str = "condition"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take samples and condition codes out of an AnnData, as copies.

    Parameters
    ----------
    adata
        Samples, shape (n, ...), in `obsm[tensor_key]`, conditions in `obs[condition_key]`.
    tensor_key, condition_key
        As for :func:`tensors_to_anndata`.

    Returns
    -------
    The samples (n, ...), float32 or the stored integer type, and the position of each sample's condition among the
    sorted (or, for a categorical, the given) categories, int64 (n,).

    Examples
    --------
    >>> x, y = anndata_to_tensors(tensors_to_anndata(np.arange(3.0), ["b", "a", "b"]))
    >>> x.shape, y
    (torch.Size([3, 1]), tensor([1, 0, 1]))
    """
    if tensor_key not in adata.obsm:
        raise KeyError(f"tensor_key {tensor_key!r} is not in adata.obsm, which has {list(adata.obsm)}.")
    if condition_key not in adata.obs:
        raise KeyError(f"condition_key {condition_key!r} is not in adata.obs, which has {list(adata.obs)}.")
    values = _numeric_array(adata.obsm[tensor_key], name=f"obsm[{tensor_key!r}]")
    codes = adata.obs[condition_key].astype("category").cat.codes.to_numpy(dtype=np.int64)
    if n_missing := int((codes < 0).sum()):
        raise ValueError(f"obs[{condition_key!r}] is missing for {n_missing} samples; remove them or label them.")
    return torch.tensor(values), torch.tensor(codes)


def _numeric_array(x: np.ndarray | torch.Tensor | pd.DataFrame, *, name: str) -> np.ndarray:
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        # numpy has no bfloat16; every float ends up as float32 anyway.
        x = (x.float() if x.is_floating_point() else x).numpy()
    values = np.asarray(x)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} has type {values.dtype}; pass a dense array or tensor of numbers or booleans.")
    if values.dtype.kind == "f":
        # A float64 beyond float32's range becomes infinite and is reported below.
        with np.errstate(over="ignore"):
            values = values.astype(np.float32, copy=False)
        bad = ~np.isfinite(values)
        if bad.any():
            where = f"{int(bad.sum())} values that are NaN or infinite as float32, the first in sample"
            raise ValueError(f"{name} has {where} {int(np.argwhere(bad)[0][0])}; remove or impute them.")
    return values


def _condition_labels(y: Sequence | np.ndarray | torch.Tensor | pd.Series | pd.Categorical) -> pd.Categorical:
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu().numpy()
    if np.ndim(y) != 1:
        raise ValueError(f"y has {np.ndim(y)} dimensions; pass one label per sample, shape (n,).")
    labels = pd.Categorical(y).remove_unused_categories()
    if n_missing := int((labels.codes < 0).sum()):
        raise ValueError(f"y is missing for {n_missing} samples; remove them or give them a label of their own.")
    names = [str(category) for category in labels.categories]
    if len(set(names)) != len(names):
        raise ValueError(f"y has labels that differ only in type, among {list(labels.categories)}; make them one type.")
    return labels.rename_categories(names)


def _obs_table(obs: pd.DataFrame | Mapping[str, Sequence] | None, n: int) -> pd.DataFrame:
    columns = {} if obs is None else obs
    index = obs.index if isinstance(obs, pd.DataFrame) else pd.RangeIndex(n)
    for name, values in {"obs": index, **{f"obs column {key!r}": columns[key] for key in columns}}.items():
        if len(values) != n:
            raise ValueError(f"{name} has {len(values)} values for {n} samples; they must be as many.")
    # Rows go by position: pandas would otherwise align a Series by its own index and leave holes.
    arrays = {key: getattr(columns[key], "array", columns[key]) for key in columns}
    return pd.DataFrame(arrays, index=index.astype(str))
