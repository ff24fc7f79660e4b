"""AnnData fields that scvi-tools does not have."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from scvi import settings
from scvi.data.fields import CategoricalObsField, ObsmField

from discovr_sc.model.checks import check_condition
from discovr_sc.model.conditions import JOINT_COLUMN, TABLE_KEY, Conditions, condition_keys, conditions_of


class ConditionField(CategoricalObsField):
    """The condition: at least two categories in training, unknown (-1) in a query or where the user allows it.

    Parameters
    ----------
    registry_key
        Key of the field in scvi-tools' registry.
    condition_key
        Column of ``obs``, or several; the conditions of several are kept in a column of their own.
    unlabeled_category
        Label of cells whose condition is unknown.
    """

    UNKNOWN = -1

    def __init__(self, registry_key: str, condition_key: str | Sequence[str], unlabeled_category: str | None = None):
        super().__init__(registry_key, condition_key if isinstance(condition_key, str) else JOINT_COLUMN)
        self._condition_key = condition_key
        self._unlabeled_category = unlabeled_category

    def register_field(self, adata: AnnData) -> dict:
        """Register the conditions that occur."""
        found = self._find(adata)
        adata.obs[self.attr_key] = found.of_cells.cat.codes
        return {
            self.CATEGORICAL_MAPPING_KEY: found.of_cells.cat.categories.to_numpy(copy=True),
            TABLE_KEY: list(found.table.values()),
            self.ORIGINAL_ATTR_KEY: self._original_attr_key,
        }

    def validate_field(self, adata: AnnData) -> None:
        """Check the columns for training."""
        check_condition(adata, self._condition_key, self._unlabeled_category)

    def transfer_field(
        self, state_registry: dict, adata_target: AnnData, extend_conditions: bool = False, **kwargs
    ) -> dict:
        """Transfer the field to a query, where missing labels and a missing column mean an unknown condition."""
        state = dict(state_registry)
        absent = [key for key in condition_keys(self._condition_key) if key not in adata_target.obs]
        if absent:
            warnings.warn(
                f"adata.obs has no column {absent[0]!r}: the condition of all cells is taken as unknown.",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )
            adata_target.obs[self.attr_key] = np.full(adata_target.n_obs, self.UNKNOWN)
            return state
        of_cells, table = self._find(adata_target)
        if extend_conditions:
            old = state[self.CATEGORICAL_MAPPING_KEY]
            new = of_cells.cat.categories.difference(old)
            state[self.CATEGORICAL_MAPPING_KEY] = np.concatenate([old, new])
            state[TABLE_KEY] = [*state.get(TABLE_KEY, [[name] for name in old]), *(table[name] for name in new)]
        adata_target.obs[self.attr_key] = pd.Categorical(of_cells, categories=state[self.CATEGORICAL_MAPPING_KEY]).codes
        return state

    def _find(self, adata: AnnData) -> Conditions:
        """The conditions of an AnnData; those of several columns are written to a column of their own."""
        found = conditions_of(adata.obs, self._condition_key, self._unlabeled_category)
        if self._original_attr_key == JOINT_COLUMN:
            adata.obs[JOINT_COLUMN] = found.of_cells
        return found


class CellTypeField(CategoricalObsField):
    """Cell types, which may be missing (-1) for some cells in training and for all in a query."""

    UNKNOWN = -1

    def validate_field(self, adata: AnnData) -> None:
        """A query need not have the column; that of the training is checked before anything is registered."""

    def register_field(self, adata: AnnData) -> dict:
        """Register the types that occur."""
        types = adata.obs[self._original_attr_key].astype("category").cat.remove_unused_categories()
        adata.obs[self.attr_key] = types.cat.codes
        return {
            self.CATEGORICAL_MAPPING_KEY: types.cat.categories.to_numpy(copy=True),
            self.ORIGINAL_ATTR_KEY: self._original_attr_key,
        }

    def transfer_field(self, state_registry: dict, adata_target: AnnData, **kwargs) -> dict:
        """Transfer the field to a query, where types that the model does not know are unknown."""
        known = state_registry[self.CATEGORICAL_MAPPING_KEY]
        if self._original_attr_key in adata_target.obs:
            adata_target.obs[self.attr_key] = pd.Categorical(adata_target.obs[self._original_attr_key], known).codes
        else:
            adata_target.obs[self.attr_key] = np.full(adata_target.n_obs, self.UNKNOWN)
        return dict(state_registry)

    def get_summary_stats(self, state_registry: dict) -> dict:
        """The number of types."""
        return {self.count_stat_key: len(state_registry[self.CATEGORICAL_MAPPING_KEY])}


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
