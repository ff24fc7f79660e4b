"""Checks of an AnnData, all before anything is written to it; errors name the place, the value and the fix."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from itertools import product
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scvi import REGISTRY_KEYS, settings

from discovr_sc.errors import InputError, InputTypeError, MissingKeyError
from discovr_sc.model.conditions import condition_keys, conditions_of, known_conditions
from discovr_sc.model.values import check_finite

#: A column of that many different floats is a measurement, not a condition.
MANY_NUMBERS = 20
#: That many conditions with so few cells each are hardly meant.
MANY_CONDITIONS, FEW_CELLS = 10, 10
#: Cells from which a trained model can learn a new condition.
MIN_NEW_CELLS = 20


def check_setup(adata: AnnData, arguments: dict[str, Any]) -> None:
    """Check an AnnData that is to be trained on; ``arguments`` are those of ``setup_anndata``."""
    check_condition(adata, arguments["condition_key"], arguments.get("unlabeled_category"))
    _check_covariates(adata, arguments)
    _check_told_apart(adata, arguments)
    if arguments.get("cell_type_key") is not None:
        _check_cell_types(adata, arguments)
    check_finite(*find_data(adata, arguments["layer"], arguments["tensor_key"]))


def check_query(
    adata: AnnData, registry: dict, *, extend_categories: bool = False, extend_conditions: bool = False
) -> None:
    """Check an AnnData that a trained model is asked about, against the registry of its training data."""
    arguments = registry["setup_args"]
    if adata.n_obs == 0:
        raise InputError("adata has no cells; give at least one.")
    states = {key: field["state_registry"] for key, field in registry["field_registries"].items()}
    if arguments["tensor_key"] is None:
        check_genes(adata, states[REGISTRY_KEYS.X_KEY]["column_names"])
    _check_covariates(adata, arguments)
    check_finite(*find_data(adata, arguments["layer"], arguments["tensor_key"]))
    condition_key = arguments["condition_key"]
    if all(key in adata.obs for key in condition_keys(condition_key)):
        found = conditions_of(adata.obs, condition_key, arguments.get("unlabeled_category"))
        known_table = known_conditions(registry)
        for condition, labels in known_table.items():
            if found.table.get(condition, labels) != labels:
                raise ValueError(
                    f"adata.obs[{condition_key!r}] has the labels {found.table[condition]}, whose name {condition!r} "
                    f"the model has for {labels}; rename one of them."
                )
        if not extend_conditions:
            fix = (
                "Rename the category, leave it missing (NaN) where the condition is unknown, drop these cells, or "
                "teach the model the new condition with add_condition."
            )
            check_known_categories(found.of_cells, condition_key, list(known_table), fix)
    known = {}
    if not extend_categories:
        if arguments["batch_key"] is not None:
            known[arguments["batch_key"]] = states[REGISTRY_KEYS.BATCH_KEY]["categorical_mapping"]
        known |= states[REGISTRY_KEYS.CAT_COVS_KEY].get("mappings", {})
    for key, categories in known.items():
        fix = "Rename the category, drop these cells, or adapt the model to it with load_query_data."
        check_known_categories(adata.obs[key], key, categories, fix)


def check_new_conditions(adata: AnnData, registry: dict) -> None:
    """Check cells that are to teach a trained model new conditions."""
    arguments = registry["setup_args"]
    keys = condition_keys(arguments["condition_key"])
    check_columns(adata, keys, "condition_key")
    check_query(adata, registry, extend_conditions=True, extend_categories=True)
    of_cells, _ = conditions_of(adata.obs, arguments["condition_key"], arguments.get("unlabeled_category"))
    n_missing = int(of_cells.isna().sum())
    if n_missing:
        raise ValueError(
            f"condition_key {arguments['condition_key']!r} has no label for {n_missing} of {adata.n_obs} cells; new "
            "conditions are learned from cells that have one. Drop the others."
        )
    known = known_conditions(registry)
    old = [name for name in of_cells.cat.categories if name in known]
    if old:
        raise ValueError(
            f"adata has cells of {old[0]!r}, which the model knows; give cells of new conditions only, and old ones as "
            "old_cells=..."
        )
    counts = of_cells.value_counts()
    if counts.empty or counts.min() < MIN_NEW_CELLS:
        few = f"{counts.min()} cells of {counts.idxmin()!r}" if len(counts) else "no cells"
        raise ValueError(f"adata has {few}; a new condition needs at least {MIN_NEW_CELLS}.")


def find_data(adata: AnnData, layer: str | None, tensor_key: str | None) -> tuple[Any, str]:
    """The data to model, and its name for messages."""
    if tensor_key is not None:
        if layer is not None:
            raise ValueError(f"layer={layer!r} and tensor_key={tensor_key!r} both name the data; give one of them.")
        if tensor_key not in adata.obsm:
            raise MissingKeyError(f"tensor_key {tensor_key!r} is not in adata.obsm; it has {list(adata.obsm)}.")
        if not isinstance(adata.obsm[tensor_key], np.ndarray):
            raise InputTypeError(
                f"adata.obsm[{tensor_key!r}] is a {type(adata.obsm[tensor_key]).__name__}; store a numpy array there."
            )
        return adata.obsm[tensor_key], f"adata.obsm[{tensor_key!r}]"
    if layer is not None:
        if layer not in adata.layers:
            raise MissingKeyError(f"layer {layer!r} is not in adata.layers; it has {list(adata.layers)}.")
        return adata.layers[layer], f"adata.layers[{layer!r}]"
    if adata.X is None or adata.n_vars == 0:
        raise ValueError("adata.X is empty; name the data with layer=... or, for an array in obsm, tensor_key=...")
    return adata.X, "adata.X"


# Columns of obs -------------------------------------------------------------------------------------------------


def check_condition(adata: AnnData, condition_key: str | Sequence[str], unlabeled_category: str | None = None) -> None:
    """Raise where a column, or several together, cannot serve as the condition."""
    is_list = isinstance(condition_key, list | tuple) and all(isinstance(key, str) for key in condition_key)
    if not (isinstance(condition_key, str) or is_list):
        raise InputTypeError(
            f"condition_key={condition_key!r}; give the name of a column of adata.obs, or a list of names."
        )
    keys = condition_keys(condition_key)
    if not keys:
        raise ValueError("condition_key is an empty list; name at least one column of adata.obs.")
    if len(set(keys)) < len(keys):
        raise ValueError(f"condition_key {condition_key!r} names a column twice; name every column once.")
    check_columns(adata, keys, "condition_key")
    for key in keys:
        values = adata.obs[key]
        if pd.api.types.is_float_dtype(values) and values.nunique() > MANY_NUMBERS:
            raise ValueError(
                f"condition_key {key!r} holds {values.nunique()} different numbers; conditions are categories: cut the "
                "column into groups, or give another."
            )
        _check_labels(values, key, "condition_key")
        if pd.api.types.is_float_dtype(values) and (values.dropna() % 1 != 0).any():
            _say(f"condition_key {key!r} holds fractional numbers; each of the {values.nunique()} is a condition.")
    of_cells, _ = conditions_of(adata.obs, condition_key, unlabeled_category)
    n_missing = int(of_cells.isna().sum())
    if n_missing and unlabeled_category is None:
        raise ValueError(
            f"condition_key {condition_key!r} has no label for {n_missing} of {adata.n_obs} cells; drop them "
            f"(adata[adata.obs[{keys}].notna().all(axis=1)].copy()), fill in their condition, or say with "
            "unlabeled_category=... that it is unknown."
        )
    counts = of_cells.value_counts()
    if len(counts) < 2:
        has = f"one category, {counts.index[0]!r}" if len(counts) else "no label at all"
        raise ValueError(
            f"condition_key {condition_key!r} has {has}; discovr_sc needs at least two conditions to tell apart."
        )
    if counts.min() < 2:
        raise ValueError(
            f"condition_key {condition_key!r} has one cell only of {counts.idxmin()!r}; drop it, or join it to another "
            "condition."
        )
    if len(counts) >= MANY_CONDITIONS and counts.median() < FEW_CELLS:
        _say(
            f"condition_key {condition_key!r} has {len(counts)} conditions, half of them with {counts.median():g} "
            "cells or fewer: too few to learn what a condition changes. Is it the right column?"
        )


def _check_labels(values: pd.Series, key: str, argument: str) -> None:
    """Raise where labels are of types that would be mixed up, or could not be saved."""
    labels = values.cat.categories if isinstance(values.dtype, pd.CategoricalDtype) else values.dropna().unique()
    kinds = {bool if isinstance(x, bool | np.bool_) else str if isinstance(x, str) else Real for x in labels}
    strange = [x for x in labels if not isinstance(x, str | Real | np.bool_)]
    if strange or len(kinds) > 1:
        has = f"the label {strange[0]!r}, a {type(strange[0]).__name__}" if strange else "labels of several types"
        raise InputTypeError(f"{argument} {key!r} has {has}; use adata.obs[{key!r}].astype(str).")


def _check_told_apart(adata: AnnData, arguments: dict[str, Any]) -> None:
    """Raise where a batch or covariate is the condition under another name."""
    of_cells, _ = conditions_of(adata.obs, arguments["condition_key"], arguments.get("unlabeled_category"))
    for argument in ("batch_key", "categorical_covariate_keys"):
        keys = arguments[argument] or []
        for key in [keys] if isinstance(keys, str) else keys:
            pairs = pd.DataFrame(
                {"condition": of_cells.astype(object), "other": adata.obs[key].astype(object)}
            ).dropna()
            n_pairs = len(pairs.drop_duplicates())
            if n_pairs > 1 and n_pairs == pairs["condition"].nunique() == pairs["other"].nunique():
                raise InputError(
                    f"{argument} {key!r} is the condition under other names: decoders that see it beside z cannot "
                    f"average the condition out. Leave it out of {argument}."
                )


def _check_cell_types(adata: AnnData, arguments: dict[str, Any]) -> None:
    """Raise where a column cannot serve as the cell type; missing values are unknown types."""
    key = arguments["cell_type_key"]
    if not isinstance(key, str):
        raise InputTypeError(f"cell_type_key={key!r}; give the name of a column of adata.obs.")
    check_columns(adata, [key], "cell_type_key")
    if key in condition_keys(arguments["condition_key"]):
        raise InputError(
            f"cell_type_key and condition_key both name {key!r}: z would be free to tell the condition. Name the "
            "column of cell types, or leave cell_type_key out."
        )
    _check_labels(adata.obs[key], key, "cell_type_key")
    types = adata.obs[key].dropna()
    if types.empty:
        raise InputError(f"cell_type_key {key!r} has no value for any cell; name another column, or leave it out.")
    if types.nunique() > len(types) / 2:
        raise InputError(
            f"cell_type_key {key!r} has {types.nunique()} different values for {len(types)} cells; name a column of "
            "groups, or leave it out."
        )
    of_cells, _ = conditions_of(adata.obs, arguments["condition_key"], arguments.get("unlabeled_category"))
    if of_cells.groupby(adata.obs[key].astype(object)).nunique().max() < 2:
        _say(
            f"cell_type_key {key!r} has no type that two conditions have: nothing is aligned, and z tells the "
            "condition. Give types that conditions share, or leave it out."
        )


def _say(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=settings.warnings_stacklevel)


def _check_covariates(adata: AnnData, arguments: dict[str, Any]) -> None:
    """Batch, covariates and size factors: there, complete, and numbers where numbers are needed."""
    for argument in ("batch_key", "size_factor_key", "layer", "tensor_key"):
        if not isinstance(arguments.get(argument), str | None):
            raise InputTypeError(f"{argument}={arguments[argument]!r}; give one name.")
    for argument, condition in product(
        ("batch_key", "categorical_covariate_keys"), condition_keys(arguments["condition_key"])
    ):
        keys = arguments[argument] or []
        if condition in ([keys] if isinstance(keys, str) else keys):
            raise ValueError(
                f"{argument} and condition_key both name {condition!r}: decoders that see the condition beside z "
                f"cannot average it out. Leave it out of {argument}."
            )
    batch, size_factor = (
        [] if arguments[key] is None else [arguments[key]] for key in ("batch_key", "size_factor_key")
    )
    categorical, continuous = (
        _as_list(arguments[key], key) for key in ("categorical_covariate_keys", "continuous_covariate_keys")
    )
    for argument, keys in {"batch_key": batch, "categorical_covariate_keys": categorical}.items():
        check_columns(adata, keys, argument)
        for key in keys:
            if adata.obs[key].isna().any():
                raise ValueError(f"{argument} {key!r} has missing values; fill them in or drop these cells.")
            _check_labels(adata.obs[key], key, argument)
    for argument, keys in {"size_factor_key": size_factor, "continuous_covariate_keys": continuous}.items():
        check_columns(adata, keys, argument)
        for key in keys:
            _check_numbers(adata.obs[key], key, argument, positive=argument == "size_factor_key")


def _as_list(keys: Sequence[str] | None, argument: str) -> list[str]:
    if isinstance(keys, str):
        raise InputTypeError(f"{argument}={keys!r} is one string; give a list, [{keys!r}].")
    return list(keys or [])


def _check_numbers(values: pd.Series, key: str, argument: str, *, positive: bool) -> None:
    if not pd.api.types.is_numeric_dtype(values):
        raise InputTypeError(f"{argument} {key!r} holds {values.dtype} values; it needs numbers.")
    if not np.isfinite(values.to_numpy(dtype=float)).all():
        raise ValueError(f"{argument} {key!r} has values that are not finite; fill them in or drop these cells.")
    if positive and (values <= 0).any():
        raise ValueError(f"{argument} {key!r} has the value {values.min():.4g}; size factors must be above 0.")


def check_columns(adata: AnnData, keys: Sequence[str], argument: str) -> None:
    """Raise where ``obs`` lacks a column."""
    for key in keys:
        if key not in adata.obs:
            raise MissingKeyError(f"{argument} {key!r} is not a column of adata.obs; it has {list(adata.obs.columns)}.")


def check_known_categories(values: pd.Series, key: str | Sequence[str], known: Sequence, fix: str) -> None:
    """Raise where a column has a category that the model has not seen; missing values pass."""
    unseen = pd.Index(values.dropna().unique()).difference(pd.Index(known))
    if len(unseen):
        raise ValueError(
            f"adata.obs[{key!r}] has the category {unseen[0]!r}, which the model was not trained on; it knows "
            f"{list(known)}. {fix}"
        )


# Values ---------------------------------------------------------------------------------------------------------


def check_genes(adata: AnnData, expected: Sequence[str]) -> None:
    """Raise where a query does not have the model's genes in the model's order."""
    if list(adata.var_names) == list(expected):
        return
    missing = pd.Index(expected).difference(adata.var_names)
    if len(missing):
        raise ValueError(
            f"adata lacks {len(missing)} of the {len(expected)} genes that the model was trained on (the first is "
            f"{missing[0]!r}); train on the genes that both have, or fill them with zeros by prepare_query_anndata."
        )
    raise ValueError(
        "adata has the model's genes in another order, or more genes; take adata[:, model.get_var_names()].copy()."
    )


def check_gene_list(genes: Sequence[str], known: Sequence[str]) -> None:
    """Raise where a gene is not one of the model's, or is named twice."""
    if isinstance(genes, str):
        raise InputTypeError(f"gene_list={genes!r} is one string; give a list, [{genes!r}].")
    if not hasattr(genes, "__len__"):
        raise InputTypeError(f"gene_list={genes!r} is a {type(genes).__name__}; give a list of names of genes.")
    if len(genes) == 0 or len(set(genes)) < len(genes):
        raise InputError(
            f"gene_list={list(genes)} {'names a gene twice' if len(genes) else 'is empty'}; name genes once."
        )
    unknown = pd.Index(genes).difference(pd.Index(known))
    if len(unknown):
        raise ValueError(f"gene_list has {unknown[0]!r}, which is not among the model's {len(known)} genes.")


def check_whole_number(argument: str, value: int, *, at_least: int) -> None:
    """Raise unless an argument is a whole number that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise InputError(f"{argument}={value!r}; give a whole number of at least {at_least}.")


def check_number(argument: str, value: Any, *, above: float, below: float = np.inf) -> None:
    """Raise unless an argument is a finite number between two."""
    if isinstance(value, bool) or not isinstance(value, Real) or not above < float(value) < below:
        most = f" and below {below:g}" if below < np.inf else ""
        raise InputError(f"{argument}={value!r}; give a finite number above {above:g}{most}.")


def check_names(function: str, arguments: Iterable[str], known: Sequence[str]) -> None:
    """Raise where a function is given an argument that it does not take."""
    for name in arguments:
        if name not in known:
            raise TypeError(f"{function} does not take {name!r}; beside those of its signature it takes {list(known)}.")
