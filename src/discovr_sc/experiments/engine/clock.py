"""Time and memory that a training takes."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import lightning.pytorch as lightning


@dataclass
class Clock:
    """Processor and wall time of what runs inside it, seconds; one entry each time."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure a block."""
        started = time.process_time(), time.perf_counter()
        yield
        self.cpu.append(time.process_time() - started[0])
        self.wall.append(time.perf_counter() - started[1])


class TrainingClock(lightning.Callback):
    """Measures the epochs or the steps of a training, not what is around them."""

    def __init__(self, clock: Clock, each: Literal["epoch", "batch"] = "epoch"):
        self.clock = clock
        setattr(self, f"on_train_{each}_start", self.start)
        setattr(self, f"on_train_{each}_end", self.stop)

    def start(self, *args) -> None:
        """Begin to measure."""
        self.running = self.clock.running()
        self.running.__enter__()

    def stop(self, *args) -> None:
        """Make an entry."""
        self.running.__exit__(None, None, None)


def reset_peak_memory() -> None:
    """Let the peak start anew, where the system can: several rows run in one process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float:
    """Largest resident memory since the last reset, or else of the process; NaN where the system does not tell."""
    with suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
    with suppress(ImportError):  # Windows has none
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return math.nan
