"""What a cell's condition is: the label of one column of ``obs``, or a combination of the labels of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from scvi import REGISTRY_KEYS

#: scvi-tools' slot for the condition: its labels, so that its batch slot stays free for a real batch.
CONDITION_SLOT = REGISTRY_KEYS.LABELS_KEY
#: Entry of the registry: for every condition, its label in each of the columns.
TABLE_KEY = "condition_table"
#: Column of ``obs`` for the conditions that several columns make together.
JOINT_COLUMN = "_scvi_condition"
#: Between the labels in the name of a combination, for show: names are never taken apart.
SEPARATOR = " & "


def condition_keys(condition_key: str | Sequence[str]) -> list[str]:
    """The columns that make the condition."""
    return [condition_key] if isinstance(condition_key, str) else list(condition_key)


class Conditions(NamedTuple):
    """Conditions that occur.

    Attributes
    ----------
    of_cells
        The condition of every cell, categorical, missing where it is unknown.
    table
        For every condition its label in each of the columns.
    """

    of_cells: pd.Series
    table: dict[Any, list]


def conditions_of(
    obs: pd.DataFrame, condition_key: str | Sequence[str], unlabeled_category: str | None = None
) -> Conditions:
    """The conditions of cells.

    Parameters
    ----------
    obs
        With the columns named by ``condition_key``.
    condition_key
        One column, or several: every combination of their labels is a condition, named as in ``"stim & donor_1"``. The
        condition of a cell that lacks one of them is unknown.
    unlabeled_category
        Label of cells whose condition is unknown, in any of the columns.

    Examples
    --------
    >>> obs = pd.DataFrame({"stim": ["no", "yes", "yes"], "donor": ["a", "a", "?"]})
    >>> conditions_of(obs, ["stim", "donor"], unlabeled_category="?").of_cells.tolist()
    ['no & a', 'yes & a', nan]
    """
    columns = []
    for key in condition_keys(condition_key):
        column = obs[key].astype("category")
        if unlabeled_category is not None:
            column = column.cat.remove_categories([c for c in column.cat.categories if c == unlabeled_category])
        columns.append(column.cat.remove_unused_categories())
    if isinstance(condition_key, str):
        return Conditions(columns[0], {name: [name] for name in columns[0].cat.categories.tolist()})
    codes = pd.MultiIndex.from_arrays([column.cat.codes for column in columns])  # -1 where a label is missing
    occurring = pd.MultiIndex.from_tuples(sorted(c for c in set(codes) if min(c) >= 0), names=condition_key)
    table: dict[Any, list] = {}
    for combination in occurring:
        labels = [str(column.cat.categories[code]) for column, code in zip(columns, combination, strict=True)]
        name = SEPARATOR.join(labels)
        if name in table:
            raise ValueError(
                f"condition_key {condition_key!r}: the labels {table[name]} and {labels} make one name, "
                f"{name!r}; rename one of them."
            )
        table[name] = labels
    of_cells = pd.Categorical.from_codes(occurring.get_indexer(codes), list(table))
    return Conditions(pd.Series(of_cells, index=obs.index), table)


def known_conditions(registry: dict) -> dict[Any, list]:
    """The conditions of a model, in the order of their indices, and for each its label in each of the columns."""
    state = registry["field_registries"][CONDITION_SLOT]["state_registry"]
    conditions = state["categorical_mapping"]
    # A model of one column that was saved before there was a table has its conditions for labels.
    return dict(zip(conditions, state.get(TABLE_KEY) or [[name] for name in conditions], strict=True))
