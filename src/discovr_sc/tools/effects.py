"""What the condition changes: full expression against expression with the condition averaged out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from sklearn.preprocessing import StandardScaler

from discovr_sc.data import log_counts
from discovr_sc.model.checks import check_gene_list, check_number, check_whole_number, find_data
from discovr_sc.model.values import row_numbers
from discovr_sc.module.likelihoods import COUNTS_PER_CELL, Averaged
from discovr_sc.tools.counterfactual import own_and_under, way_to
from discovr_sc.tools.draws import seeded

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface, Tensors


def get_condition_effect(
    model: ModelInterface,
    adata: AnnData | None = None,
    indices: Sequence[int] | np.ndarray | None = None,
    *,
    reference: str | None = None,
    gene_list: Sequence[str] | None = None,
    n_samples: int = 25,
    level: float = 0.95,
    pseudocount: float = 0.1,
    per_cell: bool = True,
    seed: int = 0,
    batch_size: int | None = None,
) -> AnnData:
    """What its condition changes in each cell and gene: full expression against marginal expression.

    Parameters
    ----------
    adata, indices, batch_size
        See :meth:`get_latent_representation`.
    reference
        A condition, to compare with the cell as predicted in it (see :meth:`predict_counterfactual`) in place of
        its marginal expression.
    gene_list
        Genes to return; all by default. Scores of cells are over all genes.
    n_samples, seed
        Samples of the latents, the same z for both expressions, and their seed.
    level
        Of the credible intervals.
    pseudocount
        Added to counts per 10,000, so that the fold changes of genes that are hardly expressed are near 0.
    per_cell
        Whether to keep fold changes of every cell and gene; without, memory does not grow with the cells.

    Returns
    -------
    AnnData of cells by genes. ``X``: posterior mean of log2(full / marginal); ``layers["low"]`` and ``["high"]``: the
    ends of its credible interval (none of these with ``per_cell=False``). ``obs["response"]``: how far the condition
    moves the cell, KL(full || marginal) between the two profiles of normalised expression in nats, and the cell's
    condition. ``var``, over the cells: mean and variance of log(1 + counts per 10,000) of the data, of full and of
    marginal expression (``mean_data``, ``variance_full``, ...), ``variance_restored`` = variance_full -
    variance_marginal, and ``lfc``, the mean of ``X``. With ``reference``, the cells as predicted in it stand in the
    place of marginal expression (``mean_reference``, ``variance_reference``), and there is no ``variance_restored``.

    Examples
    --------
    >>> effect = model.get_condition_effect(n_samples=5)
    >>> genes = effect.var.sort_values("variance_restored", ascending=False)
    >>> effect.shape, len(genes)
    ((200, 50), 50)
    """
    model.check_trained()
    model.check_not_minified("get_condition_effect")
    model.check_of_genes("get_condition_effect")
    check_whole_number("n_samples", n_samples, at_least=2)
    check_number("level", level, above=0, below=1)
    check_number("pseudocount", pseudocount, above=0)
    genes = model.get_var_names()
    if gene_list is not None:
        check_gene_list(gene_list, genes)
    columns = pd.Index(genes).get_indexer(genes if gene_list is None else gene_list)
    condition = None if reference is None else model.condition_index(reference, "reference")
    adata = model.validate(adata)
    rows = row_numbers(indices, adata.n_obs)

    tails = [(1 - level) / 2, (1 + level) / 2]
    scores: list[np.ndarray] = []
    parts: dict[str, list[np.ndarray]] = {"X": [], "low": [], "high": []}
    against = "marginal" if reference is None else "reference"
    moments = {name: StandardScaler() for name in ("data", "full", against, "lfc")}
    counts, _ = find_data(adata, model.get_setup_arg("layer"), None)
    with seeded(seed):
        way = None if condition is None else way_to(model, condition)
        done = 0
        for tensors in model.batches(adata, rows, batch_size, n_samples=n_samples, seed=seed):
            full, other = _full_and_other(model, tensors, condition, way, n_samples)  # (n_samples, n, genes), in CP10k
            lfc = (torch.log2(full + pseudocount) - torch.log2(other + pseudocount))[..., columns]
            full, other = full.mean(0), other.mean(0)
            scores.append(_divergence(full, other))
            mean = lfc.mean(0).numpy()
            moments["lfc"].partial_fit(mean)
            moments["full"].partial_fit(np.log1p(full[:, columns].numpy()))
            moments[against].partial_fit(np.log1p(other[:, columns].numpy()))
            moments["data"].partial_fit(log_counts(counts[rows[done : done + len(mean)]])[:, columns])
            done += len(mean)
            if per_cell:
                low, high = torch.quantile(lfc, torch.tensor(tails, dtype=lfc.dtype), dim=0).numpy()
                for name, values in {"X": mean, "low": low, "high": high}.items():
                    parts[name].append(values)
    layers = {name: np.concatenate(values) for name, values in parts.items() if values}
    key = model.condition_key
    obs = adata.obs.iloc[rows][[key] if key in adata.obs else []].copy()
    obs["response"] = np.concatenate(scores)
    uns = {"condition_effect": {"units": "log2 fold change", "against": reference or "marginal", "level": level}}
    var = pd.DataFrame({"lfc": moments.pop("lfc").mean_}, index=pd.Index(genes)[columns])
    for name, of in moments.items():
        var[f"mean_{name}"], var[f"variance_{name}"] = of.mean_, of.var_
    if against == "marginal":
        var["variance_restored"] = var["variance_full"] - var["variance_marginal"]
    return AnnData(layers.pop("X", None), obs=obs, var=var, layers=layers, uns=uns)


@torch.inference_mode()
def _full_and_other(
    model: ModelInterface, tensors: Tensors, condition: int | None, way: Callable | None, n_samples: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Full expression, and marginal or counterfactual expression from the same z, in counts per 10,000."""
    own, under = own_and_under(model, tensors, condition, way, n_samples)
    px = own.decode(model.module)
    other = model.module.decode_marginal(own.own.z, own.given) if way is None else under.decode(model.module)
    if isinstance(other, Averaged):
        # A method without a decoder of z alone averages normalised expression itself.
        expression = model.module.likelihood.reconstruction(px), other.mean
    else:
        # Of expected counts, extra zeros included: full expression may have them, marginal does not.
        expression = px.mean / px.mean.sum(-1, keepdim=True), other.mean / other.mean.sum(-1, keepdim=True)
    return COUNTS_PER_CELL * expression[0].cpu(), COUNTS_PER_CELL * expression[1].cpu()


def _divergence(full: torch.Tensor, other: torch.Tensor) -> np.ndarray:
    """KL(full || other) in nats of profiles ``(n, genes)`` with equal sums."""
    share = full / full.sum(-1, keepdim=True)
    return (share * (torch.log(full + 1e-8) - torch.log(other + 1e-8))).sum(-1).numpy()
