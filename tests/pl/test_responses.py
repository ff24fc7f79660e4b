"""Pictures of genes by cell type: numbers of the table in their places."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from discovr_sc import pl

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def table(counts):
    genes = list(counts.var_names[:3])
    return pd.DataFrame(
        {
            "group": ["type_0"] * 3 + ["type_1"] * 3 + ["type_2"] * 3,
            "gene": genes * 3,
            "target": "treated_1",
            "reference": "control",
            "lfc": [-2.0, 3.0, 0.1, -1.0, 1.0, 0.2, 0.0, 0.0, 0.0],
            "proba_de": 0.9,
            "is_de": [True, True, False, True, False, False, False, False, False],
        }
    )


def test_the_heatmap_has_the_fold_changes_of_called_genes(table, counts, tmp_path):
    ax = pl.response_heatmap(table, save=tmp_path / "h.png")
    first, second = counts.var_names[:2]
    assert [label.get_text() for label in ax.get_xticklabels()] == [second, first]  # those that rise come first
    mesh, *marks = ax.collections
    np.testing.assert_allclose(mesh.get_array().reshape(3, 2), [[3.0, -2.0], [1.0, -1.0], [0.0, 0.0]])
    assert mesh.get_clim() == (-3.0, 3.0) and mesh.get_cmap().name == "RdBu_r"
    marked = np.concatenate([part.get_offsets() for part in marks])
    np.testing.assert_allclose(marked, [[0.5, 0.5], [1.5, 0.5], [1.5, 1.5]])
    assert (tmp_path / "h.png").stat().st_size > 5_000
    one = pl.response_heatmap(table, groups="type_1", n_genes=1, show=False)
    assert [label.get_text() for label in one.get_xticklabels()] == [first]
    with pytest.raises(ValueError, match=r"no gene is called in \['type_2'\]"):
        pl.response_heatmap(table, groups="type_2")


def test_genes_that_were_not_tested_are_left_blank(table):
    tested = table.assign(lfc_replicates=table["lfc"], p_value=[0.01] * 8 + [np.nan])
    tested.loc[3, ["lfc_replicates", "p_value", "is_de"]] = [np.nan, np.nan, False]
    mesh = pl.response_heatmap(tested, show=False).collections[0]
    assert np.ma.getmaskarray(np.ma.masked_invalid(mesh.get_array())).sum() == 1


def test_the_dotplot_has_measured_expression_by_type_and_condition(table, counts):
    ax = pl.response_dotplot(table, counts, "condition", "cell_type", groups=["type_1", "type_0"], show=False)
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == ["type_1, control", "type_1, treated_1", "type_0, control", "type_0, treated_1"]
    gene = [label.get_text() for label in ax.get_xticklabels()].index(counts.var_names[0])
    shares = [
        (counts[(counts.obs["cell_type"] == t) & (counts.obs["condition"] == c), counts.var_names[0]].X > 0).mean()
        for t, c in (row.split(", ") for row in rows)
    ]
    x = ax.collections[0].get_offsets()[:, 0]
    sizes = ax.collections[0].get_sizes()[np.isclose(x, gene + 0.5)]
    assert list(np.argsort(sizes)) == list(np.argsort(shares)) and len(sizes) == 4
    with pytest.raises(KeyError, match="gene .* is not in adata.var_names"):
        pl.response_dotplot(table, counts[:, 5:], "condition", "cell_type")
    with pytest.raises(ValueError, match="no cell of adata has one of .* in 'condition'"):
        pl.response_dotplot(table, counts, "cell_type", "condition")
    with pytest.raises(KeyError, match="cell_type_key 'kind' is not a column"):
        pl.response_dotplot(table, counts, "condition", "kind")


def test_an_upset_plot_counts_each_gene_once(table, tmp_path):
    bars, sets = pl.upset(table, save=tmp_path / "u.svg")
    assert [label.get_text() for label in sets.get_yticklabels()] == ["type_0 (2)", "type_1 (1)"]
    assert [bar.get_height() for bar in bars.patches] == [1, 1]  # of type_0 alone, then of both
    assert [line.get_ydata().tolist() for line in sets.lines] == [[0, 0], [0, 1]]
    assert (tmp_path / "u.svg").read_text().startswith("<?xml")
    bars, _ = pl.upset(table, direction="up", show=False)
    assert len(bars.patches) == 1 and bars.get_ylabel() == "genes that are higher"
    assert len(pl.upset(table, n_sets=1, show=False)[0].patches) == 1
    figure, axes = plt.subplots(1, 2)
    assert pl.upset(table, ax=axes[1], show=False)[0].figure is figure
    assert len(figure.axes) == 3
    with pytest.raises(ValueError, match="direction='left' is not known"):
        pl.upset(table, direction="left")
    with pytest.raises(ValueError, match="no gene is called in these groups"):
        pl.upset(table, groups="type_2")
    with pytest.raises(ValueError, match="not one of a grid of subplots"):
        pl.upset(table, ax=plt.figure().add_axes((0, 0, 1, 1)))
