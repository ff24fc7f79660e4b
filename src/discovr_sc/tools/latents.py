"""Where cells lie in z and w, and which condition they look like."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi.utils import unsupported_if_adata_minified

from discovr_sc.model.checks import check_whole_number
from discovr_sc.model.values import row_numbers
from discovr_sc.tools.progress import shown

if TYPE_CHECKING:
    from discovr_sc.model.interface import LatentKind, ModelInterface, Tensors


@torch.inference_mode()
def get_latent_representation(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    kind: LatentKind = "z",
    use_mean: bool = True,
    return_dist: bool = False,
    batch_size: int | None = None,
    dataloader: Iterable[Tensors] | None = None,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """The latent representation of cells.

    Parameters
    ----------
    adata
        Cells; those of the training by default. Cells whose condition is missing (or that have no column of conditions)
        count as unknown: their w is averaged over the conditions by their posterior probability given the cell.
    indices
        Rows to take; all by default.
    kind
        ``"z"``: shared by all conditions. ``"w"``: what the condition adds. ``"zw"``: both, z first.
    use_mean, return_dist
        The posterior mean, or else one sample; return means and variances.
    batch_size
        Cells per pass; by default as many as make some 2 million numbers.
    dataloader
        Mini-batches to use in place of ``adata``.

    Returns
    -------
    Array of shape ``(n_cells, n_latent)``, or two (mean and variance) with ``return_dist``.

    Examples
    --------
    >>> model.get_latent_representation(kind="zw").shape
    (200, 12)
    """
    model.check_trained()
    if kind not in ("z", "w", "zw"):
        raise ValueError(f"kind={kind!r} is not known; choose 'z', 'w' or 'zw'.")
    if "w" in kind and "w" not in model.latents:
        raise ValueError(
            f"kind={kind!r}: {type(model).__name__} has no w, the condition itself stands in its place; use kind='z'."
        )
    by_moments = return_dist or use_mean
    if dataloader is None:
        sparse = by_moments and model.module.reads_sparse(kind)
        dataloader = model.batches(adata, indices, batch_size, sparse=sparse)
    parts: list[tuple[torch.Tensor, ...]] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)  # torch's sparse rows are in beta
        for tensors in shown(dataloader, "Latents"):
            if by_moments:
                moments = model.module.latent_moments(tensors, kind)
                picked = [moments[latent] for latent in kind]  # [(mean, variance), ...]
                parts.append(tuple(torch.cat(columns, dim=-1).cpu() for columns in zip(*picked, strict=True)))
            else:
                samples = model.module.latent_samples(tensors)
                parts.append((torch.cat([samples[latent] for latent in kind], dim=-1).cpu(),))
    arrays = [torch.cat(column).numpy() for column in zip(*parts, strict=True)]
    return (arrays[0], arrays[1]) if return_dist else arrays[0]


@unsupported_if_adata_minified
@torch.inference_mode()
def predict_condition(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    key: str | None = None,
    n_samples: int = 64,
    seed: int = 0,
    batch_size: int | None = None,
) -> pd.DataFrame:
    """Posterior probabilities of the conditions given each cell's data, its own condition not used.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    key
        Of several columns that make the condition, the one to predict; their combinations by default.
    n_samples
        Importance samples for each condition. Where there are many conditions, a few samples first rule out those that
        cannot be the cell's; their probabilities, all but 0, come from these few.
    seed
        Of the samples: cells of the same name get the same probabilities, whichever others are asked about with them.

    Returns
    -------
    DataFrame of cells by conditions.

    Examples
    --------
    >>> list(model.predict_condition(key="condition", n_samples=2).columns)
    ['control', 'treated_1']
    """
    model.check_trained()
    if key is not None and key not in model.condition_keys:
        raise ValueError(
            f"key={key!r} is not one of the columns that make the condition; choose from {model.condition_keys}."
        )
    check_whole_number("n_samples", n_samples, at_least=1)
    adata = model.validate(adata)
    rows = row_numbers(indices, adata.n_obs)
    # As small as if all conditions were decoded at once, so that the bar moves.
    n_passes = math.ceil(len(rows) / (batch_size or model.cells_per_pass(len(model.conditions))))
    batches = model.batches(adata, rows, batch_size, n_samples=len(model.conditions), seed=seed)
    log_joint = [
        model.module.log_joint(tensors, n_mc_samples=n_samples).cpu()
        for tensors in shown(batches, "Conditions", total=n_passes)
    ]
    probs = pd.DataFrame(
        torch.softmax(torch.cat(log_joint), dim=-1).numpy(),
        index=adata.obs_names[rows],
        columns=model.conditions,
    )
    return probs if key is None else probs.T.groupby(model.condition_table[key].to_numpy(), sort=False).sum().T
