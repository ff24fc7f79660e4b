"""What the methods that draw samples share: a seed of their own, and which cells they are of."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's generators with a seed, and leave them as they were; loaders of data draw from them, too."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def row_numbers(indices: Sequence[int] | np.ndarray | None, n: int) -> np.ndarray:
    """Numbers of the rows that are asked for: all of ``n``, those listed, or those where a mask is true."""
    if indices is None:
        return np.arange(n)
    rows = np.asarray(indices)
    return np.flatnonzero(rows) if rows.dtype == bool else rows
