"""Balanced sampling: equal shares of an epoch for conditions of unequal sizes."""

from __future__ import annotations

import numpy as np
import pytest
import scvi
import torch

from discovr_sc import DISCOVR, data
from discovr_sc.train import Splitter
from discovr_sc.train.splitter import balanced_weights


@pytest.fixture
def unequal():
    adata = data.simulate_counts(
        1000, 10, n_types=2, n_conditions=3, condition_sizes=[0.8, 0.15, 0.05], n_effect_genes=3
    )
    DISCOVR.setup_anndata(adata, "condition")
    return DISCOVR(adata, n_hidden=8)


def test_weights_give_every_condition_the_same_sum():
    codes = np.array([0] * 90 + [2] * 10 + [-1] * 7)  # no cell of condition 1
    weights = balanced_weights(codes)
    assert weights[codes == 0].sum() == pytest.approx(50)
    assert weights[codes == 2].sum() == pytest.approx(50)
    assert (weights[codes == -1] == 1).all()


def test_an_epoch_has_as_many_cells_of_each_condition(unequal):
    splitter = Splitter(unequal.adata_manager, train_size=0.9, batch_size=64, balance_conditions=True)
    splitter.setup()
    loader = splitter.train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader) == 15
    assert isinstance(batches[0]["X"], torch.Tensor)
    assert batches[0]["X"].shape == (64, 10)
    codes = np.concatenate([batch["labels"].ravel() for batch in batches])
    assert len(codes) == 900
    np.testing.assert_allclose(np.bincount(codes) / 900, 1 / 3, atol=0.07)  # 4 standard deviations
    plain = Splitter(unequal.adata_manager, train_size=0.9, batch_size=64)
    plain.setup()
    codes = np.concatenate([batch["labels"].ravel() for batch in plain.train_dataloader()])
    np.testing.assert_allclose(np.bincount(codes) / 900, [0.8, 0.15, 0.05], atol=0.03)


def test_training_with_balance_is_reproducible_and_keeps_the_shares(unequal):
    latents = []
    for _ in range(2):
        scvi.settings.seed = 0
        model = DISCOVR(unequal.adata, n_hidden=8)
        model.train(2, balance_conditions=True, enable_progress_bar=False)
        latents.append(model.get_latent_representation(kind="zw"))
    np.testing.assert_array_equal(*latents)
    np.testing.assert_allclose(model.module.condition_probs, [0.8, 0.15, 0.05], atol=1e-6)
    assert model.train_indices.max() < 1000
    scvi.settings.seed = 0
    plain = DISCOVR(unequal.adata, n_hidden=8)
    plain.train(2, enable_progress_bar=False)
    assert np.abs(plain.get_latent_representation(kind="zw") - latents[0]).max() > 1e-3


def test_several_devices_raise(unequal):
    with pytest.raises(ValueError, match="balance_conditions=True draws cells for one device"):
        Splitter(unequal.adata_manager, balance_conditions=True, distributed_sampler=True)
