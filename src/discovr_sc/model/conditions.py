"""What a cell's condition is: the labels of one column of ``obs``, or of several together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd

#: Column of ``obs`` for the conditions that several columns make together.
JOINT_COLUMN = "_scvi_condition"
#: Between the labels that make one condition.
SEPARATOR = " & "


def condition_keys(condition_key: str | Sequence[str]) -> list[str]:
    """The columns that make the condition."""
    return [condition_key] if isinstance(condition_key, str) else list(condition_key)


def condition_labels(
    obs: pd.DataFrame, condition_key: str | Sequence[str], unlabeled_category: str | None = None
) -> pd.Series:
    """The condition of every cell, missing where it is unknown; its categories are those that occur.

    Parameters
    ----------
    obs
        With the columns named by ``condition_key``.
    condition_key
        One column, or several: their labels are joined, as in ``"stim & donor_1"``. A cell that lacks one of them
        has no label.
    unlabeled_category
        Label of cells whose condition is unknown, in any of the columns.

    Examples
    --------
    >>> obs = pd.DataFrame({"stim": ["no", "yes", "yes"], "donor": ["a", "a", "?"]})
    >>> condition_labels(obs, ["stim", "donor"], unlabeled_category="?").tolist()
    ['no & a', 'yes & a', nan]
    """
    columns = []
    for key in condition_keys(condition_key):
        column = obs[key].astype("category")
        if unlabeled_category is not None:
            column = column.cat.remove_categories([c for c in column.cat.categories if c == unlabeled_category])
        columns.append(column.cat.remove_unused_categories())
    if isinstance(condition_key, str):
        return columns[0]
    known = pd.concat([column.notna() for column in columns], axis=1).all(axis=1)
    joint = columns[0].astype(str).str.cat([column.astype(str) for column in columns[1:]], sep=SEPARATOR).where(known)
    names = [SEPARATOR.join(map(str, parts)) for parts in product(*(column.cat.categories for column in columns))]
    return joint.astype(pd.CategoricalDtype(names)).cat.remove_unused_categories()
