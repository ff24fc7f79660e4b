"""scvi-tools' search of hyperparameters, where Ray is installed."""

from __future__ import annotations

import numpy as np
import pytest

from discovr_sc import DISCOVR

for package in ("ray", "hyperopt", "scib_metrics"):
    pytest.importorskip(package, reason=f"scvi.autotune needs {package} (pip install 'scvi-tools[autotune]')")


@pytest.mark.slow
def test_autotune_finds_a_setting(counts, tmp_path):
    from ray import shutdown, tune
    from scvi.autotune import run_autotune

    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    space = {
        "model_params": {"n_hidden": tune.choice([4, 8])},
        "train_params": {"max_epochs": 2, "plan_kwargs": {"lr": tune.loguniform(1e-4, 1e-2)}},
    }
    try:
        experiment = run_autotune(
            DISCOVR,
            counts,
            metrics=["elbo_validation"],
            mode="min",
            search_space=space,
            num_samples=2,
            searcher="random",
            scheduler="fifo",
            seed=0,
            resources={"cpu": 1},
            logging_dir=str(tmp_path),
        )
    finally:
        shutdown()
    results = experiment.result_grid
    assert results.num_errors == 0
    losses = [result.metrics["elbo_validation"] for result in results]
    assert len(losses) == 2
    assert np.isfinite(losses).all()
    assert results.get_best_result("elbo_validation", "min").metrics["elbo_validation"] == min(losses)
