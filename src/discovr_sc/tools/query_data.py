"""Teaching a trained model what it has not seen: new batches (scArches), and new conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anndata
import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi import settings

from discovr_sc._scvi import pad_and_sort_genes
from discovr_sc.errors import InputTypeError
from discovr_sc.model.checks import check_new_conditions, check_query
from discovr_sc.model.storage import VAR_NAMES, read_model
from discovr_sc.module.surgery import grow

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Cells that the training of a new condition shows the model by default, counted again in every epoch.
CELLS_TO_SEE = 80_000

Model = TypeVar("Model", bound="ModelInterface")


def load_query_data(
    model_cls: type[Model],
    adata: AnnData,
    reference_model: str | Path | Model,
    *,
    inplace_subset_query_vars: bool = False,
    unfrozen: bool = False,
    accelerator: str = "auto",
    device: int | str = "auto",
) -> Model:
    """A model for cells of new batches (or new categories of covariates) that starts from a trained one (scArches).

    Training then changes only what belongs to the new categories: their columns of the decoders and, with
    ``encode_covariates``, of the encoders; with ``dispersion="gene-batch"`` their dispersions. The adversary plays
    on. All else is as in the reference, batch normalisation and condition means included, so that cells of the old
    batches keep their latents and reconstructions. (scvi-tools' own freezing would also train the columns
    of the conditions, and with them the w of old cells.)

    Parameters
    ----------
    adata
        New cells, with the columns that the reference was set up with; conditions as in the reference. Cells of
        unknown condition teach the decoder of z alone.
    reference_model
        A trained model, or the folder of a saved one.
    inplace_subset_query_vars
        Take the reference's genes, in its order, from ``adata``; see also :meth:`prepare_query_anndata`.
    unfrozen
        Train everything.
    accelerator, device
        See :meth:`scvi.model.SCVI.load`.

    Returns
    -------
    A model to :meth:`train`, on the new cells alone.

    Examples
    --------
    >>> from discovr_sc import DISCOVR, data
    >>> adata = data.simulate_counts(n_cells=300, n_genes=50, n_batches=3)
    >>> is_new = adata.obs["batch"] == "batch_2"
    >>> old, new = adata[~is_new].copy(), adata[is_new].copy()
    >>> DISCOVR.setup_anndata(old, condition_key="condition", batch_key="batch")
    >>> reference = DISCOVR(old)
    >>> reference.train(max_epochs=1, enable_progress_bar=False)
    >>> model = DISCOVR.load_query_data(new, reference)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation().shape
    (100, 10)
    """
    place = {"accelerator": accelerator, "device": device}
    if isinstance(reference_model, str | Path):
        reference_model = model_cls.load(str(reference_model), adata=False, **place)
    if not isinstance(reference_model, model_cls):
        raise TypeError(
            f"reference_model is a {type(reference_model).__name__}; give a trained {model_cls.__name__}, or its "
            "folder."
        )
    reference_model.check_trained()
    model = model_cls.from_reference(
        adata, reference_model, inplace_subset_query_vars=inplace_subset_query_vars, **place
    )
    is_new = grow(reference_model.module, model.module)
    if not is_new and not unfrozen:
        raise ValueError(
            "adata has no batch and no category of a covariate that the reference does not know, so there is "
            "nothing to learn; pass adata to the reference's methods, or set unfrozen=True to train it further."
        )
    model.plan_defaults_, model.trainable_ = dict(reference_model.plan_defaults_), None
    if not unfrozen:
        _train_only(model, is_new)
    return model


def prepare_query_anndata(
    adata: AnnData,
    reference_model: str | Path | ModelInterface,
    return_reference_var_names: bool = False,
    inplace: bool = True,
) -> AnnData | pd.Index | None:
    """Give query data the reference's genes in its order; missing ones are filled with zeros.

    Parameters
    ----------
    adata, reference_model
        See :meth:`load_query_data`.
    return_reference_var_names
        Return the reference's genes only.
    inplace
        Change ``adata``, or else return a new AnnData.

    Examples
    --------
    >>> shuffled = adata[:, ::-1][:, :45].copy()
    >>> list(model.prepare_query_anndata(shuffled, model, inplace=False).var_names) == list(adata.var_names)
    True
    """
    if isinstance(reference_model, str | Path):
        genes = pd.Index(read_model(reference_model)[VAR_NAMES])
    else:
        genes = pd.Index(reference_model.get_var_names())
    return genes if return_reference_var_names else pad_and_sort_genes(adata, genes, inplace)


def add_condition(
    model: Model, adata: AnnData, *, old_cells: AnnData | bool = True, max_epochs: int | None = None, **train_kwargs
) -> Model:
    """A model that knows this one's conditions and new ones, learned from a few cells.

    It starts from this model, which stays as it is. The new conditions start at the mean of the old ones: in the
    encoder of w, in the prior of w, and in the adversary's outputs.

    With old cells to compare with, everything trains for a short time, on as many cells of each condition: z must
    learn to hide the new condition, and the decoder what it does. Without them only what belongs to the new
    conditions is trained, and the adversary: old cells then keep their latents and reconstructions, but
    the new condition is explained as a place among the old ones, and stays visible in z.

    Parameters
    ----------
    adata
        Cells of new conditions only, at least 20 of each, with the columns that the model was set up with. They may
        be of new batches, too, as those of a new experiment are; then a part of what the condition does may be
        taken for the batch's doing, and the other way round.
    old_cells
        Cells of the old conditions to train with: by default the training cells of the model's own data. False
        for none.
    max_epochs
        Passes over the cells; by default as many as show the model some 80,000 cells, from 5 to 400.
    **train_kwargs
        Of :meth:`train`.

    Returns
    -------
    A trained model, whose data are the old cells followed by the new ones.

    Examples
    --------
    >>> new = adata[:40].copy()
    >>> new.obs["condition"] = "treated_2"
    >>> extended = model.add_condition(new, max_epochs=1, enable_progress_bar=False)
    >>> list(extended.conditions), list(model.conditions)
    (['control', 'treated_1', 'treated_2'], ['control', 'treated_1'])
    """
    model.check_trained()
    if not model.module.prior.can_grow:
        raise ValueError(
            "prior='separable' gives each condition a block of w and has none left for a new one; train a model "
            "with all conditions, or use another prior."
        )
    check_new_conditions(adata, model.registry)
    model.check_values(adata)
    old = _old_cells(model, old_cells)
    joined = adata.copy() if old is None else _join(old, adata)
    extend = {"extend_conditions": True, "extend_categories": True}
    type(model).setup_anndata(joined, source_registry=model.registry, **extend, **model.registry["setup_args"])
    arguments = model.init_params_["non_kwargs"] | {
        name: value for group in model.init_params_["kwargs"].values() for name, value in group.items()
    }
    extended = type(model)(joined, **arguments)
    extended.plan_defaults_ = dict(model.plan_defaults_)
    is_new = grow(model.module, extended.module)
    new_rows = np.arange(joined.n_obs - adata.n_obs, joined.n_obs)
    # p(y): the new conditions have their share of the cells that the models have been trained on.
    indices = extended.condition_indices()[new_rows]
    counts = torch.as_tensor(np.bincount(indices, minlength=extended.module.n_conditions), dtype=torch.float32)
    n_old = 0 if model.train_indices is None else len(model.train_indices)
    counts[: model.module.n_conditions] += n_old * model.module.condition_probs.cpu()
    extended.module.condition_probs.copy_(counts / counts.sum())
    extended.module.eval()  # batch normalisation is not to learn from the new cells alone
    extended.module.fit_condition_means(extended.batches(joined, new_rows, settings.batch_size))
    if old is None:
        _train_only(extended, is_new)
    if max_epochs is None:
        max_epochs = int(np.clip(round(CELLS_TO_SEE / joined.n_obs), 5, 400))
    extended.train(max_epochs, **({"balance_conditions": old is not None} | train_kwargs))
    return extended


def _old_cells(model: ModelInterface, old_cells: AnnData | bool) -> AnnData | None:
    """Cells of known conditions to train with beside new ones; None for none."""
    if isinstance(old_cells, AnnData):
        check_query(old_cells, model.registry)
        model.check_values(old_cells)
        return old_cells.copy()
    if not isinstance(old_cells, bool):
        raise InputTypeError(f"old_cells={old_cells!r}; give an AnnData, True for the model's own cells, or False.")
    if not old_cells:
        return None
    if model.minified_data_type is not None or not model.has_training_data():
        raise ValueError(
            "the model has no counts of the cells that it was trained on; give them as old_cells=..., or "
            "old_cells=False to do without."
        )
    return model.adata[model.training_cells()].copy()


def _train_only(model: ModelInterface, is_new: dict[str, torch.Tensor]) -> None:
    """Let training change the new entries and the adversary only."""
    names = {name for name, _ in model.module.named_parameters()}
    adversary = {name: None for name in names if name.startswith("adversary.")}
    model.trainable_ = {name: mask for name, mask in is_new.items() if name in names} | adversary
    # Decay would shrink what is to stay as it is; kinds of cells have been found, and are not to be found anew.
    model.plan_defaults_ |= {"weight_decay": 0.0, "alignment_start": 0.0}


def _join(old: AnnData, new: AnnData) -> AnnData:
    """Old cells followed by new ones, without what scvi-tools has written to them."""
    cells = []
    for adata in (old, new):
        columns = [name for name in adata.obs if not name.startswith("_scvi")]
        cells.append(AnnData(adata.X, adata.obs[columns], adata.var[[]], layers=adata.layers, obsm=adata.obsm))
    overlap = old.obs_names.intersection(new.obs_names)
    return anndata.concat(cells, join="inner", keys=["old", "new"], index_unique="-" if len(overlap) else None)
