"""Checkpoints: a training that was killed goes on where it was, to the same weights."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Checkpoint

from discovr_sc.errors import InputError, MissingFileError

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from discovr_sc.train.plan import AdversarialPlan

#: Entry of a checkpoint with what Lightning does not save: random numbers, history, how many epochs are whole.
OURS = "discovr_sc"
#: Per metric its epochs and values.
History = dict[str, dict[str, list]]


class EpochCheckpoint(Checkpoint):
    """Writes a checkpoint at the end of an epoch, where the last is some time ago; there is always a whole one.

    Parameters
    ----------
    path
        File to write.
    every
        Seconds between checkpoints.
    job
        What is trained, in plain values, to tell whose checkpoint it is.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from discovr_sc import DISCOVR, data
    >>> from discovr_sc.train import EpochCheckpoint
    >>> cells = data.simulate_counts(n_cells=200, n_genes=50)
    >>> DISCOVR.setup_anndata(cells, condition_key="condition")
    >>> path = Path(mkdtemp()) / "last.ckpt"
    >>> killed = DISCOVR(cells)
    >>> killed.train(2, callbacks=[EpochCheckpoint(path, every=0)], enable_progress_bar=False)
    >>> another = DISCOVR(cells)
    >>> another.train(3, ckpt_path=path, enable_progress_bar=False)
    >>> len(another.history_["train_loss"])
    3
    """

    def __init__(self, path: str | Path, every: float = 60.0, job: dict[str, Any] | None = None):
        self.path = Path(path)
        self.every = every
        self.job = job
        self._last = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Saved in the checkpoint."""
        return {"job": self.job}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write a checkpoint."""
        # One process decides for all: each has its own clock.
        if not trainer.strategy.broadcast(time.monotonic() - self._last >= self.every):
            return
        draft = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            trainer.save_checkpoint(draft)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        if trainer.is_global_zero:
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        self._last = time.monotonic()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint, read without running anything that it says."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"ckpt_path={str(path)!r} is not a file; give a checkpoint of Lightning's, *.ckpt.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(
            f"{path} is not a checkpoint that can be read: it is damaged, or holds Python objects, which could run any "
            f"code ({reason}). Start the training anew."
        ) from None
    if not isinstance(found, dict) or OURS not in found:
        raise InputError(f"{path} is not a checkpoint of a training of this package; leave ckpt_path out.")
    return found


def job_of(path: Path) -> dict[str, Any] | None:
    """What the checkpoint in a file is of, where :class:`EpochCheckpoint` wrote it; None where there is none."""
    states = read_checkpoint(path)["callbacks"] if path.exists() else {}
    return next((state["job"] for state in states.values() if "job" in state), None)


def resume(checkpoint: dict[str, Any], trainer: Trainer, plan: AdversarialPlan) -> None:
    """Put a trainer and a plan to where they were at the end of an epoch.

    Lightning's own way would make the iterator over cells before the random numbers are put back, so that the cells
    came in another order.
    """
    ours = checkpoint[OURS]
    try:
        plan.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        raise InputError(f"ckpt_path is of a model of other settings or data ({error}); start anew.") from error
    plan.resume(checkpoint)
    progress: Any = trainer.fit_loop.epoch_progress.current
    progress.processed = progress.completed = progress.started = progress.ready = ours["n_epochs"]
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
    steps.completed = steps.ready = checkpoint["global_step"]
    for callback in cast(Any, trainer).callbacks:
        if callback.state_key in checkpoint["callbacks"]:
            callback.load_state_dict(checkpoint["callbacks"][callback.state_key])


def random_state() -> dict[str, Any]:
    """Of all generators, as plain values."""
    # scvi-tools' splitters and samplers use numpy's global generator.
    _, keys, position, has_gauss, gauss = cast("tuple[Any, ...]", np.random.get_state())  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [torch.as_tensor(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put all generators back."""
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    keys, *rest = state["numpy"]
    numpy_state: Any = ("MT19937", keys.numpy().astype(np.uint32), *rest)
    np.random.set_state(numpy_state)  # noqa: NPY002
    random.setstate(state["python"])


def history_frame(name: str, epoch: list[int], value: list[float]) -> pd.DataFrame:
    """A history as scvi-tools keeps it."""
    return pd.DataFrame({name: value}, index=pd.Index(epoch, name="epoch"))


def joined(earlier: History, history: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The history of a training that went on, whole."""
    frames = {name: history_frame(name, **columns) for name, columns in earlier.items()}
    for name, frame in history.items():
        frames[name] = pd.concat([frames[name], frame]) if name in frames else frame
    return frames
