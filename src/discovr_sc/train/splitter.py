"""Splitting cells into training, validation and test sets."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scvi import REGISTRY_KEYS, settings
from scvi.dataloaders import DataSplitter
from torch.utils.data import BatchSampler, WeightedRandomSampler, default_convert

from discovr_sc.errors import InputError

#: Names of the sets of cells in a checkpoint.
SETS = ("train", "validation", "test")


class Splitter(DataSplitter):
    """scvi-tools' splitter, which may also leave the validation set empty while validation is asked for.

    Parameters
    ----------
    *args, **kwargs
        See :class:`~scvi.dataloaders.DataSplitter`.
    balance_conditions
        Draw training cells with replacement so that every condition has the same share of an epoch.

    Examples
    --------
    >>> from discovr_sc.train import Splitter
    >>> splitter = Splitter(model.adata_manager, train_size=0.8, validation_size=0.1, balance_conditions=True)
    >>> splitter.setup()
    >>> len(splitter.train_idx), len(splitter.val_idx), len(splitter.test_idx)
    (160, 20, 20)
    """

    def __init__(self, *args, balance_conditions: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.balance_conditions = balance_conditions
        self._kept: dict[str, Any] | None = None
        if balance_conditions and kwargs.get("distributed_sampler"):
            raise ValueError("balance_conditions=True draws cells for one device; leave it out, or train on one.")

    def setup(self, stage: str | None = None) -> None:
        """Split the cells, so that training has some of every condition; as before, where a training goes on."""
        super().setup(stage)
        if self._kept is not None:
            self.train_idx, self.val_idx, self.test_idx = (self._kept[name].numpy() for name in SETS)
            return
        codes = self.adata_manager.get_from_registry(REGISTRY_KEYS.LABELS_KEY).ravel()
        missing = np.setdiff1d(codes[codes >= 0], codes[self.train_idx])
        if len(missing):
            names = self.adata_manager.get_state_registry(REGISTRY_KEYS.LABELS_KEY)["categorical_mapping"]
            self._give_training_cells(codes, missing, [str(names[code]) for code in missing])

    def _give_training_cells(self, codes: np.ndarray, missing: np.ndarray, names: list[str]) -> None:
        """Swap one cell of each condition that training lacks with one of a condition that it has several of."""
        if self.external_indexing is not None:
            raise InputError(f"external_indexing has no training cell of condition {names[0]!r}; add some.")
        for code, name in zip(missing, names, strict=True):
            train = codes[self.train_idx]
            can_go = [i for i, other in enumerate(train) if other < 0 or (train == other).sum() > 1]
            if not can_go:
                raise InputError(
                    f"train_size leaves {len(train)} training cells, not one of condition {name!r}; raise train_size."
                )
            held_out = self.val_idx if code in codes[self.val_idx] else self.test_idx
            place = np.flatnonzero(codes[held_out] == code)[0]
            self.train_idx[can_go[0]], held_out[place] = held_out[place], self.train_idx[can_go[0]]
        warnings.warn(
            f"By chance no training cell was of condition {names[0]!r}; one was put there in exchange for another. "
            "Conditions of so few cells are hardly learned: give more cells, or join conditions.",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )

    def state_dict(self) -> dict[str, Any]:
        """The split, for checkpoints."""
        sets = (self.train_idx, self.val_idx, self.test_idx)
        n = self.adata_manager.adata.n_obs
        return {"n_cells": n} | {name: torch.as_tensor(rows) for name, rows in zip(SETS, sets, strict=True)}

    def restore(self, state: dict[str, Any] | None, path: str) -> None:
        """Split as a checkpoint says."""
        n = self.adata_manager.adata.n_obs
        if state is None or state["n_cells"] != n:
            had = "no split of cells" if state is None else f"{state['n_cells']} cells"
            raise InputError(f"ckpt_path={path!r} is of {had}, but the model has {n}; give the checkpoint's data.")
        self._kept = state

    def train_dataloader(self):
        """Loader of the training cells."""
        if not self.balance_conditions:
            return super().train_dataloader()
        codes = self.adata_manager.get_from_registry(REGISTRY_KEYS.LABELS_KEY).ravel()[self.train_idx]
        sampler = WeightedRandomSampler(balanced_weights(codes).tolist(), num_samples=len(codes), replacement=True)
        batch_size = self.data_loader_kwargs.get("batch_size") or settings.batch_size
        return self.data_loader_cls(
            self.adata_manager,
            indices=self.train_idx,
            sampler=BatchSampler(sampler, batch_size=batch_size, drop_last=self.drop_last),
            collate_fn=_only_item,
            load_sparse_tensor=self.load_sparse_tensor,
            pin_memory=self.pin_memory,
            **self.data_loader_kwargs,
        )

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> dict[str, Any]:
        """Sparse rows of counts stay sparse on a processor, where modules take them as they are."""
        x = batch[REGISTRY_KEYS.X_KEY]
        if x.is_cpu and self.trainer is not None and self.trainer.lightning_module.module.likelihood.counts:
            return batch
        return super().on_after_batch_transfer(batch, dataloader_idx)

    def val_dataloader(self):
        """Loader of the validation cells; none where there are no such cells."""
        return [] if len(self.val_idx) == 0 else super().val_dataloader()


def _only_item(items: list) -> dict:
    """The tensors of a mini-batch: the sampler's items are batches already, and torch makes a list of one."""
    return default_convert(items[0])


def balanced_weights(codes: np.ndarray) -> np.ndarray:
    """Weights of cells ``(n,)`` that give every condition the same sum; cells of unknown condition (-1) weigh 1.

    Examples
    --------
    >>> balanced_weights(np.array([0, 0, 0, 1, -1])).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0, 1.0]
    """
    known = codes >= 0
    counts = np.bincount(codes[known])
    weights = np.ones(len(codes))
    weights[known] = known.sum() / ((counts > 0).sum() * counts[codes[known]])
    return weights
