"""The runner around a training: what happens when it ends, or is stopped by hand."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

from lightning.pytorch.callbacks import Checkpoint
from scvi import settings
from scvi.train import LoudEarlyStopping, SaveCheckpoint, Trainer, TrainRunner

from discovr_sc._scvi import is_distributed
from discovr_sc.errors import DivergenceError, InputError
from discovr_sc.module.surgery import set_training_mode
from discovr_sc.train.checkpoints import OURS, joined, read_checkpoint, resume
from discovr_sc.train.splitter import Splitter

#: Lightning's logger of what it tells once: whether there is a GPU, what else it sells, that the epochs are over.
LIGHTNING = "lightning.pytorch.utilities.rank_zero"


@contextmanager
def muted(name: str) -> Iterator[None]:
    """Leave out what a logger announces; its warnings are shown.

    Examples
    --------
    >>> import logging
    >>> with muted("scvi"):
    ...     logging.getLogger("scvi").info("Received view of anndata, making copy.")
    """
    logger = logging.getLogger(name)
    level = logger.level
    if logger.getEffectiveLevel() == logging.INFO:  # a user who wants more, or less, has said so
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def quiet() -> Iterator[None]:
    """Train without Lightning's announcements and the deprecations of other packages; its warnings are shown.

    Examples
    --------
    >>> import warnings
    >>> with quiet():
    ...     warnings.warn("an old name", FutureWarning)
    """
    with muted(LIGHTNING), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)  # torch's sparse rows: in beta
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield


class StoppingTrainer(Trainer):
    """scvi-tools' trainer, which also stops early in several processes.

    scvi-tools switches early stopping off there, since its plans do not reduce what it watches; ours does.
    """

    def __init__(self, *args, early_stopping: bool = False, **kwargs):
        # scvi-tools would add a checkpoint of its own to these, and Lightning refuses them without.
        callbacks = kwargs.pop("callbacks", None) or []
        callbacks = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
        ours = [c for c in callbacks if isinstance(c, Checkpoint) and not isinstance(c, SaveCheckpoint)]
        kwargs["callbacks"] = [c for c in callbacks if c not in ours]
        if ours and not any(isinstance(c, SaveCheckpoint) for c in callbacks):
            kwargs["enable_checkpointing"] = False
        if early_stopping and is_distributed(kwargs.get("strategy")):
            defaults = signature(Trainer).parameters
            options = ("monitor", "min_delta", "patience", "mode", "warmup_epochs")
            names = {option: f"early_stopping_{option}" for option in options}
            stopping = LoudEarlyStopping(
                **{option: kwargs.get(name, defaults[name].default) for option, name in names.items()}
            )
            kwargs["callbacks"] = [*kwargs.get("callbacks", ()), stopping]
            early_stopping = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="early_stopping was automatically disabled")
            super().__init__(*args, early_stopping=early_stopping, **kwargs)
        self.callbacks += ours


class InterruptibleTrainRunner(TrainRunner):
    """Keeps what was learned when the user presses Ctrl-C, and fits the condition means of z at the end.

    Examples
    --------
    >>> from discovr_sc.train import AdversarialPlan, InterruptibleTrainRunner, Splitter
    >>> runner = InterruptibleTrainRunner(
    ...     model,
    ...     AdversarialPlan(model.module),
    ...     Splitter(model.adata_manager),
    ...     max_epochs=1,
    ...     enable_progress_bar=False,
    ... )
    >>> runner()
    >>> model.is_trained
    True
    """

    _trainer_cls = StoppingTrainer
    #: Of a checkpoint to go on from.
    ckpt_path: str | Path | None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        stopping = self.trainer.early_stopping_callback
        if stopping is not None and "validation" in stopping.monitor and getattr(self.data_splitter, "n_val", 1) == 0:
            raise ValueError(
                f"early_stopping watches {stopping.monitor!r}, but there are no validation cells; lower train_size."
            )

    def __call__(self) -> None:
        """Run training."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        if is_distributed(self.trainer.strategy) and isinstance(self.data_splitter, Splitter):
            # Processes that Lightning starts split the cells for themselves; this one may not be among them.
            self.data_splitter.setup("fit")
        # A model that was trained before is in evaluation mode, and Lightning would leave it there.
        set_training_mode(self.model.module, self.model.trainable_)
        self._resume()
        try:
            super().__call__()
        except (KeyboardInterrupt, SystemExit) as stop:
            if not is_interrupt(stop):
                raise
            if in_main_thread:
                # Lightning has switched Ctrl-C off for its shutdown.
                signal.signal(signal.SIGINT, handler)
            self._keep_what_was_learned()
            warnings.warn(
                f"Training was interrupted in epoch {self.trainer.current_epoch + 1}; the model keeps what it has "
                "learned.",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )
        except DivergenceError as error:
            if error.n_good_epochs:
                self._keep_what_was_learned()
                self.model.after_training(self.data_splitter)
            raise
        self.model.after_training(self.data_splitter)

    def _resume(self) -> None:
        """Go on from a checkpoint, where there is one."""
        if self.ckpt_path is None:
            return
        path, self.ckpt_path = self.ckpt_path, None  # not Lightning's to read
        checkpoint = read_checkpoint(path)
        if checkpoint[OURS]["n_epochs"] is None:
            raise InputError(
                f"ckpt_path={str(path)!r} was written in the middle of an epoch; give one of an epoch's end "
                "(ModelCheckpoint without every_n_train_steps)."
            )
        if isinstance(self.data_splitter, Splitter):
            self.data_splitter.restore(checkpoint.get(type(self.data_splitter).__qualname__), str(path))
        resume(checkpoint, self.trainer, self.training_plan)

    def _update_history(self) -> None:
        super()._update_history()
        earlier, self.training_plan.earlier_history = self.training_plan.earlier_history, {}
        if earlier and isinstance(self.model.history_, dict):
            self.model.history_ = joined(earlier, self.model.history_)

    def _keep_what_was_learned(self) -> None:
        model, splitter = self.model, self.data_splitter
        model.train_indices = getattr(splitter, "train_idx", None)
        model.validation_indices = getattr(splitter, "val_idx", None)
        model.test_indices = getattr(splitter, "test_idx", None)
        model.to_device(self.device)
        model.module.eval()
        model.trainer = self.trainer
        model.is_trained_ = True


def is_interrupt(stop: BaseException) -> bool:
    """Whether this is Ctrl-C, which Lightning turns into an exit of the interpreter."""
    return isinstance(stop, KeyboardInterrupt) or isinstance(stop.__context__, KeyboardInterrupt)
