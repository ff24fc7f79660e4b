"""Several condition keys, and cells whose condition is unknown in training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc import DISCOVR, DIVA, data
from discovr_sc.model.conditions import conditions_of

QUIET = {"enable_progress_bar": False}


def small(adata, condition_key, epochs=2, cls=DISCOVR, **setup):
    cls.setup_anndata(adata, condition_key, **setup)
    model = cls(adata, n_latent_z=3, n_latent_w=3, n_hidden=8)
    model.train(epochs, train_size=0.5, **QUIET)
    return model


# Several keys ---------------------------------------------------------------------------------------------------


def test_labels_of_several_keys_are_joined_in_order():
    obs = pd.DataFrame({"dose": pd.Categorical(["low", "high", "low", None], ["low", "high"]), "donor": [2, 1, 1, 1]})
    of_cells, table = conditions_of(obs, ["dose", "donor"])
    assert of_cells.tolist()[:3] == ["low & 2", "high & 1", "low & 1"]
    assert of_cells.isna().tolist() == [False, False, False, True]
    assert list(of_cells.cat.categories) == ["low & 1", "low & 2", "high & 1"]
    assert table == {"low & 1": ["low", "1"], "low & 2": ["low", "2"], "high & 1": ["high", "1"]}
    assert conditions_of(obs, "donor").of_cells.tolist() == [2, 1, 1, 1]


def test_labels_may_have_what_joins_them(counts, tmp_path):
    """A name is for show: what it is made of is kept in a table."""
    counts.obs["drug"] = ["A & B", "A", "B"] * 40
    counts.obs["hour"] = ["1 & 2"] * 60 + ["3"] * 60
    model = small(counts, ["drug", "hour"])
    assert list(model.conditions)[:4] == ["A & 1 & 2", "A & 3", "A & B & 1 & 2", "A & B & 3"]
    model.save(tmp_path / "model")
    for asked in (model, DISCOVR.load(tmp_path / "model", counts.copy())):
        by_drug, by_hour = (asked.predict_condition(key=key, n_samples=2) for key in ("drug", "hour"))
        assert list(by_drug.columns) == ["A", "A & B", "B"]
        assert list(by_hour.columns) == ["1 & 2", "3"]
        np.testing.assert_allclose(by_drug.sum(axis=1), 1, rtol=1e-5)
        moved = asked.predict_counterfactual(target="A & B & 1 & 2", indices=[1, 100])
        assert list(moved.obs["source_condition"]) == ["A & 1 & 2", "A & 3"]
        assert set(moved.obs["drug"]) == {"A & B"} and set(moved.obs["hour"]) == {"1 & 2"}
        assert set(asked.get_latent_representation(moved, kind="w").shape) == {2, 3}
    # a combination whose name the model has for another one
    query = counts[counts.obs["drug"] == "A & B"].copy()
    query.obs["drug"], query.obs["hour"] = "A", "B & 3"
    with pytest.raises(ValueError, match=r"has the labels \['A', 'B & 3'\], whose name 'A & B & 3' the model has for"):
        model.get_latent_representation(query)


def test_several_keys_through_setup_save_queries_and_report(counts, tmp_path):
    model = small(counts, ["condition", "sex"])
    names = ["control & f", "control & m", "treated_1 & f", "treated_1 & m", "treated_2 & f", "treated_2 & m"]
    assert list(model.conditions) == names
    assert model.condition_keys == ["condition", "sex"]
    assert (
        counts.obs[model.condition_key].tolist()[0]
        == f"{counts.obs['condition'].iloc[0]} & {counts.obs['sex'].iloc[0]}"
    )
    model.save(tmp_path / "model")
    query = counts.copy()
    del query.obs[model.condition_key]
    loaded = DISCOVR.load(tmp_path / "model", query)
    np.testing.assert_array_equal(
        loaded.get_latent_representation(kind="zw"), model.get_latent_representation(kind="zw")
    )
    probs, by_sex = model.predict_condition(n_samples=2), model.predict_condition(key="sex", n_samples=2)
    assert list(by_sex.columns) == ["f", "m"]
    np.testing.assert_allclose(by_sex["f"], probs[names[::2]].sum(axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match=r"key='lane' is not one of .* choose from \['condition', 'sex'\]"):
        model.predict_condition(key="lane")
    report = model.disentanglement_report(probes=["linear"], estimators=())
    assert set(report["of"]) == {"condition", "sex", model.condition_key}
    # a cell that lacks one of the labels is of unknown condition
    query = counts.copy()
    query.obs["sex"] = query.obs["sex"].where(np.arange(120) >= 10)
    w = model.get_latent_representation(query, kind="w")
    np.testing.assert_array_equal(w[10:], model.get_latent_representation(kind="w")[10:])
    assert np.abs(w[:10] - model.get_latent_representation(kind="w")[:10]).max() > 1e-5
    query.obs["sex"] = "x"
    with pytest.raises(ValueError, match=r"has the category '.* & x', which the model was not trained on"):
        model.get_latent_representation(query)
    query = counts.copy()
    del query.obs["sex"]
    with pytest.warns(UserWarning, match="no column 'sex'.*unknown"):
        model.get_latent_representation(query)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "empty list; name at least one column"),
        (["condition", "condition"], "names a column twice"),
        (["condition", "age"], "'age' holds 120 different numbers"),
        (["odd", "even"], r"labels \['a', 'b & c'\] and \['a & b', 'c'\] make one name, 'a & b & c'"),
        (["condition", "lane"], "batch_key and condition_key both name 'lane'"),
        (["condition", "rare"], "has one cell only of 'control & r'"),
    ],
)
def test_keys_that_cannot_be_joined(counts, keys, message):
    counts.obs["odd"], counts.obs["even"] = ["a & b", "a"] * 60, ["c", "b & c"] * 60
    first = counts.obs_names[(counts.obs["condition"] == "control").to_numpy()][0]
    counts.obs["rare"] = np.where(counts.obs_names == first, "r", "s")
    with pytest.raises(ValueError, match=message):
        DISCOVR.setup_anndata(counts, keys, batch_key="lane")
    assert not any(column.startswith("_scvi") for column in counts.obs)


def test_a_new_combination_can_be_added(counts):
    in_turn = counts.obs.groupby("condition", observed=True).cumcount() % 2
    counts.obs["sex"] = np.where(in_turn == 0, "f", "m")
    is_new = ((counts.obs["condition"] == "treated_2") & (counts.obs["sex"] == "m")).to_numpy()
    old, new = counts[~is_new].copy(), counts[is_new].copy()
    model = small(old, ["condition", "sex"]).add_condition(new, max_epochs=1, **QUIET)
    assert list(model.conditions)[-1] == "treated_2 & m"
    assert len(model.conditions) == 6


# Unknown conditions in training -----------------------------------------------------------------------------------


def test_missing_labels_are_unknown_where_the_user_says_so(counts, tmp_path):
    counts.obs["stim"] = counts.obs["condition"].astype(str)
    counts.obs.loc[counts.obs_names[:30], "stim"] = "?"
    counts.obs.loc[counts.obs_names[30:40], "stim"] = None
    model = small(counts, "stim", unlabeled_category="?")
    assert list(model.conditions) == ["control", "treated_1", "treated_2"]
    shares = counts.obs["condition"][40:].value_counts(normalize=True, sort=False)
    np.testing.assert_allclose(model.module.condition_probs, shares, rtol=1e-5)
    assert all(np.isfinite(values.to_numpy(dtype=float)).all() for values in model.history_.values())
    model.save(tmp_path / "model")
    loaded = DISCOVR.load(tmp_path / "model", counts.copy())
    np.testing.assert_array_equal(
        loaded.get_latent_representation(kind="zw"), model.get_latent_representation(kind="zw")
    )
    report = model.disentanglement_report(probes=["linear"], estimators=())
    assert set(report["of"]) == {"stim"}


def test_methods_without_a_likelihood_of_z_need_all_labels(counts):
    counts.obs["stim"] = counts.obs["condition"].astype(str).where(np.arange(120) > 5, "?")
    with pytest.raises(ValueError, match="cells of unknown condition; DIVA has no likelihood of x given z alone"):
        small(counts, "stim", cls=DIVA, unlabeled_category="?")


@pytest.mark.parametrize("prior", ["learned", "condition-mean"])
def test_a_cell_of_unknown_condition_has_the_terms_of_z_alone(counts, prior):
    """Every term is the mean over the cells that have it: as if the others were not there."""
    DISCOVR.setup_anndata(counts, "condition")
    module = DISCOVR(counts, n_latent_z=3, n_latent_w=3, n_hidden=8, prior=prior, use_batch_norm=False).module.train()
    labels = torch.tensor([[0], [-1], [1], [-1], [2], [0], [1], [2]])
    x = torch.as_tensor(counts.X[:8].toarray())
    tensors = {"X": x, "labels": labels, "batch": torch.zeros(8, 1).long()}
    known = (labels >= 0).ravel()

    def terms(tensors):
        torch.manual_seed(0)
        module.kinds.mass.fill_(1e-3)  # as before the first mini-batch
        inputs = module.inference_input(tensors, draw_unknown=False)
        q = module.inference(**inputs, use_mean=True)
        p = module.generative(q, inputs["given"])
        return module.loss(tensors, q, p).extra_metrics

    got, of_known = terms(tensors), terms({key: value[known] for key, value in tensors.items()})
    for name in ("rec", "kl_w", "adv", "mmd", "adversary_loss", "adversary_accuracy"):
        torch.testing.assert_close(got[name], of_known[name])
    labelled = terms(tensors | {"labels": labels.clamp(min=0)})
    for name in ("rec_z", "kl_z"):
        torch.testing.assert_close(got[name], labelled[name])
    nothing = terms({key: value[~known] for key, value in tensors.items()})
    assert nothing["rec"] == nothing["kl_w"] == nothing["adv"] == nothing["adversary_loss"] == 0
    assert nothing["rec_z"] > 0


def test_hidden_labels_are_recovered():
    """With 80 % of the labels hidden, most of the hidden ones are found."""
    adata = data.simulate_counts(600, 40, n_types=2, n_effect_genes=15, effect_size=1.5, seed=3)
    truth = adata.obs["condition"].astype(str)
    hidden = np.random.default_rng(0).random(600) < 0.8
    adata.obs["stim"] = truth.where(~hidden, "?")
    DISCOVR.setup_anndata(adata, "stim", unlabeled_category="?")
    model = DISCOVR(adata, n_latent_z=4, n_hidden=32, n_hidden_adversary=32, weights={"adv": 10.0, "mmd": 0.0})
    plan = {"lr": 3e-3, "n_adversary_steps": 2}
    model.train(60, batch_size=64, plan_kwargs=plan, check_val_every_n_epoch=60, **QUIET)
    guess = model.predict_condition(indices=np.flatnonzero(hidden), n_samples=8).idxmax(axis=1)
    assert (guess == truth[hidden]).mean() > 0.85  # 0.95 when this was written


def test_labels_that_are_not_there(counts):
    counts.obs["stim"] = "?"
    with pytest.raises(ValueError, match="'stim' has no label at all"):
        DISCOVR.setup_anndata(counts, "stim", unlabeled_category="?")
    counts.obs["stim"] = ["a"] * 60 + ["?"] * 60
    with pytest.raises(ValueError, match="one category, 'a'"):
        DISCOVR.setup_anndata(counts, "stim", unlabeled_category="?")
    counts.obs["stim"] = ["a"] * 60 + ["b"] * 59 + [None]
    with pytest.raises(ValueError, match="no label for 1 of 120 cells.*unlabeled_category"):
        DISCOVR.setup_anndata(counts, "stim")
