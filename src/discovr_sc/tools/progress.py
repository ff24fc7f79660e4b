"""What tells a user who waits how far the work is."""

from collections.abc import Iterable, Sized
from typing import TypeVar

from scvi.utils import track

Item = TypeVar("Item")

#: Seconds before a bar appears: short work needs none.
DELAY = 2.0


def shown(work: Iterable[Item], text: str, total: int | None = None) -> Iterable[Item]:
    """Go through work with a progress bar, which appears after some seconds and goes away at the end."""
    total = len(work) if total is None and isinstance(work, Sized) else total
    return track(work, text, style="tqdm", total=total, delay=DELAY, leave=False)
