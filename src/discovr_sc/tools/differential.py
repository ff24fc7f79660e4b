"""Differential expression between conditions: within groups of cells, or of the same cells under both."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy.sparse import csr_matrix, diags
from scipy.stats import false_discovery_control, norm
from scvi import settings
from scvi.model.base import DifferentialComputation

from discovr_sc._scvi import expected_fdr_calls
from discovr_sc.model.checks import check_columns, check_names, check_number, check_whole_number, find_data
from discovr_sc.module.counterfactual import Decodable
from discovr_sc.tools.counterfactual import decode, own_and_under, way_to
from discovr_sc.tools.draws import seeded
from discovr_sc.tools.replicates import Replicates, TooFewReplicates

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Numbers of one array of posterior samples, of which the computation holds several at once.
MAX_FLOATS = 10_000_000
#: Level of the credible intervals.
LEVEL = 0.95

#: Columns that scvi-tools computes, and its names of them.
SCVI_COLUMNS = {
    "lfc": "lfc_mean",
    "lfc_low": f"lfc_confidence_interval_{LEVEL}_min",
    "lfc_high": f"lfc_confidence_interval_{LEVEL}_max",
    "lfc_sd": "lfc_std",
    "scale_target": "scale1",
    "scale_reference": "scale2",
} | {name: name for name in ("proba_de", "bayes_factor")}
COLUMNS = ["group", "gene", "target", "reference", "lfc", "lfc_low", "lfc_high", "lfc_sd", "proba_de", "bayes_factor"]
COLUMNS += ["p_cells", "is_de", "scale_target", "scale_reference", "n_target", "n_reference"]


class EmptyPopulation(ValueError):
    """A group has no cells to compare."""


class Population(NamedTuple):
    """Cells, and the condition to decode them in; None for their own."""

    cells: np.ndarray
    condition: int | None


@dataclass(frozen=True)
class Drawing:
    """How samples are drawn; see :meth:`DisentangledModel.differential_expression`."""

    by: str | None = None
    n_samples: int = 5000
    batch_correction: bool = False
    seed: int = 0
    batch_size: int | None = None

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Drawing:
        """From the user's arguments."""
        check_names("differential_expression", arguments, [field.name for field in fields(cls)])
        check_whole_number("n_samples", arguments.get("n_samples", cls.n_samples), at_least=2)
        return cls(**arguments)


def differential_expression(
    model: ModelInterface,
    adata: AnnData | None = None,
    *,
    target: str | None = None,
    reference: str | None = None,
    groupby: str | None = None,
    groups: Sequence[str] | None = None,
    mode: Literal["observed", "counterfactual"] = "observed",
    replicate_key: str | None = None,
    delta: float = 0.25,
    fdr: float = 0.05,
    pseudocount: float = 0.1,
    **drawing: Any,
) -> pd.DataFrame:
    """Differential expression between two conditions, within each group of cells.

    The log fold change of a gene is log2 of its normalised expression in the target over that in the reference. A
    gene counts as differential where it is beyond ``delta``; its posterior probability is over pairs of cells and over
    the latents' posteriors (scvi-tools' ``"change"`` mode). Where cells come from several donors, give
    ``replicate_key``: genes are then called by a test of the measured counts over donors, and the model gives effects.

    Parameters
    ----------
    adata
        Cells with known conditions; those of the training by default.
    target, reference
        Conditions to compare. With two conditions, the second against the first by default.
    groupby
        Column of ``obs``, such as the cell type: conditions are compared within each of its groups. A group without
        cells of both conditions, or with too few replicates, is left out, with a warning.
    groups
        Some groups only; an error where one of them lacks a condition, or has too few replicates.
    mode
        ``"observed"``: the target's cells against the reference's. ``"counterfactual"``: the same cells (of both
        conditions, no others) under the target and under the reference. Differences between the cells themselves
        (their composition) are then left out of fold changes and probabilities. The error of the prediction is not in
        the probabilities: more genes are called than ``fdr`` allows for, unless ``replicate_key`` is given.
    delta
        Absolute log2 fold change from which a gene counts as differential.
    fdr
        Without ``replicate_key``: posterior expected share of false calls among those of a group. It is as good as the
        posterior: of genes that are hardly expressed more are false. Genes whose interval, ``lfc_low`` to
        ``lfc_high``, leaves out 0 are the safer ones. With it: limit for ``p_adjusted``.
    pseudocount
        Added to expression in counts per 10,000, for fold changes and probabilities: changes of genes that are hardly
        expressed are near 0.
    replicate_key
        Column of ``obs`` with replicates, such as donors. Cells of one donor are not independent, so the test is over
        donors: measured counts are summed by replicate and condition, and their logarithms tested (limma's moderated t,
        pseudobulks with few counts weighing less; p-values adjusted within the group by Benjamini and Hochberg).
        Replicates that have cells of both conditions are paired, at least three of them; where none has, those of the
        two conditions are compared, at least three of each. Genes with too few counts (edgeR's rule) are not tested.
        The model has no part in these p-values. Its fold changes (``lfc``) are what it adds: shrunken towards what
        like cells do and, with ``mode="counterfactual"``, of the same cells under both conditions.
    **drawing
        How samples are drawn:

        - ``by=None``: for ``mode="counterfactual"``: see :meth:`predict_counterfactual`.
        - ``n_samples=5000``: Posterior samples of each population, drawn with its cells.
        - ``batch_correction=False``: Decode the cells of both populations in batches drawn at random, not in their
          own: each pair of samples in one batch.
        - ``seed=0``: of the samples.
        - ``batch_size=None``: cells per pass.

    Returns
    -------
    DataFrame with a row for each group and gene, sorted by probability and fold change within a group: the names of
    ``target`` and ``reference``, ``lfc`` (posterior mean of the log2 fold change) with the ends of its 95 % credible
    interval (``lfc_low``, ``lfc_high``) and standard deviation (``lfc_sd``), ``proba_de``, ``bayes_factor`` (log odds),
    ``is_de`` (called at the given FDR), ``scale_target`` and ``scale_reference`` (mean normalised expression), and
    numbers of cells.

    ``p_cells`` is the p-value of the change of the measured counts, cells taken as independent (no such column with
    ``mode="counterfactual"``): a gene is called where both the posterior and, by Benjamini and Hochberg, these p-values
    say so at the given FDR. After n cells that agree, the chance that the next does not is 0.5 / (n + 1) (Jeffreys'
    rule): so much of the distribution, for each condition, is put at no change. So few cells give fewer calls: below
    some 20 of each condition there are none at an ``fdr`` of 0.05, which a warning tells.

    With ``replicate_key`` also the log2 fold change over replicates of their counts (``lfc_replicates``), ``t``,
    ``p_value`` and ``p_adjusted`` of the test, ``n_replicates`` (of both conditions, where each has one) and
    ``paired``; ``is_de`` is then ``p_adjusted <= fdr``, and rows are sorted by the absolute value of ``t``.

    Examples
    --------
    >>> table = model.differential_expression(groupby="cell_type", n_samples=200)
    >>> table.groupby("group").size().tolist()
    [50, 50, 50, 50]
    """
    draw = Drawing.of(drawing)
    model.check_trained()
    model.check_not_minified("differential_expression")
    model.check_of_genes("differential_expression")
    if mode not in ("observed", "counterfactual"):
        raise ValueError(f"mode={mode!r} is not known; choose 'observed' or 'counterfactual'.")
    if draw.by is not None and mode == "observed":
        raise ValueError(f"by={draw.by!r} chooses w for mode='counterfactual'; leave it out, or set that mode.")
    for argument, value in {"delta": delta, "pseudocount": pseudocount}.items():
        check_number(argument, value, above=0)
    check_number("fdr", fdr, above=0, below=1)
    pair = _compared(model, target, reference)
    names = dict(zip(("target", "reference"), (str(model.conditions[k]) for k in pair), strict=True))
    adata = model.validate(adata)
    if adata.n_obs < 2:
        raise ValueError(f"adata has {adata.n_obs} cell; give at least 2 to compare.")
    ways: dict[int | None, Callable] = {}
    if mode == "counterfactual":
        with seeded(draw.seed):
            ways = {condition: way_to(model, condition, draw.by) for condition in pair}
    compared = []
    for name, members in _groups(adata, groupby, groups):
        try:
            populations = _populations(model, adata, name, members, pair, mode)
            measured = _populations(model, adata, name, members, pair, "observed") if replicate_key else populations
            compared.append((name, populations, _replicates(adata, replicate_key, name, measured)))
        except (EmptyPopulation, TooFewReplicates) as error:
            if groupby is None or groups is not None:
                raise
            warnings.warn(f"{error} It is left out.", UserWarning, stacklevel=settings.warnings_stacklevel)
    if not compared:
        fix = "use mode='counterfactual'" if replicate_key is None else "leave replicate_key out"
        enough = "" if replicate_key is None else " and enough replicates"
        raise ValueError(f"no group of {groupby!r} has cells of both conditions{enough}; {fix}.")
    counts, _ = find_data(adata, model.get_setup_arg("layer"), None)
    tables = []
    for name, populations, replicates in compared:
        sampler = ExpressionSampler(model, adata, populations, ways, draw)
        n_cells = {f"n_{key}": len(population.cells) for key, population in zip(names, populations, strict=True)}
        # Jeffreys' chance that the next cell, of either condition, is unlike all that were seen.
        doubt = 1 - float(np.prod([1 - 0.5 / (n + 1) for n in n_cells.values()]))
        if replicates is None and doubt > fdr:
            sizes = " and ".join(f"{n} cells of {of}" for n, of in zip(n_cells.values(), names.values(), strict=True))
            warnings.warn(
                f"group {name!r} has {sizes}: too few for a call at fdr={fdr}. Test larger groups, or "
                "take the table for a ranking.",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )
        table = _compare(sampler, adata, delta, pseudocount, doubt).assign(group=name, **names, **n_cells)
        table["is_de"] = expected_fdr_calls(table["proba_de"], fdr=fdr)
        if mode == "observed":
            # The posterior knows nothing of the error of the weights: what it calls has to be in the counts, too.
            table["p_cells"] = _measured_p(counts, populations, pseudocount)
            table["is_de"] &= false_discovery_control(table["p_cells"]) <= fdr
        table = table.sort_values(["proba_de", "abs_lfc"], ascending=False).reindex(columns=COLUMNS)
        table = table if mode == "observed" else table.drop(columns="p_cells")
        if replicates is not None:
            table = table.join(replicates.test(counts)).assign(n_replicates=len(replicates), paired=replicates.paired)
            table["is_de"] = table["p_adjusted"] <= fdr  # not of genes that are not tested
            table = table.sort_values("t", key=np.abs, ascending=False, kind="stable")
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _compared(model: ModelInterface, target: str | None, reference: str | None) -> tuple[int, int]:
    """Indices of the conditions to compare."""
    known = list(model.conditions)
    if len(known) > 2 and (target is None or reference is None):
        raise ValueError(f"name target and reference: there are {len(known)} conditions, {known}.")
    others = None if reference is None else model.condition_index(reference, "reference")
    ours = (1 if others is None else 1 - others) if target is None else model.condition_index(target, "target")
    others = 1 - ours if others is None else others
    if ours == others:
        raise ValueError(f"target and reference are both {target!r}; give two conditions.")
    return ours, others


def _populations(
    model: ModelInterface, adata: AnnData, group: str, members: np.ndarray, pair: tuple[int, int], mode: str
) -> list[Population]:
    """The cells to compare, of the target and of the reference, and the conditions to decode them in."""
    indices = model.condition_indices(adata)
    if mode == "counterfactual":
        cells = np.flatnonzero(members & np.isin(indices, pair))
        populations = [Population(cells, condition) for condition in pair]
    else:
        populations = [Population(np.flatnonzero(members & (indices == condition)), None) for condition in pair]
    for condition, population in zip(pair, populations, strict=True):
        if not len(population.cells):
            named, fix = f"condition {model.conditions[condition]!r}", ", or use mode='counterfactual'"
            if mode == "counterfactual":  # of both alike
                named, fix = "conditions " + " and ".join(repr(model.conditions[k]) for k in pair), ""
            raise EmptyPopulation(f"group {group!r} has no cells of {named}; leave it out with groups=...{fix}.")
    return populations


class ExpressionSampler:
    """Posterior samples of normalised expression of populations, some genes at a time.

    scvi-tools' own sampler decodes all genes of all cells at once. This one draws cells and latents first, which are
    small, and decodes them for each block of genes. It numbers populations where scvi-tools' computation has
    rows of an AnnData.
    """

    def __init__(
        self,
        model: ModelInterface,
        adata: AnnData,
        populations: Sequence[Population],
        ways: Mapping[int | None, Callable],
        drawing: Drawing,
    ):
        self.model = model
        self.genes = slice(None)
        #: What is decoded, for each population and mini-batch.
        self.latents: list[list[Decodable]] = []
        for number, (rows, condition) in enumerate(populations):
            # One seed under several conditions, so that a cell is decoded from the same z under each; different ones
            # for different cells, which would otherwise be paired by their place in the data.
            own = 0 if condition is not None else number
            cells = np.random.default_rng([drawing.seed, own]).choice(rows, drawing.n_samples)
            with seeded(drawing.seed + own):
                batches = model.batches(adata, cells, drawing.batch_size)
                way = ways.get(condition)
                self.latents.append([own_and_under(model, tensors, condition, way, 1)[1] for tensors in batches])
        if drawing.batch_correction:
            # Batches are drawn uniformly, the same for the samples of a pair.
            rng = np.random.default_rng(drawing.seed)
            for i, first in enumerate(self.latents[0]):
                batch = first.given.cats[-1]
                drawn = torch.as_tensor(
                    rng.integers(model.summary_stats.n_batch, size=batch.shape), device=batch.device
                )
                for latents in self.latents:
                    given = latents[i].given
                    latents[i] = latents[i]._replace(given=given._replace(cats=(*given.cats[:-1], drawn)))

    def __call__(self, adata, indices, transform_batch, n_samples_overall) -> np.ndarray:
        """Expression ``(n_samples, genes of the block)`` of the population whose number is in ``indices``."""
        decoded = (decode(self.model, latents) for latents in self.latents[int(indices[0])])
        return np.concatenate([px.scale[:, self.genes].cpu().numpy() for px in decoded])


def _compare(
    sampler: ExpressionSampler, adata: AnnData, delta: float, pseudocount: float, doubt: float
) -> pd.DataFrame:
    """A row for each gene; a share ``doubt`` of the samples has no change."""
    computation = DifferentialComputation(sampler, None, sampler.model.get_anndata_manager(adata, required=True))
    n_samples = sum(len(latents.own.z) for latents in sampler.latents[0])
    is_change = (np.arange(n_samples) >= doubt * n_samples)[:, None]

    def change(target: np.ndarray, reference: np.ndarray, _: float) -> np.ndarray:
        # scvi-tools reports fold changes with a thousandth of the pseudocount: those of rare genes are then of floors.
        return is_change * (np.log2(target + pseudocount / 1e4) - np.log2(reference + pseudocount / 1e4))

    how = {"mode": "change", "use_observed_batches": True, "cred_interval_lvls": [LEVEL]}
    how |= {"delta": delta, "pseudocounts": pseudocount / 1e4, "change_fn": change}
    block = max(1, MAX_FLOATS // n_samples)
    tables = []
    for start in range(0, adata.n_vars, block):
        sampler.genes = slice(start, start + block)
        result = computation.get_bayes_factors([0], [1], **how)
        columns = {name: result[theirs] for name, theirs in SCVI_COLUMNS.items()}
        tables.append(pd.DataFrame({"gene": adata.var_names[sampler.genes]} | columns))
    return pd.concat(tables, ignore_index=True).assign(abs_lfc=lambda table: table["lfc"].abs())


def _measured_p(counts: Any, populations: Sequence[Population], pseudocount: float) -> np.ndarray:
    """P-values ``(genes,)`` of the change of measured mean counts per 10,000, each cell taken as independent."""
    change, variance = 0.0, 0.0
    for sign, (cells, _) in zip((1, -1), populations, strict=True):
        x = csr_matrix(counts[cells])
        factors = 1e4 / np.maximum(x.sum(1).A1, 1)
        x = diags(factors) @ x
        mean = x.mean(0).A1 + pseudocount
        # No smaller than the counting alone makes it: few cells may be alike by chance.
        spread = np.maximum(x.power(2).mean(0).A1 - (mean - pseudocount) ** 2, mean * factors.mean())
        change = change + sign * np.log(mean)
        variance = variance + spread / len(cells) / mean**2
    return 2 * norm.sf(np.abs(change) / np.sqrt(variance))


def _replicates(adata: AnnData, key: str | None, group: str, populations: Sequence[Population]) -> Replicates | None:
    """The replicates of a group's populations, where they are asked for."""
    if key is None:
        return None
    try:
        replicates = Replicates(adata, key, [population.cells for population in populations])
    except TooFewReplicates as error:
        raise TooFewReplicates(f"group {group!r}: {error}") from error
    if len(replicates.left_out):
        warnings.warn(
            f"group {group!r}: {len(replicates.left_out)} values of replicate_key {key!r} have one condition, and are "
            f"not tested beside the {len(replicates)} that have both: {list(replicates.left_out)[:5]}.",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )
    return replicates


def _groups(adata: AnnData, groupby: str | None, groups: Sequence[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Names of groups and masks of their cells."""
    if groupby is None:
        if groups is not None:
            raise ValueError(f"groups={list(groups)} are of a column of adata.obs; name it with groupby.")
        yield "all", np.ones(adata.n_obs, dtype=bool)
        return
    check_columns(adata, [groupby], "groupby")
    labels = adata.obs[groupby]
    known = sorted(labels.dropna().unique())
    wanted = known if groups is None else ([groups] if isinstance(groups, str) else list(groups))
    if not wanted:
        raise ValueError(f"groups={groups} of groupby={groupby!r} names no group; give at least one, or leave it out.")
    for name in wanted:
        if name not in known:
            raise ValueError(f"groups: {name!r} is not in adata.obs[{groupby!r}], which has {known}.")
    yield from ((name, (labels == name).to_numpy()) for name in wanted)
