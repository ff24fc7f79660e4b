"""Noise that belongs to cells: standard normal, independent, and the same in any company."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from scipy import stats

from discovr_sc.module.noise import KEY, LATENTS, WAYS, CellNoise, noise_of, with_keys

NAMES = pd.Index([f"cell_{i}" for i in range(500)])


def batch(names=NAMES, seed=0):
    return next(with_keys([{"X": torch.zeros(len(names), 1)}], names, seed))


def test_numbers_are_uniform_normal_and_independent():
    noise = CellNoise(batch()[KEY], LATENTS)
    uniform = noise.uniform((20, 500, 10))
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 0.01
    normal = noise.normal((20, 500, 10), like=torch.zeros(1))
    assert normal.dtype == torch.float32
    assert stats.kstest(normal.numpy().ravel(), "norm").pvalue > 0.01
    for axis in range(3):  # between samples, cells and dimensions
        a, b = (normal.numpy().take(range(start, normal.shape[axis] - 1 + start), axis).ravel() for start in (0, 1))
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.015
    assert abs(np.corrcoef(uniform.ravel(), normal.numpy().ravel())[0, 1]) < 0.015


def test_a_cell_has_its_numbers_in_any_company():
    whole = noise_of(batch(), LATENTS)
    few = noise_of(batch(NAMES[[7, 3]]), LATENTS)
    for _ in range(3):  # calls count, not cells
        np.testing.assert_array_equal(whole.uniform((4, 500, 5))[:, [7, 3]], few.uniform((4, 2, 5)))
    first, rest = noise_of(batch(), LATENTS), noise_of(batch(), LATENTS, first_sample=3)
    np.testing.assert_array_equal(
        np.concatenate([first.uniform((3, 500, 2)), rest.uniform((2, 500, 2))]),
        noise_of(batch(), LATENTS).uniform((5, 500, 2)),
    )


def test_seeds_and_purposes_differ():
    numbers = [noise_of(batch(seed=s), p).uniform((500, 3)) for s in (0, 1, -1) for p in (LATENTS, WAYS)]
    for i, one in enumerate(numbers):
        for other in numbers[:i]:
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.15
    assert noise_of({"X": torch.zeros(3, 1)}, LATENTS) is None
