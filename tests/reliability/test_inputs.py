"""What was accepted and gave wrong answers, or failed with an unclear error, is refused by name."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from discovr_sc import DISCOVR, data
from discovr_sc.cli import main
from discovr_sc.errors import InputError

QUIET = {"enable_progress_bar": False}


@pytest.fixture(scope="module")
def trained():
    """A model of 120 cells and 20 genes, three conditions; nobody may change its data."""
    adata = data.simulate_counts(n_cells=120, n_genes=20, n_types=2, n_conditions=3, n_effect_genes=5, seed=1)
    adata.obs["lane"] = np.random.default_rng(0).choice(["a", "b"], adata.n_obs)
    DISCOVR.setup_anndata(adata, "condition", batch_key="lane")
    model = DISCOVR(adata, n_hidden=8, n_latent_z=3, n_components_z=2)
    model.train(2, **QUIET)
    return model


# Data on disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "says"), [(np.nan, "not finite"), (-3.0, "negative values"), (0.0, "no counts"), (1e38, "up to 1e")]
)
@pytest.mark.parametrize("as_sparse", [True, False])
def test_data_on_disk_are_checked(value, says, as_sparse, counts, tmp_path, monkeypatch):
    monkeypatch.setattr("discovr_sc.model.values.NUMBERS_PER_PART", 700)  # several parts
    x = counts.X.toarray().astype(np.float32)
    x[77] = 0.0 if value == 0 else x[77]
    x[77, 3] = value
    counts.X = sparse.csr_matrix(x) if as_sparse else x
    counts.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(InputError, match=says):
        DISCOVR.setup_anndata(backed, "condition")
        DISCOVR(backed)


def test_rows_on_disk_are_asked_for_in_their_order(counts, tmp_path):
    """scvi-tools sorts the rows of a mini-batch that it reads from disk: the answers were of other cells."""
    counts.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    DISCOVR.setup_anndata(backed, "condition")
    model = DISCOVR(backed, n_hidden=8)
    model.train(1, **QUIET)
    z = model.get_latent_representation()
    np.testing.assert_array_equal(model.get_latent_representation(indices=[3, 70]), z[[3, 70]])
    for rows in ([70, 3], [3, 3]):
        with pytest.raises(InputError, match="give indices in increasing order, each once, or take the cells into"):
            model.get_latent_representation(indices=rows)


def test_one_fractional_count_is_said(counts, tmp_path, capsys):
    counts.X = counts.X.astype(np.float32)
    counts.X.data[5] += 0.5
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.warns(UserWarning, match="1 values are not whole numbers"):
        DISCOVR(counts)
    counts.write_h5ad(tmp_path / "cells.h5ad")
    command = ["fit", str(tmp_path / "cells.h5ad"), "--condition-key", "condition", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "not whole numbers" in capsys.readouterr().err
    assert not (tmp_path / "out" / "model.pt").exists()


# The model's own data -------------------------------------------------------------------------------------------


def changed(adata, what):
    if what == "adata.X":
        adata.X = adata.X.log1p()
    elif what == "adata.obs['condition']":
        adata.obs["condition"] = adata.obs["condition"].to_numpy()[::-1]
    elif what == "adata.obs['lane']":
        adata.obs["lane"] = "a"
    elif what == "names of genes":
        adata.var_names = adata.var_names[::-1]
    else:
        adata.obs_names = adata.obs_names[::-1]


@pytest.mark.parametrize(
    "what", ["adata.X", "adata.obs['condition']", "adata.obs['lane']", "names of genes", "names of cells"]
)
def test_a_change_of_the_models_data_is_noticed(what, trained, tmp_path):
    trained.save(tmp_path / "model", save_anndata=True)
    loaded = DISCOVR.load(tmp_path / "model")
    loaded.get_latent_representation()
    changed(loaded.adata, what)
    questions = (
        loaded.get_latent_representation,
        loaded.get_normalized_expression,
        loaded.get_elbo,
        lambda: loaded.predict_counterfactual(target="control"),
        lambda: loaded.get_latent_representation(loaded.adata),
        lambda: loaded.train(1, **QUIET),
    )
    for ask in questions:
        with pytest.raises(InputError) as caught:
            ask()
        assert f"{what} changed" in str(caught.value)


def test_the_same_cells_with_other_values_are_not_the_training_data(trained, tmp_path):
    trained.save(tmp_path / "model", overwrite=True)
    same, other = trained.adata.copy(), trained.adata.copy()
    assert DISCOVR.load(tmp_path / "model", same).has_training_data()
    other.X = other.X * 2
    loaded = DISCOVR.load(tmp_path / "model", other)
    assert not loaded.has_training_data()
    with pytest.raises(ValueError, match="needs the AnnData that the model was trained on"):
        loaded.disentanglement_report()


def test_a_fingerprint_is_cheap_and_the_same_for_every_way_to_store_the_data():
    import time

    from discovr_sc.model.fingerprints import fingerprint

    setup = {"condition_key": "c", "layer": None, "tensor_key": None}
    n = 1_000_000
    x = sparse.random(n, 20, 0.05, format="csr", dtype=np.float32, random_state=0)
    obs = pd.DataFrame({"c": np.arange(n) % 3}, index=pd.RangeIndex(n).astype(str))
    adata = anndata.AnnData(x, obs=obs)
    first = fingerprint(adata, setup)
    start = time.process_time()
    for _ in range(10):
        assert fingerprint(adata, setup) == first
    assert (time.process_time() - start) / 10 < 0.02
    adata = adata[:5000].copy()
    first = fingerprint(adata, setup)
    adata.X = adata.X.toarray().astype(np.float64)
    adata.obs["c"] = adata.obs["c"].astype("category")
    assert fingerprint(adata, setup) == first


# Conditions -----------------------------------------------------------------------------------------------------


def test_every_condition_has_training_cells(counts):
    counts.obs["condition"] = ["rare"] * 2 + ["a", "b"] * 59
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8)
    with pytest.warns(UserWarning, match="no training cell was of condition 'rare'"):
        for seed in range(10):
            import scvi

            scvi.settings.seed = seed
            model.train(1, train_size=0.5, **QUIET)
            assert "rare" in set(counts.obs["condition"].iloc[model.train_indices])
            sets = np.concatenate([model.train_indices, model.validation_indices, model.test_indices])
            assert sorted(sets) == list(range(120))
    with pytest.raises(InputError, match="no training cell of condition 'rare'"):
        sets = [np.arange(2, 120), np.arange(2), np.arange(0)]
        model.train(1, datasplitter_kwargs={"external_indexing": sets}, **QUIET)


def test_too_few_training_cells_for_the_conditions_are_refused(counts):
    counts.obs["condition"] = [f"c{i // 10}" for i in range(120)]
    DISCOVR.setup_anndata(counts, "condition")
    with pytest.raises(InputError, match="raise train_size"):
        DISCOVR(counts, n_hidden=8, n_latent_w=4).train(1, train_size=0.05, **QUIET)


def test_odd_conditions_are_said(counts):
    counts.obs["pairs"] = [f"c{i // 2}" for i in range(120)]
    with pytest.warns(UserWarning, match="60 conditions, half of them with 2 cells"):
        DISCOVR.setup_anndata(counts, "pairs")
    counts.obs["dose"] = np.repeat([0.5, 1.25], 60)
    with pytest.warns(UserWarning, match="'dose' holds fractional numbers; each of the 2 is a condition"):
        DISCOVR.setup_anndata(counts, "dose")
    counts.obs["run"] = counts.obs["condition"].map({"control": "r1", "treated_1": "r2", "treated_2": "r3"})
    for keys in ({"batch_key": "run"}, {"categorical_covariate_keys": ["run"]}):
        with pytest.raises(InputError, match="'run' is the condition under other names"):
            DISCOVR.setup_anndata(counts, "condition", **keys)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([1, "1"] * 60, "labels of several types"),
        ([True, "1"] * 60, "labels of several types"),
        (list(pd.cut(np.arange(120), 2)), "a Interval; use adata.obs"),
        (list(pd.to_datetime(["2020-01-01", "2020-01-02"] * 60)), "a Timestamp; use adata.obs"),
    ],
)
def test_labels_of_odd_types_are_refused(column, says, counts):
    counts.obs["odd"] = pd.Series(column, index=counts.obs_names, dtype=object)
    with pytest.raises(InputError, match=f"condition_key 'odd' has .*{says}"):
        DISCOVR.setup_anndata(counts, "odd")
    with pytest.raises(InputError, match=f"batch_key 'odd' has .*{says}"):
        DISCOVR.setup_anndata(counts, "condition", batch_key="odd")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"condition_key": None}, "condition_key=None; give the name of a column"),
        ({"condition_key": 3}, "condition_key=3; give the name of a column"),
        ({"condition_key": "condition", "batch_key": ["lane"]}, r"batch_key=\['lane'\]; give one name"),
        ({"condition_key": "condition", "layer": 2}, "layer=2; give one name"),
    ],
)
def test_arguments_of_setup_are_named(arguments, says, counts):
    with pytest.raises(InputError, match=says):
        DISCOVR.setup_anndata(counts, **arguments)


def test_values_that_are_no_numbers_are_refused(counts):
    counts.X = counts.X.toarray().astype(object)
    with pytest.raises(InputError, match="adata.X holds values of type object; it needs numbers"):
        DISCOVR.setup_anndata(counts, "condition")


def test_sparse_arrays_are_as_good_as_matrices(counts):
    expected = None
    for make in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.csc_array):
        import scvi

        scvi.settings.seed = 0
        adata = counts.copy()
        adata.X = make(counts.X)
        DISCOVR.setup_anndata(adata, "condition")
        model = DISCOVR(adata, n_hidden=8)
        model.train(1, **QUIET)
        z = model.get_latent_representation()
        expected = z if expected is None else expected
        np.testing.assert_allclose(z, expected, atol=5e-3)  # sums are rounded in another order
        model.predict_counterfactual(target="control", indices=[0, 1])
        model.get_condition_effect(n_samples=2)


def test_a_new_condition_may_have_a_number_for_a_label(counts):
    counts.obs["dose"] = np.arange(120) % 2
    DISCOVR.setup_anndata(counts, "dose")
    model = DISCOVR(counts, n_hidden=8)
    model.train(1, **QUIET)
    new = counts[:40].copy()
    new.obs["dose"] = 7
    extended = model.add_condition(new, max_epochs=1, **QUIET)
    assert list(extended.conditions) == [0, 1, 7]
    assert np.isfinite(extended.predict_counterfactual(target=7, indices=[0, 1]).X).all()


# Settings and arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout_rate": -0.1},
        {"dropout_rate": 1},
        {"n_hidden_adversary": 0},
        {"n_latent_z": 2.5},
        {"n_hidden": "8"},
        {"noise_scale": np.inf},
        {"use_batch_norm": "no"},
        {"weights": {"adv": "x"}},
    ],
)
def test_settings_out_of_their_limits_are_refused(settings, counts):
    DISCOVR.setup_anndata(counts, "condition")
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name}.* is .*; give") as caught:
        DISCOVR(counts, **settings)
    shown = value["adv"] if isinstance(value, dict) else value
    assert repr(shown) in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"train_size": 0},
        {"train_size": np.nan},
        {"validation_size": -0.5},
        {"plan_kwargs": {"lr": 0}},
        {"plan_kwargs": {"lr": np.inf}},
        {"plan_kwargs": {"lr": "1e-3"}},
        {"plan_kwargs": {"eps": 0.0}},
        {"plan_kwargs": {"optimizer": "SGD"}},
        {"batch_size": 1.5},
        {"max_epochs": 1.5},
    ],
)
def test_arguments_of_training_out_of_their_limits_are_refused(arguments, trained):
    ((name, value),) = (arguments.get("plan_kwargs") or arguments).items()
    with pytest.raises(ValueError, match=name) as caught:
        trained.train(**({"max_epochs": 1} | arguments | QUIET))
    assert repr(value) in str(caught.value)


QUESTIONS = {
    "library_size=-5": lambda m: m.get_normalized_expression(library_size=-5),
    "library_size=0": lambda m: m.get_normalized_expression(library_size=0),
    "library_size=nan": lambda m: m.get_normalized_expression(library_size=np.nan),
    "n_samples=0": lambda m: m.get_normalized_expression(n_samples=0),
    "n_samples=0;": lambda m: m.predict_condition(n_samples=0),
    "n_mc_samples=0": lambda m: m.get_marginal_ll(n_mc_samples=0),
    "n_samples=0 ": lambda m: m.posterior_predictive_sample(n_samples=0),
    "n_samples=0  ": lambda m: m.get_reconstruction(n_samples=0),
    "pseudocount=inf": lambda m: m.get_condition_effect(pseudocount=np.inf),
    "pseudocount=inf ": lambda m: m.differential_expression(
        target="treated_1", reference="control", pseudocount=np.inf
    ),
    "groups=[]": lambda m: m.differential_expression(
        target="treated_1", reference="control", groupby="cell_type", groups=[]
    ),
    "old_cells='x'": lambda m: m.add_condition(new_cells(m), old_cells="x"),
    "gene_list=": lambda m: m.get_normalized_expression(gene_list=["gene_1", "gene_1"]),
    "gene_list='gene_1'": lambda m: m.get_normalized_expression(gene_list="gene_1"),
    "adata has no cells": lambda m: m.get_latent_representation(m.adata[:0].copy()),
    "batch_size=0": lambda m: m.get_latent_representation(batch_size=0),
}


def new_cells(model):
    new = model.adata[:40].copy()
    new.obs["condition"] = "new"
    return new


@pytest.mark.parametrize("says", QUESTIONS)
def test_questions_out_of_their_limits_are_refused(says, trained):
    with pytest.raises(InputError if "groups" not in says else ValueError) as caught:
        QUESTIONS[says](trained)
    assert says.strip(" ;") in str(caught.value)


def test_seeds_and_jobs_are_at_least_one(capsys):
    for option in ("--seeds", "--jobs"):
        assert main(["reproduce", "parametric", option, "-1"]) == 2
        assert f"{option} -1; give a whole number of at least 1" in capsys.readouterr().err


def test_one_cell_is_a_question_like_any_other(trained):
    one = trained.adata[[3]].copy()
    z = trained.get_latent_representation()
    np.testing.assert_allclose(trained.get_latent_representation(one)[0], z[3], rtol=1e-4, atol=1e-5)
    assert trained.predict_condition(one).shape == (1, 3)
    assert trained.predict_counterfactual(one, target="control").shape == (1, 20)
    assert trained.get_condition_effect(one, n_samples=2).shape == (1, 20)
    assert trained.get_normalized_expression(one, n_samples=3).shape == (1, 20)
    assert np.isfinite(trained.get_elbo(one))


# Rows and genes -------------------------------------------------------------------------------------------------

ASKING = {
    "latents": lambda m, rows: m.get_latent_representation(indices=rows),
    "expression": lambda m, rows: m.get_normalized_expression(indices=rows, n_samples=2).to_numpy(),
    "samples": lambda m, rows: m.get_normalized_expression(indices=rows, n_samples=2, return_mean=False)[0],
    "reconstruction": lambda m, rows: m.get_reconstruction(indices=rows, use_mean=True),
    "error": lambda m, rows: m.get_reconstruction_error(indices=rows, return_mean=False),
    "likelihood": lambda m, rows: m.get_marginal_ll(indices=rows, n_mc_samples=2, return_mean=False),
    "condition": lambda m, rows: m.predict_condition(indices=rows, n_samples=2).to_numpy(),
    "counterfactual": lambda m, rows: m.predict_counterfactual(target="control", indices=rows, n_samples=2).X,
    "effect": lambda m, rows: m.get_condition_effect(indices=rows, n_samples=2).X,
    "counts": lambda m, rows: m.posterior_predictive_sample(indices=rows).todense(),
}


@pytest.mark.parametrize("question", ASKING)
def test_indices_mean_the_same_everywhere(question, trained):
    ask = ASKING[question]
    mask = np.zeros(120, dtype=bool)
    mask[[2, 5, 119]] = True
    assert len(ask(trained, mask)) == len(ask(trained, [2, 5, 119])) == 3
    assert len(ask(trained, slice(0, 120, 40))) == len(ask(trained, [-1, 0, np.int8(3)])) == 3
    for rows, says in {
        "mask of 3 values, but there are 120": [True, False, True],
        "names no cell": [],
        "has 120, but there are 120 cells": [120],
        "has -121": [-121],
        "for names adata.obs_names.get_indexer": ["cell_1"],
        "such as np.float64": [1.5],
        "is not a list": 3,
    }.items():
        with pytest.raises(InputError) as caught:
            ask(trained, says)
        assert rows in str(caught.value)


def test_genes_come_in_the_order_they_were_asked_for(trained):
    genes = ["gene_7", "gene_1", "gene_12"]
    for arguments in ({"n_samples": 3}, {"n_samples": 3, "return_numpy": True}, {"n_samples_overall": 5}):
        found = trained.get_normalized_expression(gene_list=genes, **arguments)
        assert found.shape[-1] == 3
        if isinstance(found, pd.DataFrame):
            assert list(found.columns) == genes
    import torch

    torch.manual_seed(0)
    whole = trained.get_normalized_expression()
    torch.manual_seed(0)
    pd.testing.assert_frame_equal(trained.get_normalized_expression(gene_list=genes), whole[genes])
    assert list(trained.get_condition_effect(gene_list=genes, n_samples=2).var_names) == genes
