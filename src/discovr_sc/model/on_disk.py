"""Cells that stay on disk: a Zarr store that annbatch reads through scvi-tools' datamodule, for any number of cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as lightning
import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from anndata.io import read_elem, sparse_dataset
from scipy.sparse import csr_matrix
from scvi import REGISTRY_KEYS
from scvi.model.base import BaseModelClass
from torch import Tensor

from discovr_sc.errors import InputError
from discovr_sc.model.conditions import CONDITION_SLOT
from discovr_sc.module.evidence import CELL_TYPE_SLOT

if TYPE_CHECKING:
    from discovr_sc.model.base import DisentangledModel
    from discovr_sc.module.skeleton import DisentangledModule


def setup_annbatch(
    cls: type[DisentangledModel],
    collection_path: str | Path,
    paths: Sequence[str | Path] | None = None,
    *,
    condition_key: str,
    unlabeled_category: str | None = None,
    cell_type_key: str | None = None,
    layer: str | None = None,
    batch_key: str | None = None,
    categorical_covariate_keys: list[str] | None = None,
    continuous_covariate_keys: list[str] | None = None,
    **kwargs,
) -> CellsOnDisk:
    """Say where the model finds its cells in a Zarr store that annbatch reads; they are never all in memory.

    Needs scvi-tools 1.5 or newer and annbatch 0.2: ``pip install "discovr_sc[annbatch]"`` on Python 3.12 or newer.

    Parameters
    ----------
    collection_path
        Folder of the store.
    paths
        Files (h5ad) to write to the store, shuffled. Left out, the store is taken as it is.
    condition_key
        One column of ``obs``; join several into one column first.
    unlabeled_category, cell_type_key, layer, batch_key, categorical_covariate_keys, continuous_covariate_keys
        As for :meth:`setup_anndata`.
    **kwargs
        For scvi-tools' ``setup_annbatch``: ``chunk_size``, ``preload_nchunks``, ``var_subset``, ``rebuild``, ...

    Returns
    -------
    CellsOnDisk
        A datamodule. ``model = DISCOVR(registry=cells.registry)``, ``model.train(datamodule=cells)``, then ask about
        ``for part in cells.parts(): model.predict_counterfactual(part, ...)``.

    Examples
    --------
    >>> cells = DISCOVR.setup_annbatch("cells.zarr", files, condition_key="stim")  # doctest: +SKIP
    """
    if not hasattr(BaseModelClass, "setup_annbatch"):
        raise InputError(
            "The installed scvi-tools reads no annbatch stores; install scvi-tools 1.5 or newer (Python 3.12), "
            'pip install "discovr_sc[annbatch]", or read the file with anndata.read_h5ad(path, backed="r").'
        )
    if not isinstance(condition_key, str):
        raise InputError(
            f"condition_key={condition_key!r}: a store takes one column; join them into one column of obs."
        )
    loading = {"rebuild": paths is not None, "shuffle": True, "preload_to_gpu": torch.cuda.is_available()} | kwargs
    store = BaseModelClass.setup_annbatch.__func__(
        cls,
        str(collection_path),
        None if paths is None else list(map(str, paths)),
        labels_key=condition_key,
        sample_key=cell_type_key,  # the slot of scvi-tools' datamodule that is free
        batch_key=batch_key,
        layer=layer,
        categorical_covariate_keys=categorical_covariate_keys,
        continuous_covariate_keys=continuous_covariate_keys,
        **loading,
    )
    setup: dict[str, Any] = {
        "condition_key": condition_key,
        "unlabeled_category": unlabeled_category,
        "cell_type_key": cell_type_key,
        "batch_key": batch_key,
        "categorical_covariate_keys": categorical_covariate_keys,
        "continuous_covariate_keys": continuous_covariate_keys,
    }
    return CellsOnDisk(cls, store, Path(collection_path), setup)


class CellsOnDisk(lightning.LightningDataModule):
    """Mini-batches for training, and the same cells as AnnDatas, a part at a time, for questions."""

    def __init__(self, model_cls: type[DisentangledModel], store: Any, path: Path, setup: dict[str, Any]):
        super().__init__()
        self.store, self.path = store, path
        self.n_obs = store.n_obs
        self._genes = pd.Index(store.registry["field_registries"]["X"]["state_registry"]["column_names"])
        one_of_each = [setup[name] for name in ("condition_key", "cell_type_key", "batch_key")]
        self._labels = [key for key in [*one_of_each, *(setup["categorical_covariate_keys"] or [])] if key is not None]
        columns = [*self._labels, *(setup["continuous_covariate_keys"] or [])]
        obs = pd.concat([self._as_text(obs)[columns] for _, obs in self._groups()])
        # The registry is what the same cells would have in memory; counts are not looked at.
        cells = AnnData(
            csr_matrix((len(obs), len(self._genes)), dtype=np.float32), obs, pd.DataFrame(index=self._genes)
        )
        model_cls.setup_anndata(cells, **setup)
        self.registry = model_cls.registry_of(cells)
        codes = cells.obs[f"_scvi_{CONDITION_SLOT}"]
        self.condition_counts = np.bincount(codes[codes >= 0], minlength=codes.max() + 1)
        self._codes = {CONDITION_SLOT: self._indices(CONDITION_SLOT, store.label_encoder.classes_)}
        if setup["cell_type_key"] is not None:
            self._codes[CELL_TYPE_SLOT] = self._indices(CELL_TYPE_SLOT, store.sample_encoder.classes_)

    def parts(self, n_cells: int = 10_000) -> Iterator[AnnData]:
        """All cells, so many in memory at a time, in the order of the store."""
        for group, obs in self._groups():
            counts = group["X"] if hasattr(group["X"], "shape") else sparse_dataset(group["X"])
            for start in range(0, len(obs), n_cells):
                cells = slice(start, start + n_cells)
                yield AnnData(counts[cells], self._as_text(obs.iloc[cells]), pd.DataFrame(index=self._genes))

    def prepare(self, module: DisentangledModule, batch_size: int) -> None:
        """Before a training: the conditions' shares of the cells, and a size that scvi-tools would take for its own."""
        module.condition_probs.copy_(torch.as_tensor(self.condition_counts / self.condition_counts.sum()))
        self.set_batch_size(batch_size)

    def set_split(self, *args, **kwargs) -> None:
        """Runs of cells for training and for validation: the store is shuffled when it is written."""
        self.store.set_split(*args, **kwargs)
        self.train_idx, self.val_idx, self.test_idx = self.store.train_idx, self.store.val_idx, self.store.test_idx
        self.n_train, self.n_val = self.store.n_train, self.store.n_val

    def set_batch_size(self, batch_size: int | None) -> None:
        """Cells of a mini-batch."""
        self.store.set_batch_size(batch_size)

    def train_dataloader(self):
        """Mini-batches of training cells, in random order."""
        return self.store.train_dataloader()

    def val_dataloader(self):
        """Mini-batches of validation cells."""
        return self.store.val_dataloader()

    def on_before_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> dict[str, Tensor]:
        """What a module takes, from what annbatch read."""
        tensors = self.store.on_before_batch_transfer(batch, dataloader_idx)
        # scvi-tools divides totals by their mean in the mini-batch; a model's size factor is the total itself.
        del tensors[REGISTRY_KEYS.SIZE_FACTOR_KEY]
        tensors[CELL_TYPE_SLOT] = tensors.pop(REGISTRY_KEYS.SAMPLE_KEY)
        found = {slot: codes[tensors[slot]] for slot, codes in self._codes.items()}
        return {key: value for key, value in tensors.items() if key != CELL_TYPE_SLOT} | found

    def _groups(self) -> Iterator[tuple[Any, pd.DataFrame]]:
        """The groups of the store, each with its ``obs``."""
        import zarr  # comes with annbatch

        store: Any = zarr.open_group(str(self.path), mode="r")
        for key in sorted(store.group_keys()):
            if "obs" in store[key]:
                yield store[key], read_elem(store[key]["obs"])

    def _as_text(self, obs: pd.DataFrame) -> pd.DataFrame:
        """Labels as text, as scvi-tools' datamodule has them; missing ones stay missing."""
        return obs.assign(**{key: obs[key].astype(str).where(obs[key].notna()) for key in self._labels})

    def _indices(self, slot: str, labels: np.ndarray) -> Tensor:
        """For every label its index in the model, -1 where it has none."""
        known = self.registry["field_registries"][slot]["state_registry"]["categorical_mapping"]
        return torch.as_tensor(pd.Index(known).get_indexer(labels))
