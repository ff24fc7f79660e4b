"""Counterfactuals: near the simulated truth, named, seeded; wrong arguments raise."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scvi
import torch
from torch.distributions import Normal

from discovr_sc import CCVAE, CSVAE, CVAE, DISCOVR, DIVA, HCSVAE, data
from discovr_sc.module.counterfactual import AtSameQuantile, Counterparts, Neighborhood
from discovr_sc.tools.counterfactual import moments_by_condition


@pytest.fixture(scope="module")
def cells():
    return data.simulate_counts(n_cells=1000, n_genes=60, n_effect_genes=20, type_specific=0.0, seed=3)


@pytest.fixture(scope="module")
def model(cells):
    adata = cells.copy()
    DISCOVR.setup_anndata(adata, condition_key="condition")
    scvi.settings.seed = 0  # the model must not hang on the tests before it
    # Weights are relative to nats per cell, of which 60 genes have few.
    model = DISCOVR(adata, n_hidden=32, likelihood="nb", weights={"adv": 10, "mmd": 0, "kl_w": 0.5})
    model.train(
        max_epochs=60, batch_size=128, plan_kwargs={"lr": 5e-3, "n_adversary_steps": 1}, enable_progress_bar=False
    )
    return model


@pytest.fixture
def small(counts):
    def train(model_cls):
        model_cls.setup_anndata(counts, "condition", batch_key="lane")
        model = model_cls(counts, n_latent_z=3, n_latent_w=3, n_hidden=8)
        model.train(max_epochs=1, enable_progress_bar=False)
        return model

    return train


@pytest.mark.parametrize("by", ["quantile", "neighbor-shift", "neighbors", "prior"])
def test_the_predicted_change_is_the_simulated_effect(model, cells, by):
    is_control = (cells.obs["condition"] == "control").to_numpy()
    controls = cells[is_control].copy()
    treated = model.predict_counterfactual(controls, target="treated_1", by=by)
    same = model.predict_counterfactual(controls, target="control", by=by)
    change = np.log(treated.X.mean(0) / same.X.mean(0))
    effect = cells.var["effect_treated_1"].to_numpy()
    assert np.corrcoef(change, effect)[0, 1] > 0.9
    # and the predicted cells are like the real ones, not like the controls
    real, own = (np.log(np.asarray(x.X.sum(0)).ravel() / x.X.sum()) for x in (cells[~is_control], controls))
    error, nothing = (np.mean((x - real) ** 2) for x in (np.log(treated.X.mean(0)), own))
    assert error < 0.25 * nothing


def test_the_result_says_what_it_is(model, cells, tmp_path):
    rows = [5, 3, 9]
    result = model.predict_counterfactual(target="treated_1", indices=rows)
    assert list(result.obs_names) == list(cells.obs_names[rows])
    assert list(result.var_names) == list(cells.var_names)
    assert list(result.obs["source_condition"]) == list(cells.obs["condition"].iloc[rows])
    assert set(result.obs["target_condition"]) == set(result.obs["condition"]) == {"treated_1"}
    assert list(result.obs["cell_type"]) == list(cells.obs["cell_type"].iloc[rows])
    assert not [column for column in result.obs if column.startswith("_scvi")]
    assert "fractions" in result.uns["counterfactual"]["units"]
    np.testing.assert_allclose(result.X.sum(1), 1, rtol=1e-4)
    counts = model.predict_counterfactual(target="treated_1", indices=rows, kind="counts")
    assert "counts" in counts.uns["counterfactual"]["units"]
    np.testing.assert_array_equal(counts.X, np.round(counts.X))
    counts.write_h5ad(tmp_path / "counts.h5ad")
    assert anndata.read_h5ad(tmp_path / "counts.h5ad").uns["counterfactual"]["by"] == model.counterfactual_ways[0]


def test_counts_keep_what_is_peculiar_to_a_cell(model, cells):
    controls = cells[(cells.obs["condition"] == "control").to_numpy()].copy()
    measured = controls.X.toarray()
    same = model.predict_counterfactual(controls, target="control", kind="counts")
    np.testing.assert_array_equal(same.X, measured)
    kept, drawn = (
        model.predict_counterfactual(controls, target="treated_1", kind="counts", keep_noise=keep)
        for keep in (True, False)
    )
    assert kept.uns["counterfactual"]["keep_noise"]
    assert not drawn.uns["counterfactual"]["keep_noise"]
    unaffected = np.abs(cells.var["effect_treated_1"].to_numpy()) == 0
    of_kept, of_drawn = (
        np.corrcoef(x.X[:, unaffected].ravel(), measured[:, unaffected].ravel())[0, 1] for x in (kept, drawn)
    )
    assert of_kept > of_drawn + 0.05
    # and the effect is there, as in new draws
    effect = cells.var["effect_treated_1"].to_numpy()
    for predicted in (kept, drawn):
        change = np.log((predicted.X.mean(0) + 0.1) / (measured.mean(0) + 0.1))
        assert np.corrcoef(change, effect)[0, 1] > 0.8


def test_counterparts_are_of_the_like_cells_type(model, cells):
    controls = cells[(cells.obs["condition"] == "control").to_numpy()][:50].copy()
    shift = {"target": "treated_1", "by": "neighbor-shift"}
    result = model.predict_counterfactual(controls, **shift, cell_type_key="cell_type")
    assert result.uns["counterfactual"]["cell_type_key"] == "cell_type"
    assert not np.array_equal(result.X, model.predict_counterfactual(controls, **shift).X)
    with pytest.raises(KeyError, match="cell_type_key 'mood' is not a column"):
        model.predict_counterfactual(controls, **shift, cell_type_key="mood")
    with pytest.raises(ValueError, match="cell_type_key='cell_type' does nothing with by='prior'"):
        model.predict_counterfactual(controls, target="treated_1", cell_type_key="cell_type", by="prior")


def test_counterparts_of_a_type_and_of_any_where_there_is_none():
    points = np.concatenate([np.zeros((20, 1)), np.ones((20, 1))])
    pool = Counterparts(points, np.repeat(["a", "b"], 20), n_neighbors=5)
    drawn = pool.draw(np.zeros((3, 1)), np.array(["a", "b", "c"]))
    assert drawn.ravel().tolist() == [0, 1, 0]


def test_one_seed_one_result_and_torch_is_left_alone(model):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (
        model.predict_counterfactual(target="control", indices=[0, 1], seed=seed).X for seed in (0, 0, 1)
    )
    assert torch.rand(1) == expected
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


def test_cells_that_were_not_seen_and_conditions_that_are_not_known(model, cells):
    fresh = data.simulate_counts(n_cells=20, n_genes=60, n_effect_genes=20, type_specific=0.0, seed=4)
    fresh.obs_names = [f"new_{i}" for i in range(20)]
    assert model.predict_counterfactual(fresh, target="control").shape == (20, 60)
    del fresh.obs["condition"]
    with pytest.warns(UserWarning, match="unknown"):
        result = model.predict_counterfactual(fresh.copy(), target="control")
    assert result.obs["source_condition"].isna().all()


@pytest.mark.parametrize("model_cls", [CSVAE, HCSVAE, DIVA, CCVAE, CVAE])
def test_every_method_predicts_in_each_of_its_ways(small, model_cls):
    model = small(model_cls)
    for by in model.counterfactual_ways:
        result, other = (
            model.predict_counterfactual(target=target, by=by, n_samples=2) for target in ("treated_2", "treated_1")
        )
        np.testing.assert_allclose(result.X.sum(1), 1, rtol=1e-4)
        assert np.abs(result.X - other.X).max() > 0  # the target matters
    for by in {"quantile", "neighbor-shift", "posterior", "prior", "neighbors"} - set(model.counterfactual_ways):
        with pytest.raises(ValueError, match=f"by='{by}' is not a way {model_cls.__name__} has"):
            model.predict_counterfactual(target="treated_2", by=by)


@torch.inference_mode()
def test_a_cell_keeps_its_place_in_the_response(model, cells):
    is_control = (cells.obs["condition"] == "control").to_numpy()
    tensors = next(iter(model.batches(cells, np.flatnonzero(is_control), None, n_samples=1, seed=0)))
    inputs, q = model.infer(tensors, 1)
    there = AtSameQuantile()(model.module, inputs["x"], inputs["given"], q, torch.ones_like(q["y"]))
    priors = model.module.prior()
    assert (priors.scale[0] - priors.scale[1]).abs().max() > 1e-3
    quantiles = [Normal(priors.loc[k], priors.scale[k]).cdf(w) for k, w in ((0, q["w"]), (1, there.own.w))]
    torch.testing.assert_close(*quantiles, atol=1e-4, rtol=1e-4)
    assert (there.own.w - q["w"]).abs().min() > 0 and there.own.z is q["z"]


def test_the_default_needs_no_training_cells(model, cells, tmp_path):
    model.save(tmp_path / "model")
    controls = cells[(cells.obs["condition"] == "control").to_numpy()][:20].copy()
    alone = DISCOVR.load(tmp_path / "model", controls)
    expected = model.predict_counterfactual(controls, target="treated_1")
    np.testing.assert_allclose(alone.predict_counterfactual(target="treated_1").X, expected.X, rtol=1e-5)


def test_intervals_hold_the_samples_in_between(model):
    rows = np.arange(30)
    result = model.predict_counterfactual(target="treated_1", indices=rows, interval=0.8, n_samples=20)
    lower, upper = result.layers["lower"], result.layers["upper"]
    assert (lower <= upper).all() and result.uns["counterfactual"]["interval"] == 0.8
    draws = np.stack(
        [model.predict_counterfactual(target="treated_1", indices=rows, n_samples=1, seed=k).X for k in range(40)]
    )
    assert np.mean((draws >= lower) & (draws <= upper)) == pytest.approx(0.8, abs=0.1)
    for interval, n_samples, match in ((1.0, 25, "interval=1.0"), (0.9, 5, "n_samples=5")):
        with pytest.raises(ValueError, match=match):
            model.predict_counterfactual(target="treated_1", interval=interval, n_samples=n_samples)


def test_images_are_predicted_in_their_own_units(images):
    DISCOVR.setup_anndata(images, "condition", tensor_key="x")
    model = DISCOVR(images, likelihood="bernoulli", network="cnn", n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    result = model.predict_counterfactual(target="1", indices=[0, 1])
    assert result.obsm["x"].shape == (2, 2, 9, 8)
    assert "units of the data" in result.uns["counterfactual"]["units"]
    with pytest.raises(ValueError, match="kind='counts' is for likelihood"):
        model.predict_counterfactual(target="1", kind="counts")


def test_wrong_arguments_raise(model):
    with pytest.raises(ValueError, match=r"target='frozen' is not one .*'treated_1'"):
        model.predict_counterfactual(target="frozen")
    with pytest.raises(ValueError, match="kind='log'"):
        model.predict_counterfactual(target="control", kind="log")
    with pytest.raises(ValueError, match="by='magic' is not a way DISCOVR has"):
        model.predict_counterfactual(target="control", by="magic")
    with pytest.raises(ValueError, match="n_samples=0"):
        model.predict_counterfactual(target="control", n_samples=0)


def test_like_cells_are_training_cells_and_a_tenth_of_a_condition_at_most(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=3, n_hidden=8)
    model.train(max_epochs=1, train_size=0.5, enable_progress_bar=False)
    codes = model.condition_indices()
    moments = moments_by_condition(model, "neighbor-shift", 0)
    z = model.get_latent_representation()
    for code, (z_of_condition, *_) in moments.items():
        cells = np.sort(model.train_indices)
        np.testing.assert_allclose(z_of_condition, z[cells[codes[cells] == code]], rtol=1e-5, atol=1e-6)
    near = Neighborhood(z[:40], n_neighbors=50)
    assert near._search.n_neighbors == 4
    drawn = near.draw(np.repeat(z[:1], 200, axis=0))
    assert set(drawn) == set(np.argsort(((z[:40] - z[0]) ** 2).sum(1))[:4])


def test_neighbours_need_cells_of_the_target(small, counts, tmp_path):
    model = small(DISCOVR)
    model.save(tmp_path / "model")
    controls = counts[(counts.obs["condition"] == "control").to_numpy()].copy()
    loaded = DISCOVR.load(tmp_path / "model", controls)
    with pytest.raises(ValueError, match="'treated_1', but the model's AnnData has none"):
        loaded.predict_counterfactual(target="treated_1", by="neighbors")
    assert loaded.predict_counterfactual(target="treated_1", by="prior").n_obs == controls.n_obs
    with pytest.raises(ValueError, match="looks for cells of condition 'treated_1'.*has none"):
        loaded.predict_counterfactual(counts.copy(), target="control", by="neighbor-shift")


def test_a_model_without_data_does_not_take_its_first_cells_for_training_cells(small, counts, tmp_path):
    expected = small(DISCOVR).get_latent_representation()
    small(DISCOVR).save(tmp_path / "model", overwrite=True)
    loaded = DISCOVR.load(tmp_path / "model", adata=False)
    for cells in (counts[:50].copy(), counts.copy()):
        assert loaded.predict_counterfactual(cells, target="control").n_obs == cells.n_obs
        assert loaded.get_normalized_expression(cells, kind="marginal").shape == cells.shape
        assert loaded.get_latent_representation(cells).shape == expected[: cells.n_obs].shape
        assert loaded.adata is None
    with pytest.raises(ValueError, match="the model has no data; load it with the cells"):
        loaded.predict_counterfactual(counts.copy(), target="control", by="neighbor-shift")
    with pytest.raises(ValueError, match="The model was loaded without data"):
        loaded.get_latent_representation()
    new = counts[:40].copy()
    new.obs["condition"] = "new"
    with pytest.raises(ValueError, match="no counts of the cells that it was trained on"):
        loaded.add_condition(new)


def test_a_prediction_for_several_keys_names_and_sets_them_all(counts):
    DISCOVR.setup_anndata(counts, ["condition", "lane"])
    model = DISCOVR(counts, n_hidden=8)
    model.train(max_epochs=1, enable_progress_bar=False)
    result = model.predict_counterfactual(target="treated_2 & b", indices=np.arange(120) < 3)
    source = counts.obs["condition"].astype(str).str.cat(counts.obs["lane"].astype(str), sep=" & ")
    assert list(result.obs["source_condition"]) == list(source[:3])
    assert set(result.obs["target_condition"]) == {"treated_2 & b"}
    assert set(result.obs["condition"]) == {"treated_2"}
    assert set(result.obs["lane"]) == {"b"}
    # so the prediction can be asked about, in its new condition
    assert model.get_latent_representation(result, kind="w").shape == (3, model.module.n_latent_w)
