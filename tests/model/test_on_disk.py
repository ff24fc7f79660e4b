"""Cells in a Zarr store that annbatch reads."""

from __future__ import annotations

import numpy as np
import pytest
import scvi

from discovr_sc import DISCOVR
from discovr_sc.errors import InputError

QUIET = {"max_epochs": 2, "enable_progress_bar": False}
HAS_STORES = hasattr(scvi.model.base.BaseModelClass, "setup_annbatch")


@pytest.mark.skipif(HAS_STORES, reason="this scvi-tools reads annbatch stores")
def test_an_older_scvi_tools_is_told_what_to_install(tmp_path):
    with pytest.raises(InputError, match="install scvi-tools 1.5"):
        DISCOVR.setup_annbatch(tmp_path, condition_key="condition")


@pytest.fixture
def on_disk(counts, tmp_path):
    if not HAS_STORES:
        pytest.skip("scvi-tools before 1.5 reads no annbatch stores")
    pytest.importorskip("annbatch")
    files = []
    for i, rows in enumerate(np.array_split(np.arange(counts.n_obs), 2)):
        files.append(tmp_path / f"{i}.h5ad")
        counts[rows].copy().write_h5ad(files[-1])

    def setup(**settings):
        loading = {"chunk_size": 8, "preload_nchunks": 4, "batch_size": 32, "shuffle": False}
        return DISCOVR.setup_annbatch(tmp_path / "store.zarr", files, condition_key="condition", **loading, **settings)

    return setup


def test_the_registry_is_that_of_the_same_cells_in_memory(counts, on_disk):
    cells = on_disk(batch_key="lane")
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    expected = DISCOVR.registry_of(counts)["field_registries"]
    for slot in ("labels", "batch"):
        found = cells.registry["field_registries"][slot]["state_registry"]["categorical_mapping"]
        assert list(found) == list(map(str, expected[slot]["state_registry"]["categorical_mapping"]))
    np.testing.assert_array_equal(cells.condition_counts, counts.obs["condition"].value_counts().sort_index())


def test_parts_are_all_the_cells(counts, on_disk):
    parts = list(on_disk(batch_key="lane").parts(n_cells=30))
    assert max(part.n_obs for part in parts) == 30
    names = np.concatenate([part.obs_names for part in parts])
    assert sorted(names) == sorted(counts.obs_names)
    dense = np.concatenate([part.X.toarray() for part in parts])
    np.testing.assert_array_equal(dense, counts[names].X.toarray())
    assert set(parts[0].var_names) == set(counts.var_names)


def test_mini_batches_are_those_of_the_same_cells_in_memory(counts, on_disk):
    cells = on_disk(batch_key="lane")
    cells.set_split(train_size=1.0, validation_size=0.0, shuffle_set_split=False, batch_size=32)
    found = [cells.on_before_batch_transfer(batch, 0) for batch in cells.train_dataloader()]
    assert "size_factor" not in found[0]
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    names = np.concatenate([part.obs_names for part in cells.parts()])
    for slot in ("labels", "batch"):
        expected = counts[names].obs[f"_scvi_{slot}"]
        np.testing.assert_array_equal(np.concatenate([batch[slot] for batch in found]).ravel(), expected)


def test_a_model_of_cells_on_disk_trains_answers_and_is_saved(counts, on_disk, tmp_path):
    cells = on_disk(batch_key="lane", unlabeled_category=str(counts.obs["condition"].unique()[-1]))
    model = DISCOVR(registry=cells.registry, n_latent_z=3)
    assert len(model.conditions) == counts.obs["condition"].nunique() - 1
    model.train(datamodule=cells, batch_size=32, train_size=0.8, **QUIET)
    np.testing.assert_allclose(model.module.condition_probs, cells.condition_counts / cells.condition_counts.sum())
    assert model.condition_keys == ["condition"]
    assert len(model.history_["validation_loss"]) == 2

    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", adata=False)
    for part in cells.parts(n_cells=50):
        z = model.get_latent_representation(part)
        assert z.shape == (part.n_obs, 3)
        np.testing.assert_allclose(loaded.get_latent_representation(part), z, rtol=1e-5)
        assert model.get_normalized_expression(part).shape == part.shape
        target = model.conditions[0]
        assert model.predict_counterfactual(part, target=target).shape == part.shape
        assert set(model.predict_condition(part)) <= set(model.conditions)
    everything = next(cells.parts())
    genes = model.differential_expression(everything, target=target)
    assert len(genes) > 0


def test_cell_types_on_disk_reach_the_module(counts, on_disk):
    cells = on_disk(cell_type_key="lane")
    model = DISCOVR(registry=cells.registry, n_latent_z=3)
    model.train(datamodule=cells, batch_size=32, **QUIET)
    assert model.module.n_cell_types == counts.obs["lane"].nunique()


def test_several_condition_columns_are_refused(on_disk):
    with pytest.raises(InputError, match="join them into one column"):
        DISCOVR.setup_annbatch("store.zarr", condition_key=["condition", "lane"])
