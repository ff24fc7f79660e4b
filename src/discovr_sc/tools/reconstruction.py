"""What cells are decoded to, and how likely they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS
from scvi.model.base import RNASeqMixin
from scvi.utils import unsupported_if_adata_minified

from discovr_sc._scvi import batch_codes
from discovr_sc.model.checks import check_gene_list, check_names, check_number, check_whole_number
from discovr_sc.model.values import row_numbers

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface, ReconstructionKind

#: Expression is decoded in so many parts, so that what a part takes is little beside the result; a part has at least
#: that many numbers and at most so many.
PARTS, LEAST_NUMBERS, NUMBERS_PER_PASS = 150, 250_000, 2_000_000
#: Arguments of scvi-tools' ``get_normalized_expression`` that ours hands on.
RARER = ("n_samples_overall", "weights", "return_numpy", "silent", "dataloader")


def get_normalized_expression(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    kind: ReconstructionKind = "full",
    gene_list: Sequence[str] | None = None,
    library_size: float | Literal["latent"] = 1,
    n_samples: int = 1,
    return_mean: bool = True,
    transform_batch: Sequence[str] | str | None = None,
    batch_size: int | None = None,
    **kwargs,
) -> pd.DataFrame | np.ndarray:
    """Normalised (decoded) gene expression.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    kind
        ``"full"`` decodes both latents. ``"marginal"`` decodes z alone: what the cell would express, its
        condition averaged out.
    gene_list
        Genes to return, in this order; all by default.
    library_size
        What a cell's expression sums to; ``"latent"`` for the cell's own total (or size factor).
    n_samples, return_mean
        Posterior samples of the latents, and whether to average them. One sample differs from call to call.
    transform_batch
        Decode as if all cells were of this batch (or averaged over these).
    **kwargs
        ``n_samples_overall``, ``weights``, ``return_numpy``, ``silent`` and ``dataloader`` of
        :meth:`scvi.model.SCVI.get_normalized_expression`.

    Returns
    -------
    DataFrame of cells by genes, whose rows sum to ``library_size``; an array where several samples are kept.

    Examples
    --------
    >>> marginal = model.get_normalized_expression(kind="marginal", library_size=1e4, n_samples=5)
    >>> marginal.shape, round(float(marginal.iloc[0].sum()))
    ((200, 50), 10000)
    """
    model.check_of_genes("get_normalized_expression", instead="; use get_reconstruction")
    _check(model, kind)
    check_names("get_normalized_expression", kwargs, RARER)
    if kwargs.get("weights") == "importance":
        raise ValueError("weights='importance' is for one latent with a normal prior; use weights='uniform'.")
    if kind == "marginal" and library_size == "latent" and not model.module.has_z_likelihood:
        raise ValueError(
            f"library_size='latent': {type(model).__name__} averages normalised expression for kind='marginal'; "
            "give library_size a number."
        )
    check_whole_number("n_samples", n_samples, at_least=1)
    _check_batches(model, transform_batch)
    if kwargs.get("n_samples_overall") is not None:
        if n_samples != 1:
            raise ValueError(f"n_samples={n_samples} and n_samples_overall both say how many; give one of them.")
        kwargs["return_numpy"] = True  # such samples have no names of cells, which scvi-tools' table would need
    if library_size != "latent":
        check_number("library_size", library_size, above=0)
    genes = pd.Index(model.get_var_names())
    if gene_list is not None:
        check_gene_list(gene_list, genes)
    columns = np.arange(len(genes)) if gene_list is None else genes.get_indexer(gene_list)
    if kwargs.keys() - {"return_numpy", "silent"} or not (return_mean or n_samples == 1):
        indices = None if indices is None else row_numbers(indices, model.validate(adata).n_obs)
        found = RNASeqMixin.get_normalized_expression(
            model.decoding(kind),
            adata,
            indices,
            library_size=library_size,
            n_samples=n_samples,
            return_mean=return_mean,
            transform_batch=transform_batch,
            batch_size=batch_size or model.cells_per_pass(n_samples),
            **kwargs,
        )
        return found.iloc[:, columns] if isinstance(found, pd.DataFrame) else found[..., columns]
    adata = model.validate(adata)
    rows = row_numbers(indices, adata.n_obs)
    batches = batch_codes(model.get_anndata_manager(adata, required=True), transform_batch)
    expression = np.zeros((len(rows), len(columns)), dtype=np.float32)
    numbers = np.clip(expression.size // PARTS, LEAST_NUMBERS, NUMBERS_PER_PASS)
    done = 0
    for tensors in model.batches(adata, rows, batch_size or max(1, int(numbers) // len(genes))):
        n = len(tensors[REGISTRY_KEYS.X_KEY])
        part = expression[done : done + n]
        for px in model.decode_each(tensors, n_samples, kind, batches):
            part += px.get_normalized("mu" if library_size == "latent" else "scale").cpu().numpy()[:, columns]
        part *= (1 if library_size == "latent" else library_size) / (n_samples * len(batches))
        done += n
    if kwargs.get("return_numpy"):
        return expression
    return pd.DataFrame(expression, columns=genes[columns], index=adata.obs_names[rows])


def _check_batches(model: ModelInterface, transform_batch: Any) -> None:
    """Raise where a batch to decode for is not one of the model's."""
    if transform_batch is None:
        return
    state = model.registry["field_registries"][REGISTRY_KEYS.BATCH_KEY]["state_registry"]
    known = list(state["categorical_mapping"])
    for batch in [transform_batch] if isinstance(transform_batch, str | int) else list(transform_batch):
        if batch is not None and batch not in known:
            raise ValueError(f"transform_batch={batch!r} is not one of the model's batches; choose from {known}.")


def posterior_predictive_sample(model: ModelInterface, *args, kind: ReconstructionKind = "full", **kwargs):
    """Counts drawn from the decoded distribution, as a sparse array ``(n_cells, n_genes)``.

    Parameters
    ----------
    *args, **kwargs
        See :meth:`scvi.model.SCVI.posterior_predictive_sample`.
    kind
        ``"full"`` draws from p(x | z, w), ``"marginal"`` from p(x | z).

    Examples
    --------
    >>> model.posterior_predictive_sample(kind="marginal").shape
    (200, 50)
    """
    _check(model, kind)
    if kind == "marginal" and not model.module.has_z_likelihood:
        model.no_likelihood_of_z("")
    check_whole_number("n_samples", kwargs.get("n_samples", 1), at_least=1)
    return RNASeqMixin.posterior_predictive_sample(model.decoding(kind), *args, **kwargs)


@torch.inference_mode()
def get_reconstruction(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    kind: ReconstructionKind = "full",
    use_mean: bool = False,
    n_samples: int = 1,
    return_mean: bool = True,
    batch_size: int | None = None,
) -> np.ndarray:
    """Mean of the decoded distribution, in the data's own shape; for counts the normalised expression.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    kind
        ``"full"`` from both latents, ``"marginal"`` from z, w averaged out.
    use_mean
        Decode the posterior means of the latents, in place of samples.
    n_samples, return_mean
        Posterior samples of the latents, and whether to average them.

    Returns
    -------
    Array ``(n_cells, *shape)``; ``(n_samples, n_cells, *shape)`` for several samples that are kept.

    Examples
    --------
    >>> model.get_reconstruction(n_samples=3, return_mean=False).shape
    (3, 200, 50)
    """
    _check(model, kind)
    check_whole_number("n_samples", n_samples, at_least=1)
    if use_mean and n_samples != 1:
        raise ValueError(f"n_samples={n_samples}: there is one posterior mean; leave n_samples out with use_mean.")
    likelihood = model.module.likelihood_of(kind)
    parts = []
    for tensors in model.batches(adata, indices, batch_size, n_samples=n_samples):
        px = likelihood.reconstruction(model.decode(tensors, n_samples, kind, use_mean))
        parts.append((px.mean(0) if n_samples > 1 and return_mean else px).cpu())
    return torch.cat(parts, dim=1 if n_samples > 1 and not return_mean else 0).numpy()


@unsupported_if_adata_minified
@torch.inference_mode()
def get_reconstruction_error(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    kind: ReconstructionKind = "full",
    batch_size: int | None = None,
    return_mean: bool = True,
) -> float | np.ndarray:
    """-log p(x | z, w), or -log p(x | z) for ``kind="marginal"``, at one posterior sample; in nats per cell.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    kind, return_mean
        Which decoder, and whether to average over cells.

    Examples
    --------
    >>> model.get_reconstruction_error(kind="marginal", return_mean=False).shape
    (200,)
    """
    _check(model, kind)
    if kind == "marginal" and not model.module.has_z_likelihood:
        model.no_likelihood_of_z(", or compare get_reconstruction(kind='marginal') with the data")
    likelihood = model.module.likelihood_of(kind)
    errors = []
    for tensors in model.batches(adata, indices, batch_size):
        px = model.decode(tensors, 1, kind)
        errors.append(-likelihood.log_prob(px, model.module.data(tensors).to(model.module.device)).cpu())
    return _over_cells(errors, return_mean)


@unsupported_if_adata_minified
def get_marginal_ll(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    kind: ReconstructionKind = "full",
    n_mc_samples: int = 1000,
    batch_size: int | None = None,
    return_mean: bool = True,
) -> float | np.ndarray:
    """Log p(x) (not its negative) by importance sampling, in nats per cell.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    kind
        ``"full"``: of the model of both latents, the condition summed out with p(y). ``"marginal"``: of the model
        of z alone.
    n_mc_samples, return_mean
        Importance samples (for each condition), and whether to average over cells.

    Examples
    --------
    >>> bool(model.get_marginal_ll(n_mc_samples=20) < 0)
    True
    """
    _check(model, kind)
    check_whole_number("n_mc_samples", n_mc_samples, at_least=1)
    log_px = [
        model.module.marginal_ll(tensors, n_mc_samples=n_mc_samples, kind=kind)
        for tensors in model.batches(adata, indices, batch_size)
    ]
    return _over_cells(log_px, return_mean)


def get_latent_library_size(model: ModelInterface, *args, **kwargs):
    """Not there: the library size is observed."""
    raise ValueError("The library size is observed, not latent; take adata.X.sum(1), or the size factors.")


def _over_cells(parts: list[torch.Tensor], return_mean: bool) -> float | np.ndarray:
    values = torch.cat(parts).numpy()
    return float(values.mean()) if return_mean else values


def _check(model: ModelInterface, kind: str) -> None:
    model.check_trained()
    if kind not in ("full", "marginal"):
        raise ValueError(f"kind={kind!r} is not known; choose 'full' or 'marginal'.")
