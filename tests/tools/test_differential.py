"""Differential expression: the simulated genes, the simulated size, bounded blocks; wrong arguments raise."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scvi

from discovr_sc import DISCOVR, data
from discovr_sc._scvi import expected_fdr_calls
from discovr_sc.tools import differential
from discovr_sc.tools.counterfactual import decode, way_to


@pytest.fixture(scope="module")
def cells():
    return data.simulate_counts(
        n_cells=1000, n_genes=300, n_types=2, n_effect_genes=20, response_spread=0.1, library_size=6000, seed=2
    )


@pytest.fixture(scope="module")
def model(cells):
    adata = cells.copy()
    DISCOVR.setup_anndata(adata, condition_key="condition")
    scvi.settings.seed = 0  # the model must not hang on the tests before it
    model = DISCOVR(adata, n_hidden=32, likelihood="nb")
    model.train(max_epochs=200, batch_size=128, enable_progress_bar=False)
    return model


# Counterfactual calls carry the error of the prediction itself, which posterior samples do not show.
@pytest.mark.parametrize(("mode", "least_precision"), [("observed", 0.9), ("counterfactual", 0.8)])
def test_simulated_genes_are_found_with_their_size(model, cells, mode, least_precision):
    table = model.differential_expression(groupby="cell_type", mode=mode, n_samples=1000)
    assert list(table["group"].unique()) == ["type_0", "type_1"]
    for i, (_, part) in enumerate(table.groupby("group")):
        part = part.set_index("gene").loc[cells.var_names]
        truth = cells.varm["effect_treated_1"][:, i] / np.log(2)
        assert np.corrcoef(part["lfc"], truth)[0, 1] > 0.85
        assert 0.7 < np.polyfit(truth, part["lfc"], 1)[0] < 1.3
        assert cells.var["is_effect"].loc[part["proba_de"].nlargest(10).index].mean() >= 0.8
        called = part["is_de"].to_numpy()
        assert called.any()
        assert (truth[called] != 0).mean() > least_precision
        assert (part["lfc_low"] <= part["lfc_high"]).all()
        assert part["lfc"].between(part["lfc_low"] - 1e-3, part["lfc_high"] + 1e-3).all()
    first = table[table["group"] == "type_0"]
    assert first["proba_de"].is_monotonic_decreasing


def test_direction_follows_target_and_reference(model, cells):
    forth, back = (
        model.differential_expression(target=target, n_samples=200).set_index("gene")
        for target in ("treated_1", "control")
    )
    assert set(forth["target"]) == set(back["reference"]) == {"treated_1"}
    assert set(forth["reference"]) == set(back["target"]) == {"control"}
    changed = cells.var_names[cells.var["is_effect"]]
    assert np.corrcoef(forth["lfc"].loc[changed], back["lfc"].loc[changed])[0, 1] < -0.9
    reference = model.differential_expression(reference="treated_1", n_samples=200).set_index("gene")
    np.testing.assert_array_equal(reference["lfc"], back["lfc"])


@pytest.fixture
def telling(counts, monkeypatch):
    """A model whose samples of expression are given, of the target and the reference."""
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)

    def table(target: float, reference: float, **arguments):
        def samples(sampler, adata, indices, **_):
            return np.full((400, adata.n_vars), (target, reference)[indices[0]], dtype=np.float32)[:, sampler.genes]

        monkeypatch.setattr(differential.ExpressionSampler, "__call__", samples)
        return model.differential_expression(target="treated_1", reference="control", n_samples=400, **arguments)

    return table


def test_rare_genes_have_small_fold_changes(telling):
    """Expression has a floor, which the conditions have at different heights; ratios of floors mean nothing."""
    assert telling(1e-6, 1e-8)["lfc"].max() < 0.2  # 0.01 and 0.0001 counts in 10,000
    assert telling(4e-3, 1e-3)["lfc"].min() == pytest.approx(2, abs=0.1)
    assert telling(4e-3, 1e-3, pseudocount=20)["lfc"].max() == pytest.approx(1, abs=0.05)


@pytest.mark.filterwarnings("ignore:group 'all' has")
def test_few_cells_leave_doubt(telling, counts):
    """However sure the samples are: after n cells alike, the next is not with probability 0.5 / (n + 1)."""
    rows = [np.flatnonzero(counts.obs["condition"] == name) for name in ("treated_1", "control")]
    for n_target, n_reference, called in ((1, 4, False), (10, 10, False), (30, 30, True)):
        part = counts[np.sort(np.concatenate([rows[0][:n_target], rows[1][:n_reference]]))].copy()
        table = telling(4e-3, 1e-3, adata=part)
        sure = (1 - 0.5 / (n_target + 1)) * (1 - 0.5 / (n_reference + 1))
        np.testing.assert_allclose(table["proba_de"], sure, atol=0.003)
        np.testing.assert_allclose(table["lfc"], sure * 1.985, atol=0.01)
        assert ((table["lfc_low"] > 0) == (1 - sure < 0.05)).all()
        # the posterior alone would call all genes: what is called has to be in the measured counts, too
        assert (expected_fdr_calls(table["proba_de"], fdr=0.05) == called).all()
        unchanged = table["gene"].isin(counts.var_names[counts.var["effect_treated_1"] == 0])
        assert unchanged.sum() > 10 and not table["is_de"][unchanged].any()


def test_few_cells_call_no_more_genes(model, cells):
    rng = np.random.default_rng(0)
    in_type = (cells.obs["cell_type"] == "type_0").to_numpy()
    treated = (cells.obs["condition"] == "treated_1").to_numpy()
    rows = [rng.permutation(np.flatnonzero(in_type & of)) for of in (treated, ~treated)]
    n_called = []
    for sizes in ((1, 4), (4, 4), (12, 12), (40, 40), (200, 200)):
        part = np.sort(np.concatenate([of[:n] for of, n in zip(rows, sizes, strict=True)]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = model.differential_expression(cells[part].copy(), n_samples=500)
        told = [str(warning.message) for warning in caught if "too few for a call" in str(warning.message)]
        assert bool(told) == (sizes[0] < 20)
        if told:
            assert f"group 'all' has {sizes[0]} cells of treated_1 and {sizes[1]} cells of control" in told[0]
        n_called.append(int(table["is_de"].sum()))
    assert n_called[:3] == [0, 0, 0]
    assert 0 < n_called[3] <= n_called[4] + 5


@pytest.mark.filterwarnings("ignore:group 'all' has")
def test_few_cells_call_nothing_where_nothing_has_changed():
    adata = data.simulate_counts(n_cells=400, n_genes=200, n_types=1, n_effect_genes=0, seed=3)
    DISCOVR.setup_anndata(adata, condition_key="condition")
    model = DISCOVR(adata, n_hidden=16, likelihood="nb")
    model.train(max_epochs=30, batch_size=128, enable_progress_bar=False)
    treated = (adata.obs["condition"] == "treated_1").to_numpy()
    rows = [np.random.default_rng(0).permutation(np.flatnonzero(of)) for of in (treated, ~treated)]
    for n_target, n_reference in ((4, 1), (1, 4), (20, 20), (50, 20), (200, 200)):
        part = adata[np.sort(np.concatenate([rows[0][:n_target], rows[1][:n_reference]]))].copy()
        assert not model.differential_expression(part, n_samples=500)["is_de"].any()


def test_blocks_of_genes_do_not_change_the_result(model, monkeypatch):
    whole = model.differential_expression(n_samples=100)
    monkeypatch.setattr(differential, "MAX_FLOATS", 700)  # 7 genes at a time
    in_blocks = model.differential_expression(n_samples=100)
    np.testing.assert_allclose(whole["lfc"], in_blocks["lfc"], rtol=1e-5)
    assert list(whole["gene"]) == list(in_blocks["gene"])


@pytest.mark.parametrize("by", [None, "neighbors", "prior"])
def test_the_same_cells_are_compared_from_the_same_z(model, cells, by):
    """Under one and the same condition nothing would change; under two, cells do not differ but by w."""
    members = np.flatnonzero(cells.obs["cell_type"] == "type_0")
    populations = [differential.Population(members, condition) for condition in (0, 1)]
    ways = {condition: way_to(model, condition, by) for condition in (0, 1)}
    drawing = differential.Drawing(n_samples=50, batch_size=20)
    sampler = differential.ExpressionSampler(model, model.adata, populations, ways, drawing)
    for one, other in zip(*sampler.latents, strict=True):
        np.testing.assert_array_equal(one.own.z, other.own.z)
        assert not np.array_equal(decode(model, one).scale, decode(model, other).scale)


def test_batches_can_be_averaged_out(counts):
    DISCOVR.setup_anndata(counts, "condition", batch_key="lane")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=2, enable_progress_bar=False)
    arguments = {"target": "treated_1", "reference": "control", "n_samples": 50}
    own, averaged = (model.differential_expression(batch_correction=b, **arguments) for b in (False, True))
    assert np.abs(own.set_index("gene")["lfc"] - averaged.set_index("gene")["lfc"]).max() > 0
    # both samples of a pair are decoded in one batch, which is not always the cell's own
    populations = [differential.Population(np.arange(120), condition) for condition in (0, 1)]
    ways = {condition: way_to(model, condition, "prior") for condition in (0, 1)}
    drawings = (differential.Drawing(n_samples=60, batch_size=25, batch_correction=b) for b in (False, True))
    own, drawn = (differential.ExpressionSampler(model, counts, populations, ways, drawing) for drawing in drawings)
    for one, other, old in zip(*drawn.latents, own.latents[0], strict=True):
        np.testing.assert_array_equal(one.given.cats[-1], other.given.cats[-1])
        assert not np.array_equal(one.given.cats[-1], old.given.cats[-1])
    with pytest.raises(ValueError, match=r"name target and reference: there are 3"):
        model.differential_expression()


def test_a_third_condition_does_not_enter(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    table = model.differential_expression(
        target="treated_1", reference="control", mode="counterfactual", by="prior", n_samples=20
    )
    compared = int(counts.obs["condition"].isin(["control", "treated_1"]).sum())
    assert compared < counts.n_obs
    assert set(table["n_target"]) == set(table["n_reference"]) == {compared}
    only_third = counts[(counts.obs["condition"] == "treated_2").to_numpy()].copy()
    with pytest.raises(ValueError, match="group 'all' has no cells of conditions 'treated_1' and 'control'"):
        model.differential_expression(only_third, target="treated_1", reference="control", mode="counterfactual")


def test_wrong_arguments_raise(model, cells):
    cases = {
        "mode='paired' is not known": {"mode": "paired"},
        "by='prior' chooses w for mode='counterfactual'": {"by": "prior"},
        "delta=-1; give a finite number above 0": {"delta": -1},
        "pseudocount=0; give": {"pseudocount": 0},
        "fdr=0; give": {"fdr": 0},
        "fdr=2; give": {"fdr": 2},
        "n_samples=1; give": {"n_samples": 1},
        "n_samples=2.5; give": {"n_samples": 2.5},
        "target='x' is not one": {"target": "x"},
        "reference='x' is not one": {"reference": "x"},
        "both 'control'": {"target": "control", "reference": "control"},
        "name it with groupby": {"groups": ["type_0"]},
        "'type_9' is not in adata.obs": {"groupby": "cell_type", "groups": ["type_9"]},
    }
    for message, arguments in cases.items():
        with pytest.raises(ValueError, match=message):
            model.differential_expression(**arguments)
    with pytest.raises(TypeError, match=r"does not take 'n_sample'; .* takes \['by', 'n_samples', 'batch_correction'"):
        model.differential_expression(n_sample=100)
    with pytest.raises(KeyError, match="groupby 'mood' is not a column"):
        model.differential_expression(groupby="mood")
    controls = cells[(cells.obs["condition"] == "control").to_numpy()].copy()
    with pytest.raises(ValueError, match="has no cells of condition 'treated_1'"):
        model.differential_expression(controls)


def test_a_group_without_one_of_the_conditions_is_left_out(model, cells):
    part = cells[((cells.obs["cell_type"] == "type_0") | (cells.obs["condition"] == "control")).to_numpy()].copy()
    with pytest.warns(UserWarning, match="group 'type_1' has no cells of condition 'treated_1'.*left out"):
        table = model.differential_expression(part, groupby="cell_type", n_samples=20)
    assert list(table["group"].unique()) == ["type_0"]
    with pytest.raises(ValueError, match="group 'type_1' has no cells"):
        model.differential_expression(part, groupby="cell_type", groups=["type_1"], n_samples=20)
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match="no group of 'cell_type' has cells of both"),
    ):
        model.differential_expression(part[part.obs["cell_type"] == "type_1"].copy(), groupby="cell_type", n_samples=20)


def test_counts_without_gene_names_are_refused(counts):
    counts.obsm["counts"] = counts.X.toarray()
    DISCOVR.setup_anndata(counts, "condition", tensor_key="counts")
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    for method in ("differential_expression", "get_condition_effect", "get_normalized_expression"):
        with pytest.raises(ValueError, match=rf"{method} is about genes.*obsm\['counts'\]"):
            getattr(model, method)()


def test_other_data_than_counts_have_no_differential_expression(vectors):
    DISCOVR.setup_anndata(vectors, "condition", tensor_key="x")
    model = DISCOVR(vectors, n_latent_z=1, n_latent_w=1, likelihood="gaussian", n_hidden=4)
    model.train(max_epochs=1, enable_progress_bar=False)
    with pytest.raises(ValueError, match="differential_expression is for counts"):
        model.differential_expression()
    with pytest.raises(ValueError, match="get_condition_effect is for counts"):
        model.get_condition_effect()
