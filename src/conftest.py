"""What the examples in docstrings share: `model`, trained on `adata`, and `pl`."""

import logging

import pytest


@pytest.fixture(scope="session", autouse=True)
def _trained_model(doctest_namespace):
    import scvi

    from discovr_sc import DISCOVR, data, pl

    logging.getLogger("scvi").setLevel(logging.ERROR)
    scvi.settings.seed = 0
    adata = data.simulate_counts(n_cells=200, n_genes=50)
    DISCOVR.setup_anndata(adata, condition_key="condition")
    model = DISCOVR(adata)
    model.train(max_epochs=1, train_size=0.8, enable_progress_bar=False)
    doctest_namespace |= {"adata": adata, "model": model, "pl": pl}
