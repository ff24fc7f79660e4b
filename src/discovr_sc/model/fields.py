"""AnnData fields that scvi-tools does not have."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from anndata import AnnData
from scvi import settings
from scvi.data.fields import CategoricalObsField, ObsmField

from discovr_sc.model.checks import check_condition


class ConditionField(CategoricalObsField):
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
        array = self.get_field_data(adata_target)
        shape, expected = tuple(array.shape[1:]), tuple(state_registry[self.SHAPE_KEY])
        if shape != expected:
            raise ValueError(
                f"adata.obsm[{self.attr_key!r}] has observations of shape {shape}, but the model was trained "
                f"on {expected}; reshape the array."
            )
        if (array.dtype == np.uint8) != state_registry[self.BYTES_KEY]:
            trained_on = "bytes (0 to 255)" if state_registry[self.BYTES_KEY] else "floats"
            raise ValueError(
                f"adata.obsm[{self.attr_key!r}] is stored as {array.dtype}, but the model was trained on {trained_on}; "
                "store the query as the training data were."
            )
        return self.register_field(adata_target)
