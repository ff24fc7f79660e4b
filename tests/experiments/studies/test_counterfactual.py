"""Leave one type out, on simulated cells in the place of Kang's."""

from __future__ import annotations

import numpy as np
import pytest

from discovr_sc import data
from discovr_sc.experiments import STUDIES, run_study
from discovr_sc.experiments.engine.study import Preset
from discovr_sc.experiments.studies import counterfactual


@pytest.fixture
def cells():
    adata = data.simulate_counts(n_cells=600, n_genes=120, n_types=8, type_specific=0.0, seed=1)
    adata.obs["stim"] = adata.obs["condition"].cat.rename_categories({"control": "CTRL", "treated_1": "STIM"})
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories(list(counterfactual.HELD_OUT))
    del adata.obs["batch"]
    adata.obs["condition"], adata.obs["group"] = adata.obs["stim"].astype(str), adata.obs["cell_type"].astype(str)
    return adata


def test_the_target_cells_of_one_type_are_left_out(cells):
    task = counterfactual.leave_out(cells, "B cells", None, 0)
    left_out = (cells.obs["cell_type"] == "B cells") & (cells.obs["stim"] == "STIM")
    assert set(task.train.obs_names) == set(cells.obs_names[~left_out])
    assert set(task.evaluation.obs["cell_type"]) == {"B cells"}
    assert counterfactual.leave_out(cells, "B cells", 50, 0).train.n_obs == 50
    with pytest.raises(ValueError, match="held_out='Neurons' is not in"):
        counterfactual.leave_out(cells, "Neurons", None, 0)


def test_scores_of_perfect_and_of_no_prediction(cells):
    task = counterfactual.leave_out(cells, "NK cells", None, 0)
    x = data.log_counts(task.evaluation.X)
    is_target = (task.evaluation.obs["stim"] == "STIM").to_numpy()
    perfect = counterfactual.score(x[is_target], x[is_target], x[~is_target])
    nothing = counterfactual.score(x[~is_target], x[is_target], x[~is_target])
    assert perfect["r2_all"] == pytest.approx(1.0)
    assert perfect["determination_top100"] == pytest.approx(1.0)
    assert nothing["r2_top100"] < 0.95
    assert perfect["pcc_delta_all"] == pytest.approx(1.0) and nothing["pcc_delta_all"] == 0
    assert perfect["deg_overlap"] == 1 and nothing["mse_all"] > perfect["mse_all"] == 0
    assert perfect["energy_distance"] < nothing["energy_distance"]
    effect = np.flatnonzero(cells.var["is_effect"])
    assert np.isin(counterfactual.differential_genes(x[is_target], x[~is_target], 10), effect).all()


def test_the_study_runs_all_methods(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(counterfactual, "load_kang", lambda: cells)
    monkeypatch.setattr(counterfactual, "N_PREDICTED", 100)
    study = STUDIES["counterfactual"]
    monkeypatch.setitem(
        study.presets, "tiny", Preset(n_train=None, n_eval=None, max_epochs=2, patience=5, batch_size=128)
    )
    results = run_study(study, tmp_path, preset="tiny", n_seeds=1, variants=["heldout=B cells"], jobs=1)
    table = results.table.pivot(index="method", columns="metric", values="value")
    assert set(table.index) == set(study.methods)
    assert np.isfinite(table[list(study.headline)].to_numpy()).all()
    # effects are the same in all types here, so that the mean shift is the truth
    assert table.loc["shift", "r2_all"] > 0.95
    for reference in ("shift", "nearest-shift", "neighbor-shift", "half"):
        assert table.loc[reference, "pcc_delta_top100"] > 0.8
        assert table.loc[reference, "energy_distance"] < table.loc["no-change", "energy_distance"]
    assert table.loc["no-change", "pcc_delta_all"] == 0


@pytest.mark.parametrize("name", ["counterfactual-5000", "counterfactual-glioblastoma"])
def test_the_other_studies_leave_out_what_they_say(cells, name, monkeypatch):
    study = STUDIES[name]
    patients = cells.copy()
    patients.obs["patient_id"] = np.resize(list(counterfactual.PATIENTS), cells.n_obs)
    patients.obs["condition"] = patients.obs["stim"].map({"CTRL": "ctrl", "STIM": "panobinostat"}).astype(str)
    monkeypatch.setattr(counterfactual.data, "glioblastoma", lambda: patients)
    monkeypatch.setattr(counterfactual, "kang_5000", lambda: cells)
    variant = next(iter(study.variants))
    task = study.make_task(study.presets["full"], 0, **study.variants[variant].data)
    left_out = variant.removeprefix("heldout=")
    seen = task.train.obs.groupby(["group", "condition"]).size()
    assert seen.get((left_out, "STIM"), 0) == 0 and seen[left_out, "CTRL"] > 0
    assert set(task.evaluation.obs["group"]) == {left_out}
    assert ("batch_key" in task.setup) == (name == "counterfactual-glioblastoma")
