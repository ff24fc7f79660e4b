"""Stopping a training by hand."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from lightning.pytorch.callbacks import Callback

from discovr_sc import DISCOVR


class PressCtrlC(Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt


def test_ctrl_c_leaves_a_usable_model(counts, tmp_path):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=2, prior="condition-mean", n_hidden=8)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.warns(UserWarning, match="interrupted in epoch 2"):
        model.train(max_epochs=100, enable_progress_bar=False, callbacks=[PressCtrlC()])
    assert signal.getsignal(signal.SIGINT) is handler
    assert model.is_trained
    assert len(model.history_["train_loss"]) == 1
    z = model.get_latent_representation()
    assert np.isfinite(z).all()
    codes = counts.obs["condition"].cat.codes.to_numpy()[model.train_indices]
    means = np.stack([z[model.train_indices][codes == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(model.module.condition_means.means.numpy(), means, rtol=1e-4, atol=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(DISCOVR.load(tmp_path / "model", counts).get_latent_representation(), z)


def test_a_real_exit_is_not_swallowed(counts):
    class Exit(Callback):
        def on_train_batch_end(self, *args):
            raise SystemExit(3)

    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    with pytest.raises(SystemExit):
        model.train(max_epochs=1, enable_progress_bar=False, callbacks=[Exit()])
    assert not model.is_trained


def test_training_on_all_cells_works_but_early_stopping_needs_validation_cells(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=2, train_size=1.0, enable_progress_bar=False)
    assert len(model.train_indices) == 120
    assert len(model.history_["train_loss"]) == 2
    assert "validation_loss" not in model.history_
    with pytest.raises(ValueError, match="'loss_without_adversary_validation', but there are no validation cells"):
        model.train(max_epochs=2, train_size=1.0, early_stopping=True)
