"""Pictures of trainings, effects and counterfactuals: what is drawn is what was given; wrong arguments raise."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest

from discovr_sc import DISCOVR, data, pl

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def model():
    adata = data.simulate_counts(n_cells=200, n_genes=40, n_types=2, n_effect_genes=10, seed=1)
    DISCOVR.setup_anndata(adata, condition_key="condition")
    model = DISCOVR(adata, n_hidden=8)
    model.train(max_epochs=3, train_size=0.7, enable_progress_bar=False)
    return model


def is_picture(path):
    return path.stat().st_size > 5_000


def test_history_shows_the_loss_and_the_adversary(model, tmp_path):
    ax = pl.history(model, save=tmp_path / "h.png")
    train, validation = ax.lines
    np.testing.assert_allclose(train.get_ydata(), model.history_["train_loss"].to_numpy(float).ravel())
    assert len(validation.get_ydata()) == 3
    assert is_picture(tmp_path / "h.png")
    twin = next(other for other in ax.figure.axes if other is not ax)
    assert twin.get_ylabel() == "accuracy of the adversary"
    assert pl.history(model, term="kl_z", show=False).get_ylabel() == "kl_z (nats per cell)"
    with pytest.raises(ValueError, match=r"term='joy' is not in .*'rec'"):
        pl.history(model, term="joy")
    with pytest.raises(ValueError, match="no history; train it first"):
        pl.history(DISCOVR(model.adata, n_hidden=4))


def test_disentanglement_shows_the_report(model, tmp_path):
    report = model.disentanglement_report("cell_type", probes=["linear", "knn"])
    ax = pl.disentanglement(report, save=tmp_path / "d.png")
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "condition from z",
        "condition from w",
        "cell_type from z",
        "cell_type from w",
    ]
    held_out = report[(report["split"] == "held-out") & (report["metric"] == "probe_knn")]
    drawn = {round(float(x), 6) for line in ax.lines for x in np.ravel(line.get_xdata())}
    assert {round(value, 6) for value in held_out["value"]} <= drawn
    assert is_picture(tmp_path / "d.png")
    assert "training cells" in pl.disentanglement(report, split="train", probes=["knn"], show=False).get_xlabel()
    with pytest.raises(ValueError, match="split='test' is not in the report"):
        pl.disentanglement(report, split="test")
    with pytest.raises(ValueError, match="the report has no 'mlp'"):
        pl.disentanglement(report, probes=["mlp"])


def test_gene_variance_shows_every_gene(model, tmp_path):
    effect = model.get_condition_effect(n_samples=2)
    ax = pl.gene_variance(effect, n_labels=3, save=tmp_path / "g.png")
    assert [len(cloud.get_offsets()) for cloud in ax.collections] == [40, 40, 40]
    np.testing.assert_allclose(ax.collections[1].get_offsets()[:, 1], effect.var["variance_full"], rtol=1e-6)
    names = {text.get_text() for text in ax.texts}
    assert names == set(effect.var["variance_restored"].nlargest(3).index)
    assert is_picture(tmp_path / "g.png")
    with pytest.raises(KeyError, match="no column 'variance_restored'"):
        pl.gene_variance(effect.var[["lfc"]])


def test_condition_effect_of_a_test_over_replicates():
    table = pd.DataFrame(
        {
            "group": "B cells",
            "gene": ["a", "b", "c"],
            "lfc": [9.0, 9.0, 9.0],
            "lfc_replicates": [2.0, -1.0, np.nan],
            "proba_de": [0.0, 0.0, 1.0],
            "p_value": [1e-4, 0.0, np.nan],
            "is_de": [True, True, False],
        }
    )
    ax = pl.condition_effect(table, show=False)
    points = np.concatenate([part.get_offsets() for part in ax.collections])
    np.testing.assert_allclose(sorted(points.tolist()), [[-1.0, 300.0], [2.0, 4.0]])
    assert ax.get_ylabel() == "-log10 p over replicates" and ax.get_title() == "B cells: 2 of 2 genes"


def test_condition_effect_is_a_volcano_of_one_group(model, tmp_path):
    table = model.differential_expression(groupby="cell_type", n_samples=50)
    ax = pl.condition_effect(table, group="type_1", save=tmp_path / "v.png")
    assert sum(len(cloud.get_offsets()) for cloud in ax.collections) == 40
    assert ax.get_title().startswith("type_1: ")
    assert is_picture(tmp_path / "v.png")
    with pytest.raises(ValueError, match="the table has 2 groups"):
        pl.condition_effect(table)
    with pytest.raises(ValueError, match="group='x' is not in the table"):
        pl.condition_effect(table, group="x")


def test_the_tree_joins_what_is_near(tmp_path):
    table = pd.DataFrame(
        {
            "group": ["x", "x", "x", "y"],
            "first": ["a", "a", "b", "a"],
            "second": ["b", "c", "c", "b"],
            "distance": [1.0, 4.0, 6.0, 3.0],
        }
    )
    ax = pl.condition_tree(table, save=tmp_path / "t.png")
    joined = sorted({round(float(x), 6) for path in ax.collections[0].get_paths() for x in path.vertices[:, 0]})
    assert joined == [0.0, 2.0, 5.0]  # a and b over both groups, then c at the mean of 4 and 6
    assert is_picture(tmp_path / "t.png")
    with pytest.raises(ValueError, match="group='z' is not in the table"):
        pl.condition_tree(table, group="z")
    with pytest.raises(ValueError, match="have no group in common"):
        pl.condition_tree(table.drop(index=2))


@pytest.fixture
def two_types():
    """A test over replicates of three genes in two types; one gene of the second type is not tested."""
    return pd.DataFrame(
        {
            "group": ["B: naive"] * 3 + ["NK"] * 3,
            "gene": ["a", "b", "c"] * 2,
            "lfc": 0.0,
            "lfc_replicates": [3.0, -1.0, 0.1, 2.0, np.nan, 0.0],
            "scale_target": 4e-4,
            "scale_reference": 2e-4,
            "p_value": [1e-6, 1e-3, 0.5, 1e-2, np.nan, 0.9],
            "is_de": [True, True, False, True, False, False],
        }
    )


def test_volcanoes_have_the_same_axes_and_a_panel_for_each_group(two_types, tmp_path):
    first, second = pl.volcanoes(two_types, n_labels=1, save=tmp_path / "v.png")
    assert first.get_title() == "B: naive\n2 of 3 genes called" and second.get_title() == "NK\n1 of 2 genes called"
    assert first.get_xlim() == second.get_xlim() and first.get_ylim() == second.get_ylim()
    assert (first.get_ylabel(), second.get_ylabel()) == ("-log10 p over replicates", "")
    assert [text.get_text() for text in (*first.texts, *second.texts)] == ["a", "a"]
    assert is_picture(tmp_path / "v.png")
    alone = pl.volcanoes(two_types, groups="NK", n_columns=1, show=False)
    assert len(alone) == len(alone[0].figure.axes) == 1
    with pytest.raises(ValueError, match="groups: 'T' is not in the table"):
        pl.volcanoes(two_types, groups=["T"])
    with pytest.raises(ValueError, match="ax has 1 Axes, but 2 groups need 2"):
        pl.volcanoes(two_types, ax=alone)


def test_ma_has_the_mean_of_both_conditions(two_types):
    ax = pl.ma(two_types, group="B: naive", show=False)
    points = np.concatenate([part.get_offsets() for part in ax.collections])
    np.testing.assert_allclose(sorted(points.tolist()), [[3.0, -1.0], [3.0, 0.1], [3.0, 3.0]])
    assert ax.get_xscale() == "log" and {text.get_text() for text in ax.texts} == {"a", "b"}
    with pytest.raises(ValueError, match="the table has 2 groups"):
        pl.ma(two_types)
