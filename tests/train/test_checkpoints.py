"""A training that was killed goes on to the same weights; callbacks that save checkpoints work."""

from __future__ import annotations

import numpy as np
import pytest
import scvi
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from scvi.train import SaveCheckpoint

from discovr_sc import CSVAE, DISCOVR
from discovr_sc.errors import InputError
from discovr_sc.train import EpochCheckpoint

QUIET = {"enable_progress_bar": False, "batch_size": 32}


def fresh(counts, cls=DISCOVR, seed=0):
    scvi.settings.seed = seed
    adata = counts.copy()
    cls.setup_anndata(adata, "condition", batch_key="lane")
    return cls(adata, n_hidden=8, n_latent_z=3, n_latent_w=3, dropout_rate=0.1)


class Stop(Exception):
    pass


class StopsAt(EpochCheckpoint):
    """Writes every epoch, and dies in the middle of the epoch after the one given."""

    def __init__(self, path, epoch):
        super().__init__(path, every=0)
        self.epoch = epoch

    @property
    def state_key(self):
        return "StopsAt"

    def on_train_batch_end(self, trainer, *args):
        if trainer.current_epoch > self.epoch:
            raise Stop


@pytest.mark.parametrize("cls", [DISCOVR, CSVAE])
@pytest.mark.parametrize("options", [{}, {"balance_conditions": True, "early_stopping": True, "train_size": 0.8}])
def test_a_killed_training_goes_on_to_the_same_bits(cls, options, counts, tmp_path):
    whole = fresh(counts, cls)
    whole.train(5, **QUIET, **options)
    killed = fresh(counts, cls)
    with pytest.raises(Stop):
        killed.train(5, callbacks=[StopsAt(tmp_path / "last.ckpt", 1)], **QUIET, **options)
    resumed = fresh(counts, cls)
    scvi.settings.seed = None  # the split is that of the checkpoint, whatever the seed
    torch.manual_seed(5)
    resumed.train(5, ckpt_path=tmp_path / "last.ckpt", **QUIET, **options)
    for name, value in whole.module.state_dict().items():
        assert torch.equal(resumed.module.state_dict()[name], value), name
    np.testing.assert_array_equal(resumed.train_indices, whole.train_indices)
    assert resumed.history_.keys() == whole.history_.keys()
    for name, frame in whole.history_.items():
        assert list(resumed.history_[name].index) == list(frame.index), name
        np.testing.assert_array_equal(resumed.history_[name].to_numpy(float), frame.to_numpy(float), err_msg=name)


def test_checkpoints_of_lightning_and_scvi_tools(counts, tmp_path):
    """Lightning's may be written at the end of validation, before that of the epoch; scvi-tools' is a model."""
    model = fresh(counts)
    of_lightning = ModelCheckpoint(tmp_path / "lightning", filename="{epoch}", save_top_k=-1)
    model.train(3, callbacks=[of_lightning], enable_checkpointing=True, **QUIET)
    resumed = fresh(counts)
    resumed.train(3, ckpt_path=tmp_path / "lightning" / "epoch=0.ckpt", **QUIET)
    for name, value in model.module.state_dict().items():
        assert torch.equal(resumed.module.state_dict()[name], value), name
    assert list(resumed.history_["train_loss"].index) == [0, 1, 2]
    assert list(resumed.history_["validation_loss"].index) == [0, 1, 2]

    model = fresh(counts)
    best = SaveCheckpoint(tmp_path / "best", monitor="validation_loss", load_best_on_end=True)
    model.train(2, callbacks=[best], **QUIET)
    loaded = DISCOVR.load(best.best_model_path, model.adata)
    np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())


def test_scvi_tools_switch(counts, tmp_path):
    scvi.settings.logging_dir = str(tmp_path)
    model = fresh(counts)
    model.train(2, enable_checkpointing=True, **QUIET)
    assert list(tmp_path.glob("*/*/model.pt"))


def test_what_is_no_checkpoint_of_this_training_is_refused(counts, tmp_path):
    model = fresh(counts)
    model.train(1, callbacks=[EpochCheckpoint(tmp_path / "last.ckpt", every=0)], **QUIET)
    with pytest.raises(FileNotFoundError, match="ckpt_path='nope' is not a file"):
        fresh(counts).train(2, ckpt_path="nope", **QUIET)
    with pytest.raises(InputError, match="is of 120 cells, but the model has 60"):
        fresh(counts[:60]).train(2, ckpt_path=tmp_path / "last.ckpt", **QUIET)
    with pytest.raises(InputError, match="of other settings or data"):
        fresh(counts, CSVAE).train(2, ckpt_path=tmp_path / "last.ckpt", **QUIET)
    in_between = ModelCheckpoint(tmp_path / "steps", every_n_train_steps=1, save_top_k=-1)
    model.train(1, callbacks=[in_between], **QUIET)
    with pytest.raises(InputError, match="in the middle of an epoch"):
        fresh(counts).train(2, ckpt_path=sorted((tmp_path / "steps").iterdir())[0], **QUIET)
    torch.save({"a": 1}, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="not a checkpoint of a training of this package"):
        fresh(counts).train(2, ckpt_path=tmp_path / "other.ckpt", **QUIET)
