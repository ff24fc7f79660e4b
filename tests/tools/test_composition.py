"""Rows of the report about composition, on embeddings whose answer is known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from discovr_sc.tools.composition import N_CLUSTERS, composition_rows

N = 600
TRAIN = np.arange(N) // 6 % 3 > 0


def embedding(seed=0):
    """Types A and B in both conditions, C in the second alone; z tells the type and nothing else."""
    rng = np.random.default_rng(seed)
    types = np.tile(["A", "A", "B", "B", "C", "C"], N // 6)
    conditions = np.tile(["ctrl", "stim", "ctrl", "stim", "stim", "stim"], N // 6)
    place = {"A": (0.0, 0.0), "B": (30.0, 0.0), "C": (0.0, 30.0)}
    return np.array([place[name] for name in types]) + rng.normal(size=(N, 2)), conditions, types


def rows(z, conditions, types):
    return {row["metric"]: row["value"] for row in composition_rows(z, conditions, types, TRAIN, 0)}


def test_rows_with_types():
    z, conditions, types = embedding()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows(z, conditions, types)
    assert set(found) == {"composition_floor", "leak_within_types", "type_transfer", "apart_C"}
    assert found["composition_floor"] == pytest.approx(0.75)  # all controls are told, and half of the stimulated are
    assert found["leak_within_types"] < 0.65
    assert found["type_transfer"] == found["apart_C"] == 1


def test_a_type_that_one_condition_lacks_is_told_to_lie_on_another():
    z, conditions, types = embedding()
    z[types == "C"] -= [0.0, 30.0]  # on type A, which has as many cells
    assert rows(z, conditions, types)["apart_C"] < 0.8


def test_types_that_no_condition_shares_are_still_told_to_lie_apart():
    z, conditions, types = embedding()
    types = np.char.add(types, conditions)
    assert set(rows(z, conditions, types)) == {"composition_floor", *(f"apart_{name}" for name in np.unique(types))}


def test_clusters_stand_in_for_types_and_a_warning_asks_for_them():
    z, conditions, _ = embedding()
    with pytest.warns(UserWarning, match=r"differ in their composition, or .* clusters of z predict .* cell_type_key"):
        found = rows(z, conditions, None)
    assert set(found) == {"composition_floor", "leak_within_types"}
    assert found["composition_floor"] > 0.7


def test_equal_composition_is_no_reason_to_warn():
    rng = np.random.default_rng(0)
    z = 20.0 * np.eye(N_CLUSTERS)[rng.integers(N_CLUSTERS, size=N)] + rng.normal(size=(N, N_CLUSTERS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rows(z, np.tile(["ctrl", "stim"], N // 2), None)
    assert found["composition_floor"] < 0.6
