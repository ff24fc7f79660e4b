"""The study of stimulated blood cells, on few cells and with few epochs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from discovr_sc.data import simulate_counts
from discovr_sc.experiments import STUDIES, Preset, run_study
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.runner import Row, Run, run_row
from discovr_sc.experiments.studies import kang

TINY = Preset(n_train=None, n_eval=None, max_epochs=2, patience=2, batch_size=128)


@pytest.fixture
def cells(monkeypatch) -> AnnData:
    """Simulated cells that look like Kang's."""
    adata = simulate_counts(600, 80, n_types=3, seed=0)
    adata.obs["stim"] = pd.Categorical(
        np.where(adata.obs["condition"] == adata.obs["condition"].iloc[0], "CTRL", "STIM")
    )
    adata.obs["seurat_annotations"] = adata.obs["cell_type"]
    adata.obs["donor"] = pd.Categorical(np.arange(600) % 4)
    adata.var_names = [*kang.PAPER_GENES, *adata.var_names[len(kang.PAPER_GENES) :]]
    monkeypatch.setattr(kang, "load_kang", lambda: adata)
    return adata


def test_test_cells_are_the_same_for_every_seed_and_never_trained_on(cells):
    tasks = [kang.make_kang(TINY, seed, held_out) for seed in (0, 1) for held_out in ("test", "validation")]
    test = set(tasks[0].evaluation.obs_names)
    assert set(tasks[2].evaluation.obs_names) == test
    for task in tasks:
        assert not test & set(task.train.obs_names)
        assert not set(task.evaluation.obs_names) & set(task.train.obs_names)
    for search in (tasks[1], tasks[3]):
        assert not test & set(search.evaluation.obs_names)
    assert set(tasks[1].evaluation.obs_names) != set(tasks[3].evaluation.obs_names)


@pytest.mark.slow
def test_every_method_is_scored_and_drawn(cells, tmp_path):
    study = replace(STUDIES["kang"], presets={"tiny": TINY})
    chosen = ["discovr", "csvae", "scvi", "pca"]
    results = run_study(study, tmp_path, n_seeds=1, methods=chosen, jobs=1)
    table = results.table.pivot(index="method", columns="metric", values="value")
    for metric in kang.HEADLINE[:6]:
        assert table.loc[chosen, metric].notna().all()
    assert table.loc[["discovr", "csvae"], list(kang.HEADLINE)].notna().all(axis=None)
    assert table.loc["pca", "probe_z_condition"] > 0.9  # principal components hide nothing
    write_report(results, "tiny")
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == {"kang_umap_z.png", "kang_umap_w.png", "kang_genes.png"}


def test_the_response_within_types_is_of_training_genes_and_types_alone_tell_nothing_of_it(cells):
    task = kang.make_kang(TINY, 0)
    scores = kang.response_scores(task.train, task.evaluation, n_genes=10)
    groups = task.train.obs["stim"].astype(str) + task.train.obs["cell_type"].astype(str)
    np.testing.assert_allclose(pd.Series(scores["train"]).groupby(groups.to_numpy()).mean(), 0, atol=1e-9)
    # What evaluation cells express cannot choose the genes: training cells keep their scores' order without them.
    other = task.evaluation.copy()
    other.obs["stim"] = other.obs["stim"].to_numpy()[::-1]
    np.testing.assert_allclose(kang.response_scores(task.train, other, n_genes=10)["train"], scores["train"])
    run = Run("x", None, task.train, task.evaluation, TINY, 0)
    types = {name: kang.TypeMeans(task.train).get_latent_representation(c) for name, c in kang.parts_of(run).items()}
    assert kang.response_r2_within_types(run, types) < 0.05
    all_scores = kang.response_scores(task.train, task.evaluation)
    told = {name: score[:, None] for name, score in all_scores.items()}
    assert kang.response_r2_within_types(run, told) > 0.8


def test_types_alone_are_the_floor_of_the_probe_and_average_over_conditions(cells):
    study = replace(STUDIES["kang"], presets={"tiny": TINY})
    values, sketch = run_row(study, Row("", "tiny", "types", 0))
    assert values["response_r2_within_types"] < 0.05
    assert values["probe_z_type_13"] == values["nmi_z_type_13"] == 1
    assert values["probe_z_condition"] < 0.6
    assert not sketch
    task = kang.make_kang(TINY, 0)
    means = kang.TypeMeans(task.train)
    some = task.evaluation[:5]
    same_type = (task.train.obs["cell_type"] == some.obs["cell_type"].iloc[0]).to_numpy()
    fractions = task.train.X.toarray() / task.train.X.toarray().sum(1, keepdims=True)
    np.testing.assert_allclose(means.get_reconstruction(some, "marginal")[0], fractions[same_type].mean(0), rtol=1e-5)
    same = same_type & (task.train.obs["stim"] == some.obs["stim"].iloc[0]).to_numpy()
    np.testing.assert_allclose(means.get_reconstruction(some, "full")[0], fractions[same].mean(0), rtol=1e-5)


def test_a_fetched_file_without_fine_types_and_donors_is_enough(cells, tmp_path):
    cells.obs = cells.obs.drop(columns=["seurat_annotations", "donor"])
    results = run_study(replace(STUDIES["kang"], presets={"tiny": TINY}), tmp_path, n_seeds=1, methods=["pca"], jobs=1)
    scored = set(results.table["metric"])
    assert {"probe_z_type_8", "nmi_z_type_8"} <= scored
    assert not any(metric.endswith("_13") for metric in scored)
    write_report(results, "tiny")
    assert (tmp_path / "kang_umap_z.png").exists()


@pytest.mark.slow
def test_ablations_draw_the_trade_off(cells, tmp_path):
    study = replace(STUDIES["kang-ablations"], presets={"tiny": TINY})
    results = run_study(study, tmp_path, n_seeds=1, variants=["adv=0", "adv=300", "without=nothing"], jobs=1)
    text = write_report(results, "tiny")
    assert "| without=nothing | 1 |" in text  # one table, a line for each variant
    assert text.count("| variant |") == 1
    assert (tmp_path / "kang_ablations_trade_off.png").exists()


def test_ablations_change_the_plan(cells, monkeypatch):
    seen = {}
    monkeypatch.setattr("discovr_sc.DISCOVR.train", lambda self, **kwargs: seen.update(kwargs) or 1 / 0)
    study = replace(STUDIES["kang-ablations"], presets={"tiny": TINY})
    with pytest.raises(ZeroDivisionError):
        run_row(study, Row("without=decay", "tiny", "discovr", 0))
    assert seen["plan_kwargs"] == {"final_decay": 0.0}
    assert seen["early_stopping"] is False


class KnownGenes:
    """A model whose reconstructions are given."""

    def __init__(self, full, marginal):
        self.rho = {"full": full, "marginal": marginal}
        self.module = type("Module", (), {"has_z_likelihood": False})

    def get_reconstruction(self, cells, kind):
        return self.rho[kind][cells.obs["row"]]

    def posterior_predictive_sample(self, cells, kind):
        counts = sparse.csr_matrix(np.round(1e4 * self.rho[kind][cells.obs["row"]]))
        return type("Array", (), {"to_scipy_sparse": lambda self: counts})()


def test_gene_metrics_equal_hand_computed_ones():
    rng = np.random.default_rng(0)
    full = rng.gamma(2.0, 1e-3, size=(100, 60))
    marginal = full.copy()
    marginal[:, :50] = full[:, :50].mean(0)  # these lose all their variance without w
    names = [f"g{i}" for i in range(60)]
    names[3], names[55] = "ISG15", "FTL"
    cells = AnnData(sparse.csr_matrix(np.round(1e4 * full)), var=pd.DataFrame(index=names))
    cells.obs["row"] = np.arange(100)
    run = Run("discovr", KnownGenes(full, marginal), cells[:70].copy(), cells[70:].copy(), TINY, 0)
    moments = kang.gene_moments(run)
    np.testing.assert_allclose(moments["log_var_full"], np.log1p(1e4 * full).var(0))
    np.testing.assert_allclose(moments["var_data"], np.round(1e4 * full).var(0))
    values = kang.gene_metrics(run)
    assert values["genes_in_top50"] == 1.0  # ISG15 is among the 50, FTL is not
    assert values["gene_mean_r"] == pytest.approx(1) and values["gene_var_r"] == pytest.approx(1)
