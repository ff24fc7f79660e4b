"""What tools may ask of a model: nothing private, and the conditions and cells as they are."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest

import discovr_sc
from discovr_sc import DISCOVR
from discovr_sc.tools import counterfactual, latents, query_data

SOURCE = Path(discovr_sc.__file__).parent


@pytest.mark.parametrize("path", sorted((SOURCE / "tools").glob("*.py")), ids=lambda path: path.stem)
def test_tools_use_nothing_private_of_a_model(path):
    assert not re.findall(r"\b(?:model|extended|model_cls|module|adata)\._[a-z]\w*", path.read_text())


def test_methods_are_the_tools():
    assert len(DISCOVR.__mro__[1].__bases__) <= 6
    assert DISCOVR.get_latent_representation is latents.get_latent_representation
    assert DISCOVR.predict_counterfactual is counterfactual.predict_counterfactual
    assert DISCOVR.load_query_data.__func__ is query_data.load_query_data


def test_conditions_and_training_cells(counts):
    counts.obs["stim"] = counts.obs["condition"].astype(str)
    counts.obs.iloc[:10, counts.obs.columns.get_loc("stim")] = "?"
    DISCOVR.setup_anndata(counts, ["stim", "sex"], unlabeled_category="?")
    model = DISCOVR(counts, n_hidden=8)
    assert not model.is_known()[:10].any() and model.is_known()[10:].all()
    row = model.condition_table.iloc[model.condition_indices()[10]]
    assert row.to_dict() == counts.obs.iloc[10][["stim", "sex"]].to_dict()
    assert model.condition_index(row.name, "target") == model.condition_indices()[10]
    np.testing.assert_array_equal(model.training_cells(), np.arange(120))  # all, as it is not trained
    model.train(max_epochs=1, train_size=0.5, enable_progress_bar=False)
    cells = model.training_cells()
    assert model.has_training_data() and len(cells) == 60
    masks = model.by_condition(cells)
    np.testing.assert_array_equal(sum(masks.values()), model.is_known()[cells])
    assert sum(len(batch["X"]) for batch in model.batches(indices=cells, batch_size=7)) == 60


def test_new_cells_are_taken_without_a_word(counts):
    told = []
    handler = logging.Handler()
    handler.emit = told.append
    logger = logging.getLogger("scvi")
    level = logger.level
    logger.addHandler(handler)
    try:
        logger.setLevel(logging.INFO)
        DISCOVR.setup_anndata(counts, "condition")
        model = DISCOVR(counts, n_hidden=8)
        model.train(max_epochs=1, enable_progress_bar=False)
        told.clear()
        view, new = counts[:20], counts[:20].copy()
        np.testing.assert_array_equal(model.get_latent_representation(view), model.get_latent_representation(new))
        assert told == [] and logger.level == logging.INFO
        logger.setLevel(logging.DEBUG)  # whoever asks for more gets it
        model.get_latent_representation(counts[:20])
        assert any("view" in record.getMessage() for record in told)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
