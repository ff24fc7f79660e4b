"""AnnData fields that scvi-tools does not have, with errors that name the key, the value and the fix."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from anndata import AnnData
from scvi import settings
from scvi.data.fields import CategoricalObsField, ObsmField


class CategoryField(CategoricalObsField):
    """A categorical column of ``obs`` that says which category a query cannot have."""

    def transfer_field(
        self, state_registry: dict, adata_target: AnnData, extend_categories: bool = False, **kwargs
    ) -> dict:
        """Transfer the field to a query, whose categories must be known unless ``extend_categories``."""
        if not self.is_default and not extend_categories and self._original_attr_key in adata_target.obs:
            check_known_categories(
                adata_target.obs[self._original_attr_key],
                self._original_attr_key,
                state_registry[self.CATEGORICAL_MAPPING_KEY],
            )
        return super().transfer_field(state_registry, adata_target, extend_categories=extend_categories, **kwargs)


class ConditionField(CategoryField):
    """The condition: complete and with at least two categories in training, possibly unknown (-1) in a query."""

    UNKNOWN = -1

    def register_field(self, adata: AnnData) -> dict:
        """Register the categories that occur."""
        labels = adata.obs[self._original_attr_key].astype("category").cat.remove_unused_categories()
        adata.obs[self.attr_key] = labels.cat.codes
        return {
            self.CATEGORICAL_MAPPING_KEY: labels.cat.categories.to_numpy(copy=True),
            self.ORIGINAL_ATTR_KEY: self._original_attr_key,
        }

    def validate_field(self, adata: AnnData) -> None:
        """Check the column for training."""
        check_condition(adata, self._original_attr_key)

    def transfer_field(
        self, state_registry: dict, adata_target: AnnData, extend_categories: bool = False, **kwargs
    ) -> dict:
        """Transfer the field to a query, where missing labels and a missing column mean an unknown condition."""
        key = self._original_attr_key
        mapping = state_registry[self.CATEGORICAL_MAPPING_KEY]
        if key not in adata_target.obs:
            warnings.warn(
                f"adata.obs has no column {key!r}: the condition of all cells is taken as unknown.",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )
            codes = np.full(adata_target.n_obs, self.UNKNOWN)
        else:
            check_known_categories(adata_target.obs[key], key, mapping)
            codes = pd.Categorical(adata_target.obs[key], categories=mapping).codes
        adata_target.obs[self.attr_key] = codes
        return dict(state_registry)


class TensorField(ObsmField):
    """An array of any shape in ``obsm``; remembers the shape of one observation and how it is stored."""

    SHAPE_KEY = "shape"
    BYTES_KEY = "stored_as_bytes"

    def register_field(self, adata: AnnData) -> dict:
        """Register the array."""
        array = self.get_field_data(adata)
        return super().register_field(adata) | {
            self.SHAPE_KEY: tuple(int(n) for n in array.shape[1:]),
            self.BYTES_KEY: array.dtype == np.uint8,
        }

    def transfer_field(self, state_registry: dict, adata_target: AnnData, **kwargs) -> dict:
        """Transfer the field to a query, which must have observations of the same shape."""
        self.validate_field(adata_target)
        shape, expected = self.get_field_data(adata_target).shape[1:], tuple(state_registry[self.SHAPE_KEY])
        if tuple(shape) != expected:
            raise ValueError(
                f"adata.obsm[{self.attr_key!r}] has observations of shape {tuple(shape)}, but the model was trained "
                f"on {expected}; reshape the array."
            )
        return self.register_field(adata_target)


def check_known_categories(values: pd.Series, key: str, known: np.ndarray) -> None:
    """Raise where a column has a category that the model has not seen; missing values pass."""
    unseen = pd.Index(values.dropna().unique()).difference(pd.Index(known))
    if len(unseen):
        raise ValueError(
            f"adata.obs[{key!r}] has the category {unseen[0]!r}, which the model was not trained on; it knows "
            f"{list(known)}. Rename or drop these cells, or set their value to missing where it may be unknown."
        )


def check_condition(adata: AnnData, key: str) -> None:
    """Raise where a column cannot serve as the condition."""
    check_columns(adata, [key], "condition_key")
    labels = adata.obs[key]
    n_missing = int(labels.isna().sum())
    if n_missing:
        raise ValueError(
            f"condition_key {key!r} has no label for {n_missing} of {adata.n_obs} cells; drop them "
            f"(adata[adata.obs[{key!r}].notna()].copy()) or fill in their condition."
        )
    counts = labels.value_counts()
    counts = counts[counts > 0]
    if len(counts) < 2:
        raise ValueError(
            f"condition_key {key!r} has one category, {counts.index[0]!r}; discovr_sc needs at least two conditions "
            "to tell apart."
        )
    if counts.min() < 2:
        raise ValueError(
            f"condition_key {key!r} has one cell only of {counts.idxmin()!r}; drop it, or join it to another condition."
        )


def check_columns(adata: AnnData, keys: list[str], argument: str) -> None:
    """Raise where ``obs`` lacks a column."""
    for key in keys:
        if key not in adata.obs:
            raise KeyError(f"{argument} {key!r} is not a column of adata.obs; it has {list(adata.obs.columns)}.")
