"""What the methods that draw samples share: a seed of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's generators with a seed, and leave them as they were; loaders of data draw from them, too."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
