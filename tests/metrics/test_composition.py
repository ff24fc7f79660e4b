"""Metrics of composition against small cases that are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from discovr_sc.metrics import composition_floor, leak_within_types, type_accuracy, type_recalls, type_transfer

#: Two types of 120 cells each, far apart, two conditions by turns; two thirds of the cells are to fit on.
TYPES, CONDITIONS = np.repeat(["B", "T"], 120), np.tile(["ctrl", "stim"], 120)
TRAIN = np.arange(240) // 2 % 3 > 0
PLACE = 100.0 * (TYPES == "T")[:, None] + np.zeros((240, 2))


def noise(scale=1.0):
    return scale * np.random.default_rng(0).normal(size=(240, 2))


def shifted(cells):
    """Cells of the second condition lie 10 to the right, in some types."""
    return PLACE + noise() + [10.0, 0.0] * (cells & (CONDITIONS == "stim"))[:, None]


def test_a_shift_in_one_of_two_types_is_half_a_leak():
    leak = leak_within_types(shifted(TYPES == "T"), CONDITIONS, TYPES, train=TRAIN)
    assert leak.of_types["T"] == 1
    assert leak.of_types["B"] == pytest.approx(0.5, abs=0.15)
    assert leak.mean == pytest.approx(np.mean(list(leak.of_types.values())))


def test_types_of_one_condition_or_of_few_cells_are_left_out():
    types = np.where((TYPES == "B") & (CONDITIONS == "ctrl"), "only ctrl", TYPES)
    types[np.flatnonzero(types == "B")[:4]] = "few"
    assert set(leak_within_types(PLACE + noise(), CONDITIONS, types, train=TRAIN).of_types) == {"T"}
    with pytest.raises(ValueError, match="no cell type has 10 cells to fit on and 5 held out in two conditions"):
        leak_within_types(PLACE, CONDITIONS, CONDITIONS, train=TRAIN)


def test_chance_is_a_half_whatever_the_number_of_conditions():
    """Of four conditions two lie apart and two lie on each other: 1, 1, and a half each of the others."""
    conditions = np.arange(240) % 4
    at = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [0.0, 50.0]])[conditions]
    leak = leak_within_types(at, conditions, np.full(240, "all"), train=np.arange(240) // 4 % 3 > 0).mean
    assert leak == pytest.approx(0.5 + 0.5 * (0.75 - 0.25) / 0.75)
    assert leak_within_types(np.eye(4)[conditions], conditions, np.full(240, "all"), train=TRAIN).mean == 1


def test_recalls_are_shares_of_cells_whose_neighbours_are_of_their_type():
    """A quarter of the B cells that are scored lie among T cells."""
    place = PLACE + noise()
    asked = np.flatnonzero((TYPES == "B") & ~TRAIN)
    place[asked[: len(asked) // 4]] += [100.0, 100.0]
    assert type_recalls(place, TYPES, train=TRAIN) == {"B": 0.75, "T": 1.0}
    assert type_accuracy(place, TYPES, train=TRAIN) == 0.875
    rows = np.flatnonzero(TRAIN)  # as model.train_indices are
    assert type_recalls(place, TYPES, train=rows) == {"B": 0.75, "T": 1.0}
    with pytest.raises(ValueError, match="train is neither a mask of length .* nor indices below"):
        type_recalls(place, TYPES, train=[-1, 0])


def test_transfer_goes_from_each_condition_to_each_other():
    """Stimulated B cells lie where T cells of the control are; T cells lie together."""
    moved = (TYPES == "B") & (CONDITIONS == "stim")
    place = PLACE + noise() + [100.0, 100.0] * moved[:, None]
    transfer = type_transfer(place, CONDITIONS, TYPES, train=TRAIN)
    assert transfer[("ctrl", "stim")] == 0.5  # no B cell is told, every T cell is
    assert set(transfer) == {("ctrl", "stim"), ("stim", "ctrl")}
    together = type_transfer(PLACE + noise(), CONDITIONS, TYPES, train=TRAIN)
    assert together == {("ctrl", "stim"): 1.0, ("stim", "ctrl"): 1.0}


def test_transfer_is_scored_over_the_types_that_both_have():
    types = np.where((TYPES == "B") & (CONDITIONS == "stim"), "only stim", TYPES)
    place = PLACE + noise()
    assert type_transfer(place, CONDITIONS, types, train=TRAIN)[("stim", "ctrl")] == 1.0


def test_the_floor_is_what_types_alone_tell():
    """Nine tenths of the B cells are controls, and of the T cells stimulated."""
    conditions = np.where((np.arange(240) % 10 == 0) ^ (TYPES == "B"), "ctrl", "stim")
    train = np.arange(240) // 10 % 3 > 0
    assert composition_floor(conditions, TYPES, train=train) == pytest.approx(0.9)
    assert composition_floor(CONDITIONS, TYPES, train=TRAIN) == 0.5


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="cell_types"):
        leak_within_types(PLACE, CONDITIONS, TYPES[:-1], train=TRAIN)
    with pytest.raises(ValueError, match="train"):
        type_recalls(PLACE, TYPES, train=TRAIN[:-1])
