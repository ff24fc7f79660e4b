"""The studies of unequal composition and of real sets, on few cells and with few epochs."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scvi

from discovr_sc import DISCOVR, metrics
from discovr_sc.data import simulate_counts
from discovr_sc.experiments import STUDIES, Preset, run_study
from discovr_sc.experiments.studies import composition, real_sets, references

TINY = Preset(n_train=200, n_eval=150, max_epochs=2, patience=2, batch_size=64)
#: The methods that are trained by default for as long as their cells need.
SHORT = {"max_epochs": 2, "early_stopping": False}


def shortened(study):
    methods = {
        name: method if method.fit is not None else replace(method, train=SHORT)
        for name, method in study.methods.items()
    }
    return replace(study, presets={"tiny": TINY}, methods=methods)


def test_simulated_cells_have_the_shares_that_the_study_tells():
    task = composition.make_simulated(replace(TINY, n_train=None, n_eval=None), 0)
    counts = pd.crosstab(task.train.obs["cell_type"], task.train.obs["condition"])
    assert counts.loc["type_5"].min() == 0
    assert counts.loc["type_0"].max() > 5 * counts.loc["type_0"].min()
    assert not set(task.train.obs_names) & set(task.evaluation.obs_names)
    assert task.evaluation.n_obs == pytest.approx(0.3 * 5000, abs=10)


def test_kept_cells_are_rare_or_missing_where_they_should_be():
    types = [*composition.MONOCYTES, *composition.T_CELLS, "B cells", "NK cells"]
    obs = pd.DataFrame({"cell_type": np.tile(types, 2000), "stim": np.repeat(["CTRL", "STIM"], 6000)})
    kept = obs.assign(kept=composition.kept_cells(obs, 0.15, True, 0)).groupby(["cell_type", "stim"])["kept"].mean()
    for name in composition.MONOCYTES:
        assert kept[name, "CTRL"] == 1 and kept[name, "STIM"] == pytest.approx(0.15, abs=0.05)
    for name in composition.T_CELLS:
        assert kept[name, "STIM"] == 1 and kept[name, "CTRL"] == pytest.approx(0.15, abs=0.05)
    assert kept["B cells"].tolist() == [1, 0] and kept["NK cells"].tolist() == [0, 1]
    assert composition.kept_cells(obs, 1.0, False, 0).all()


def test_a_group_of_one_cell_is_split_too():
    obs = pd.DataFrame({"condition": ["a"] * 10 + ["b"] * 10, "cell_type": ["T"] * 19 + ["rare"]})
    train, evaluation = composition.split(np.arange(20), obs, 0)
    assert sorted([*train, *evaluation]) == list(range(20))


@pytest.mark.slow
def test_every_method_is_scored(tmp_path):
    pytest.importorskip("harmonypy")
    chosen = ["discovr", "discovr-types", "scvi", "scanvi", "harmony", "pca"]
    results = run_study(
        shortened(composition.COMPOSITION), tmp_path, n_seeds=1, methods=chosen, variants=["simulated"], jobs=1
    )
    table = results.table.pivot(index="method", columns="metric", values="value")
    of_all = ["type_knn", "transfer_forward", "transfer_back", "leak_within_types", "floor", "probe_z_condition"]
    assert table.loc[chosen, of_all].notna().all(axis=None)
    assert table.loc[["discovr", "discovr-types"], "probe_w_condition_hidden"].notna().all()
    assert table.loc["pca", "leak_within_types"] > 0.8  # principal components hide nothing
    assert table["floor"].nunique() == 1


@pytest.mark.slow
def test_a_set_with_knock_outs_and_batches_is_scored(tmp_path, monkeypatch):
    adata = simulate_counts(700, 40, n_types=1, n_conditions=3, n_effect_genes=20, effect_size=2.0, seed=0)
    adata.obs["target"] = adata.obs["condition"].astype(str).replace("control", real_sets.CONTROL)
    adata.obs["bio_rep"] = np.tile(["1", "2"], 350)
    sets = real_sets.SETS | {"papalexi": (lambda: adata.copy(), real_sets.SETS["papalexi"][1])}
    monkeypatch.setattr(real_sets, "SETS", sets)
    results = run_study(
        shortened(STUDIES["real-sets"]), tmp_path, n_seeds=1, methods=["discovr", "pca"], variants=["papalexi"], jobs=1
    )
    table = results.table.pivot(index="method", columns="metric", values="value")
    assert table.loc["pca", "targets_told_z"] == 2
    assert table.loc["discovr", ["targets_told_w", "leak_within_types", "probe_w_condition_hidden"]].notna().all()


def test_harmony_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "harmonypy", None)
    task = composition.make_simulated(TINY, 0)
    with pytest.raises(ImportError, match=r"Harmony needs harmonypy: pip install .*\[references\]"):
        references.fit_harmony(task, TINY, 0)


# What it comes to -----------------------------------------------------------------------------------------------------


def scores(task, **setup):
    """Metrics of z of a training on the task's cells, on its evaluation cells."""
    scvi.settings.seed = 0
    cells = task.train.copy()
    DISCOVR.setup_anndata(cells, "condition", **setup)
    model = DISCOVR(cells, n_hidden=64, n_hidden_adversary=64)
    model.train(100, batch_size=128, enable_progress_bar=False)
    parts = (cells, task.evaluation.copy())
    z = np.concatenate([model.get_latent_representation(part) for part in parts])
    conditions, types = (
        np.concatenate([part.obs[key].astype(str) for part in parts]) for key in ("condition", "cell_type")
    )
    train = np.arange(len(z)) < cells.n_obs
    found = composition.type_metrics(z, conditions, types, train)
    found["leak"] = metrics.leak_within_types(z, conditions, types, train=train).mean
    found["apart"] = metrics.type_recalls(z, types, train=train)["type_5"]
    print({name: round(value, 3) for name, value in found.items()})
    return found


@pytest.mark.long
def test_unequal_composition_costs_neither_types_nor_the_condition():
    """Six types, of which composition alone tells the condition at 0.72; one condition lacks the last."""
    task = composition.make_simulated(replace(TINY, n_train=1500, n_eval=1500), 0)
    without, told = scores(task), scores(task, cell_type_key="cell_type")
    assert without["floor"] > 0.65
    assert without["type_knn"] > 0.75 and without["leak"] < 0.66
    assert min(without["transfer_forward"], without["transfer_back"]) > 0.75
    assert told["type_knn"] > 0.95 and told["leak"] < 0.62 and told["apart"] > 0.9
    assert min(told["transfer_forward"], told["transfer_back"]) > 0.95
