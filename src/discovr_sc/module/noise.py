"""Random numbers that belong to cells, and not to their places in a mini-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri
from torch import Tensor

#: Entry of a mini-batch with a number for each cell, made of its name and the user's seed.
KEY = "cell_key"
#: What noise is for: each purpose has numbers of its own.
EVIDENCE, CONDITIONS, LATENTS, WAYS, COUNTS = range(5)

_WEYL, _MIX_1, _MIX_2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class CellNoise:
    """Random numbers of cells: the same for a cell, whichever others are with it.

    A hash of the cell's key and of the number's place (the call, the sample, the dimension), so that nothing depends on
    how many cells there are.

    Parameters
    ----------
    keys
        Of the cells, ``(n,)``, whole numbers.
    purpose
        What the noise is for.
    first_sample
        Number of the first sample, where samples are drawn in several parts.
    """

    def __init__(self, keys: Tensor, purpose: int, first_sample: int = 0):
        numbers = keys.cpu().numpy().astype(np.int64).view(np.uint64)
        self._keys = _mixed(numbers ^ _mixed(np.full(1, purpose + 1, np.uint64)))
        self._first_sample = first_sample
        self._n_calls = 0

    def uniform(self, shape: Sequence[int]) -> np.ndarray:
        """Between 0 and 1, of shape ``([samples,] n, d)``."""
        *leading, n, d = shape
        samples = np.arange(int(np.prod(leading)), dtype=np.uint64) + np.uint64(self._first_sample)
        places = (samples[:, None] << np.uint64(20)) + np.arange(d, dtype=np.uint64)  # (samples, d)
        places += np.uint64(self._n_calls << 44)
        self._n_calls += 1
        bits = _mixed(self._keys[:, None] + _WEYL * places[:, None, :])
        return ((bits >> np.uint64(11)).astype(np.float64) + 0.5).reshape(*leading, n, d) * 2.0**-53

    def normal(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal, of shape ``([samples,] n, d)``."""
        return torch.as_tensor(ndtri(self.uniform(shape))).to(like)


def _mixed(bits: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))


def noise_of(tensors: dict[str, Tensor], purpose: int, first_sample: int = 0) -> CellNoise | None:
    """Noise of the cells of a mini-batch that has their keys; None where it has not."""
    return CellNoise(tensors[KEY], purpose, first_sample) if KEY in tensors else None


def with_keys(batches: Iterable[dict[str, Tensor]], names: pd.Index, seed: int) -> Iterator[dict[str, Tensor]]:
    """Mini-batches of the cells of these names, in their order, with the cells' keys."""
    hashes = pd.util.hash_array(names.to_numpy(dtype=object))
    keys = torch.as_tensor(_mixed(hashes + _mixed(np.full(1, seed % 2**64, np.uint64))).view(np.int64))
    done = 0
    for tensors in batches:
        n = len(next(iter(tensors.values())))
        yield tensors | {KEY: keys[done : done + n]}
        done += n
