"""Whatever is given, the outcome is a finite answer or an error of the package that says what to change."""

from __future__ import annotations

import logging
import traceback
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scvi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import discovr_sc
from discovr_sc import data

PACKAGE = str(Path(discovr_sc.__file__).parent)
METHODS = ["DISCOVR", "CSVAE", "HCSVAE", "DIVA", "CCVAE", "CVAE"]
QUIET = {"enable_progress_bar": False}
#: How many inputs of each kind; ten times as many in ``make test-long``.
N_INPUTS = {"setup": 60, "settings": 40, "training": 30, "questions": 70}


def check_error(error: Exception, inputs: object) -> None:
    """An error of the package is raised by its own code, and is a sentence on what was given and what to do."""
    assert isinstance(error, ValueError | TypeError | KeyError | OSError), (inputs, repr(error))
    home = traceback.extract_tb(error.__traceback__)[-1].filename
    assert home.startswith(PACKAGE), f"{inputs}: {error!r} comes from {home}"
    assert len(str(error)) > 20, (inputs, error)
    assert any(mark in str(error) for mark in (";", ".", ":")), (inputs, error)


def check_finite(answer: object, inputs: object) -> None:
    if isinstance(answer, anndata.AnnData):
        # Cells of unknown condition have none that they come from.
        obs = answer.obs.drop(columns="source_condition", errors="ignore")
        for part in (answer.X, obs, answer.var, *answer.layers.values(), *answer.obsm.values()):
            if part is not None:
                check_finite(part, inputs)
    elif isinstance(answer, pd.DataFrame):
        check_finite(answer.select_dtypes("number").to_numpy(float), inputs)
    elif isinstance(answer, tuple | list):
        for part in answer:
            check_finite(part, inputs)
    elif answer is not None:
        values = answer.todense() if hasattr(answer, "todense") else answer
        assert np.isfinite(np.asarray(values, dtype=float)).all(), f"{inputs}: not finite"


def outcome(ask, inputs: object) -> object:
    """The answer, which is finite, or None where the package refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = ask()
        except Exception as error:
            check_error(error, inputs)
            return None
    check_finite(answer, inputs)
    return answer


def run(kind: str, strategy, body, times: int) -> None:
    @settings(
        max_examples=N_INPUTS[kind] * times,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def test(inputs):
        for name in ("lightning.pytorch", "scvi"):
            logging.getLogger(name).setLevel(logging.ERROR)
        scvi.settings.seed = 0
        body(inputs)

    test()


def cells(n=40, seed=0):
    adata = data.simulate_counts(n_cells=n, n_genes=8, n_types=2, n_conditions=3, n_effect_genes=2, seed=seed)
    rng = np.random.default_rng(seed)
    adata.obs["lane"] = rng.choice(["a", "b"], n)
    adata.obs["age"] = rng.normal(size=n)
    adata.obs["size"] = rng.uniform(1, 2, n)
    return adata


# Setup ----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "good": lambda n: ["a", "b"] * (n // 2) + ["a"] * (n % 2),
    "one": lambda n: ["a"] * n,
    "unique": lambda n: [f"c{i}" for i in range(n)],
    "floats": lambda n: list(np.linspace(0, 1, n)),
    "numbers": lambda n: [i % 2 for i in range(n)],
    "booleans": lambda n: [i % 2 == 0 for i in range(n)],
    "mixed": lambda n: [1 if i % 2 else "1" for i in range(n)],
    "missing": lambda n: [None if i % 3 else "a" for i in range(n)],
    "unknown": lambda n: [["a", "b", "?"][i % 3] for i in range(n)],
    "empty names": lambda n: ["" if i % 2 else " " for i in range(n)],
    "objects": lambda n: [(i % 2,) for i in range(n)],
    "infinite": lambda n: [np.inf if i % 2 else 1.0 for i in range(n)],
}
CHANGES = {
    "none": lambda x: x,
    "nan": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, np.nan, x),
    "inf": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, np.inf, x),
    "negative": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, -2, x),
    "fraction": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, 0.5, x),
    "huge": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, 1e38, x),
    "large": lambda x: x * 1e6,
    "empty cell": lambda x: np.where(np.arange(len(x))[:, None] == 1, 0, x),
    "zeros": lambda x: x * 0,
    "logs": lambda x: np.log1p(x),
    "objects": lambda x: x.astype(object),
    "strings": lambda x: x.astype(str),
    "booleans": lambda x: x > 0,
    "complex": lambda x: x.astype(complex),
}
STORES = {
    "dense": np.asarray,
    "integers": lambda x: np.nan_to_num(np.asarray(x, float), posinf=9).astype(np.int32),
    "doubles": lambda x: np.asarray(x, np.float64),
    "csr": lambda x: sparse.csr_matrix(np.asarray(x, np.float32)),
    "csc": lambda x: sparse.csc_matrix(np.asarray(x, np.float32)),
    "csr_array": lambda x: sparse.csr_array(np.asarray(x, np.float32)),
}
SETUP = st.fixed_dictionaries(
    {
        "n": st.sampled_from([0, 1, 2, 5, 30, 30, 30]),
        "genes": st.sampled_from([0, 1, 2, 8, 8, 8]),
        "change": st.sampled_from(["none"] * 8 + list(CHANGES)),
        "store": st.sampled_from(["csr"] * 3 + list(STORES)),
        "condition": st.sampled_from(["good"] * 6 + list(COLUMNS)),
        "batch": st.sampled_from(["good"] * 3 + list(COLUMNS)),
        "condition_key": st.sampled_from(
            ["condition"] * 8
            + ["nope", None, [], ["condition", "batch"], ["condition", "condition"], 3, ("condition",)]
        ),
        "batch_key": st.sampled_from([None] * 4 + ["batch", "condition", ["batch"], "nope", 1]),
        "layer": st.sampled_from([None] * 6 + ["counts", "nope", 3]),
        "size_factor_key": st.sampled_from([None] * 6 + ["batch", "nope", "size", ["size"]]),
        "continuous_covariate_keys": st.sampled_from([None] * 6 + [["size"], "size", ["batch"], []]),
        "categorical_covariate_keys": st.sampled_from([None] * 6 + [["batch"], "batch", ["nope"], []]),
        "unlabeled_category": st.sampled_from([None] * 4 + ["?", "a", 3]),
        "likelihood": st.sampled_from(["zinb", "zinb", "nb", "gaussian", "bernoulli", "poisson", None]),
    }
)


def try_setup(inputs: dict) -> None:
    inputs = dict(inputs)
    n, genes = inputs.pop("n"), inputs.pop("genes")
    x = np.random.default_rng(0).poisson(2.0, (n, genes)).astype(np.float32) + (np.arange(genes) == 0)
    try:
        x = STORES[inputs.pop("store")](CHANGES[inputs.pop("change")](x))
    except (TypeError, ValueError):
        return  # numpy cannot store such values so
    obs = {
        name: pd.Series(COLUMNS[inputs.pop(name)](n), dtype=object).infer_objects() for name in ("condition", "batch")
    }
    try:
        adata = anndata.AnnData(
            x, obs=pd.DataFrame(obs | {"size": np.linspace(1, 2, n)}, index=[f"c{i}" for i in range(n)])
        )
    except (TypeError, ValueError):
        return
    adata.layers["counts"] = adata.X.copy()
    likelihood = inputs.pop("likelihood")

    def ask():
        discovr_sc.DISCOVR.setup_anndata(adata, **inputs)
        model = discovr_sc.DISCOVR(adata, likelihood=likelihood, n_hidden=4, n_latent_z=2, n_components_z=2)
        model.train(1, batch_size=16, **QUIET)
        return model.get_latent_representation()

    outcome(ask, inputs | {"likelihood": likelihood})


# Settings and training ------------------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 3, -1, 0.5, 1.5, np.nan, np.inf, "2", None, True, [1], 1e-3]
NAMES = ["x", None, 3, "", "latent", "both", "learned", "standard", "mapped", "gene", "nb", "zinb", "mlp", "cnn"]
SETTINGS = {
    **dict.fromkeys(
        ["n_latent_z", "n_latent_w", "n_hidden", "n_layers", "dropout_rate", "noise_scale", "n_hidden_adversary"],
        NUMBERS,
    ),
    **dict.fromkeys(
        ["n_layers_adversary", "n_components_z", "narrow_z", "n_latent_u", "n_classifier_samples"], NUMBERS
    ),
    **{key: [True, False, "no", None, 1] for key in ["use_batch_norm", "classifier_batch_norm", "encode_covariates"]},
    **dict.fromkeys(["likelihood", "prior", "network", "adversary", "dispersion", "zero_inflation", "prior_z"], NAMES),
    "weights": [
        None,
        {},
        {"adv": 0},
        {"adv": -1},
        {"kl_z": np.nan},
        {"rec": 1e30},
        {"x": 1},
        3,
        {"mmd": 10},
        {"adv": "1"},
    ],
    "channels": [None, [4], (4, 4, 8, 8), "x", 3],
    "mmd_bandwidths": [(), (1.0,), (-1,), (np.nan,), "x", 3],
}


def some_of(pools: dict, most: int):
    """Dictionaries of a few entries, their values from pools."""
    chosen = st.lists(st.sampled_from(list(pools)), max_size=most, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: st.sampled_from(pools[name]) for name in names}))


def try_settings(inputs: tuple) -> None:
    method, given_settings = inputs
    adata = cells()
    model_cls = getattr(discovr_sc, method)
    model_cls.setup_anndata(adata, "condition", batch_key="lane", continuous_covariate_keys=["age"])

    def ask():
        model = model_cls(adata, **({"n_hidden": 4, "n_latent_z": 3, "n_latent_w": 3} | given_settings))
        model.train(1, batch_size=20, **QUIET)
        return [model.get_latent_representation(kind=kind) for kind in model.latents]

    outcome(ask, inputs)


TRAINING = {
    "max_epochs": [1, 2, 0, -1, 1.5, "2", True, np.int64(1)],
    "batch_size": [2, 16, 1000, 1, 0, -3, 2.5, "16", np.int64(8)],
    "train_size": [0.5, 0.9, 1.0, 1, 0, -0.1, 1.5, np.nan, "0.5", None, 0.05],
    "validation_size": [0.1, 0.0, 0.9, -0.1, np.nan, None, "x"],
    "early_stopping": [True, False],
    "balance_conditions": [True, False],
    "plan_kwargs": [{name: v} for name in ("lr", "adversary_lr", "prior_lr", "final_decay") for v in (*NUMBERS, 1e6)]
    + [{name: v} for name in ("eps", "weight_decay", "gradient_clip", "n_adversary_steps") for v in NUMBERS]
    + [{"n_epochs_kl_warmup": v} for v in NUMBERS]
    + [{"optimizer": "x"}, {"nope": 1}, None, {}],
}


def try_training(inputs: tuple) -> None:
    method, arguments = inputs
    adata = cells()
    model_cls = getattr(discovr_sc, method)
    model_cls.setup_anndata(adata, "condition", batch_key="lane")
    model = model_cls(adata, n_hidden=4, n_latent_z=3, n_latent_w=3)

    def ask():
        model.train(**({"max_epochs": 1, "batch_size": 20} | arguments | QUIET))
        return [model.get_latent_representation(), model.history_["train_loss"]]

    outcome(ask, inputs)
    if model.is_trained:  # a training that failed leaves nothing that is not finite
        outcome(model.get_latent_representation, inputs)


# Questions ------------------------------------------------------------------------------------------------------

ROWS = [
    None,
    None,
    None,
    [0],
    [5, 3],
    [],
    [1.5],
    [99],
    [-1],
    "x",
    3,
    slice(3),
    slice(3, 3),
    [True] * 40,
    [True],
    ["c1"],
    [[0]],
]
SAMPLES = [1, 2, 3, 0, -1, 1.5, "2", None, True]
TARGETS = ["control", "treated_1", "nope", None, 1]
SIZES = [None, 1, 7, 1000, 0, -1, 1.5, "x"]
LIBRARY = [1, 1e4, 0, -5, np.nan, np.inf, "latent", "x", None]
GENES = [None, ["gene_3", "gene_1"], [], ["nope"], "gene_1", ["gene_1", "gene_1"], 3]
KINDS = ["full", "marginal", "x", None]
POSITIVE = [0.1, 1, 0, -1, np.nan, np.inf, "x", None]
ADATAS = ["own", "own", "own", "same", "few", "one", "none", "genes", "nan", "relabelled", "unlabelled", "string"]
QUESTIONS = {
    "get_latent_representation": {
        "indices": ROWS,
        "kind": ["z", "w", "zw", "x", None],
        "use_mean": [True, False],
        "return_dist": [True, False],
        "batch_size": SIZES,
    },
    "get_normalized_expression": {
        "indices": ROWS,
        "kind": KINDS,
        "gene_list": GENES,
        "library_size": LIBRARY,
        "n_samples": SAMPLES,
        "return_mean": [True, False],
        "transform_batch": [None, "a", ["a", "b"], "nope", 3],
        "batch_size": SIZES,
    },
    "get_reconstruction": {"indices": ROWS, "kind": KINDS, "n_samples": SAMPLES, "use_mean": [True, False]},
    "get_reconstruction_error": {"indices": ROWS, "kind": KINDS, "batch_size": SIZES, "return_mean": [True, False]},
    "get_marginal_ll": {"indices": ROWS, "kind": KINDS, "n_mc_samples": SAMPLES},
    "get_elbo": {"indices": ROWS},
    "posterior_predictive_sample": {"indices": ROWS, "kind": KINDS, "n_samples": SAMPLES},
    "predict_condition": {
        "indices": ROWS,
        "n_samples": SAMPLES,
        "key": [None, "condition", "nope"],
        "batch_size": SIZES,
    },
    "predict_counterfactual": {
        "target": TARGETS,
        "indices": ROWS,
        "n_samples": SAMPLES,
        "kind": ["scale", "counts", "x"],
        "by": [None, "neighbor-shift", "neighbors", "prior", "posterior", "x"],
        "n_neighbors": [1, 200, 0, 1.5, "x"],
        "cell_type_key": [None, "cell_type", "nope"],
        "keep_noise": [True, False],
        "batch_size": SIZES,
    },
    "differential_expression": {
        "target": TARGETS,
        "reference": TARGETS,
        "groupby": [None, "cell_type", "nope"],
        "groups": [None, [], ["nope"], "nope"],
        "mode": ["observed", "counterfactual", "x"],
        "delta": POSITIVE,
        "fdr": POSITIVE,
        "pseudocount": POSITIVE,
        "n_samples": [20, 0, 1.5],
    },
    "get_condition_effect": {
        "reference": TARGETS,
        "indices": ROWS,
        "gene_list": GENES,
        "n_samples": [2, 3, 1, 0, "x"],
        "level": POSITIVE,
        "pseudocount": POSITIVE,
        "per_cell": [True, False],
    },
}
ASKED = st.sampled_from(list(QUESTIONS)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(ADATAS), some_of(QUESTIONS[name], 3))
)


def variant_of(adata, name: str):
    """Cells to ask about."""
    if name == "own":
        return None
    if name == "string":
        return "cells.h5ad"
    rows = {"few": 5, "one": 1, "none": 0}.get(name, adata.n_obs)
    other = adata[:rows].copy()
    if name == "genes":
        return other[:, ::-1].copy()
    if name == "nan":
        other.X = other.X.astype(np.float32)
        other.X.data[0] = np.nan
    if name == "relabelled":
        other.obs["condition"] = "new"
    if name == "unlabelled":
        other.obs = other.obs.drop(columns="condition")
    return other


@pytest.fixture(scope="module")
def models():
    """Trained models of three methods."""
    found = []
    for method in ("DISCOVR", "CSVAE", "CVAE"):
        adata = cells()
        model_cls = getattr(discovr_sc, method)
        model_cls.setup_anndata(adata, "condition", batch_key="lane")
        model = model_cls(adata, n_hidden=4, n_latent_z=3, n_latent_w=3)
        model.train(1, batch_size=20, **QUIET)
        found.append(model)
    return found


def try_questions(models):
    def body(inputs):
        (name, which, arguments), model = inputs[0], models[inputs[1]]
        defaults = {"target": "control"} if name == "predict_counterfactual" else {}
        if name == "differential_expression":
            defaults = {"target": "treated_1", "reference": "control", "n_samples": 20}
        if name in ("predict_condition", "get_marginal_ll"):
            defaults = {"n_samples" if name == "predict_condition" else "n_mc_samples": 4}
        asked = variant_of(model.adata, which)
        outcome(lambda: getattr(model, name)(asked, **(defaults | arguments)), (type(model).__name__, *inputs[0]))

    return body


# Tests --------------------------------------------------------------------------------------------------------------

TIMES = [1, pytest.param(10, marks=pytest.mark.long)]
METHOD_AND = {"settings": some_of(SETTINGS, 3), "training": some_of(TRAINING, 3)}


@pytest.mark.parametrize("times", TIMES)
def test_setup(times):
    run("setup", SETUP, try_setup, times)


@pytest.mark.parametrize("times", TIMES)
def test_settings(times):
    run("settings", st.tuples(st.sampled_from(METHODS), METHOD_AND["settings"]), try_settings, times)


@pytest.mark.parametrize("times", TIMES)
def test_training(times):
    run("training", st.tuples(st.sampled_from(METHODS), METHOD_AND["training"]), try_training, times)


@pytest.mark.parametrize("times", TIMES)
def test_questions(times, models):
    run("questions", st.tuples(ASKED, st.integers(0, 2)), try_questions(models), times)
