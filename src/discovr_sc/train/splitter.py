"""Splitting cells into training, validation and test sets."""

from __future__ import annotations

import numpy as np
from scvi import REGISTRY_KEYS, settings
from scvi.dataloaders import DataSplitter
from torch.utils.data import BatchSampler, WeightedRandomSampler, default_convert


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
        if balance_conditions and kwargs.get("distributed_sampler"):
            raise ValueError("balance_conditions=True draws cells for one device; leave it out, or train on one.")

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
