"""Differential expression between conditions: within groups of cells, or of the same cells under both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy.stats import false_discovery_control
from scvi import REGISTRY_KEYS, settings
from scvi.model.base import DifferentialComputation

from discovr_sc._scvi import expected_fdr_calls
from discovr_sc.model.checks import check_columns, check_whole_number
from discovr_sc.model.counterfactual import N_NEIGHBORS
from discovr_sc.model.draws import seeded
from discovr_sc.model.replicates import Replicates, TooFewReplicates

#: Numbers of one array of posterior samples, of which the computation holds several at once.
MAX_FLOATS = 10_000_000
#: Level of the credible intervals.
LEVEL = 0.95
#: Draws of all cells' counts that a test over replicates is averaged over.
N_PSEUDOBULKS = 10

COLUMNS = [
    "group",
    "gene",
    "target",
    "reference",
    "lfc",
    "lfc_low",
    "lfc_high",
    "lfc_sd",
    "proba_de",
    "bayes_factor",
    "is_de",
    "scale_target",
    "scale_reference",
    "n_target",
    "n_reference",
]


class EmptyPopulation(ValueError):
    """A group has no cells to compare."""


class Population(NamedTuple):
    """Cells, and the condition to decode them in; None for their own."""

    cells: np.ndarray
    condition: int | None


class DifferentialMixin:
    """Differential expression by the model's posterior, with scvi-tools' computation of probabilities."""

    def differential_expression(
        self,
        adata: AnnData | None = None,
        *,
        target: str | None = None,
        reference: str | None = None,
        groupby: str | None = None,
        groups: Sequence[str] | None = None,
        mode: Literal["observed", "counterfactual"] = "observed",
        by: str | None = None,
        delta: float = 0.25,
        fdr: float = 0.05,
        n_samples: int = 5000,
        pseudocount: float = 0.1,
        batch_correction: bool = False,
        replicate_key: str | None = None,
        seed: int = 0,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """Differential expression between two conditions, within each group of cells.

        The log fold change of a gene is log2 of its normalised expression in the target over that in the reference. A
        gene counts as differential where it is beyond ``delta``; its posterior probability is over cells and over the
        latents' posteriors (scvi-tools' ``"change"`` mode).

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
            conditions, no others) under the target and under the reference, so that differences between cells do not
            count; the error of the prediction itself is not in the probabilities, so more genes are called than ``fdr``
            allows for.
        by
            For ``mode="counterfactual"``: see :meth:`predict_counterfactual`.
        delta
            Absolute log2 fold change from which a gene counts as differential.
        fdr
            Posterior expected share of false calls among those of a group. It is as good as the posterior: among few
            cells, and of genes that are hardly expressed, more are false. Genes whose interval, ``lfc_low`` to
            ``lfc_high``, leaves out 0 are the safer ones.
        n_samples
            Posterior samples of each population, drawn with its cells.
        pseudocount
            Added to expression in counts per 10,000, for the probabilities; it keeps genes that are hardly expressed
            from being called. The reported fold changes have a thousandth of it, as in scvi-tools.
        batch_correction
            Decode the cells of both populations in batches drawn at random, not in their own: each pair of samples
            in one batch.
        replicate_key
            Column of ``obs`` with replicates, such as donors. Genes are then ranked and called by how well replicates
            agree on their change, as cells of one donor are not independent: counts are drawn from the posterior
            predictive distribution, summed by replicate and condition, and their logarithms tested over replicates
            (limma's moderated t, averaged over draws; Benjamini and Hochberg's ``fdr``). Replicates that have cells of
            both conditions are paired, at least three of them; where none has, those of the two conditions are
            compared, at least three of each. Genes with too few counts (edgeR's rule) are not tested. ``delta``,
            ``pseudocount`` and ``n_samples`` have no say in these calls. The model shares what it learns among
            replicates, so they agree more in its draws than in the data: take the calls for a ranking, and test the
            genes you choose on pseudobulks of the measured counts.
        seed
            Of the samples.
        batch_size
            Cells per pass.

        Returns
        -------
        DataFrame with a row for each group and gene, sorted by probability and fold change within a group: the names of
        ``target`` and ``reference``,
        ``lfc`` (posterior mean of the log2 fold change) with the ends of its 95 % credible interval (``lfc_low``,
        ``lfc_high``) and standard deviation (``lfc_sd``), ``proba_de``, ``bayes_factor`` (log odds), ``is_de`` (called
        at the given FDR), ``scale_target`` and ``scale_reference`` (mean normalised expression), and numbers of cells.
        With ``replicate_key`` also the mean log2 fold change of the replicates' sums (``lfc_replicates``), ``t`` and
        ``p_value`` of the test over them, ``n_replicates`` (of both conditions, where each has one) and ``paired``;
        rows are then sorted by the absolute value of ``t``.

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition")
        >>> model = DISCOVR(adata)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> table = model.differential_expression(groupby="cell_type", n_samples=200)
        >>> table.groupby("group").size().tolist()
        [50, 50, 50, 50]
        """
        self._check_if_trained(warn=False)
        self._check_has_counts("differential_expression")
        self._check_of_genes("differential_expression")
        if mode not in ("observed", "counterfactual"):
            raise ValueError(f"mode={mode!r} is not known; choose 'observed' or 'counterfactual'.")
        if by is not None and mode == "observed":
            raise ValueError(f"by={by!r} chooses w for mode='counterfactual'; leave it out, or set that mode.")
        if replicate_key is not None and batch_correction:
            raise ValueError(
                f"replicate_key={replicate_key!r} tests counts drawn in the cells' own batches; leave out "
                "batch_correction=True, or replicate_key."
            )
        if replicate_key is not None and mode == "counterfactual":
            raise ValueError(
                f"replicate_key={replicate_key!r} is for mode='observed': predictions are of one model, so replicates "
                "agree on them. Leave it out."
            )
        for argument, value in {"delta": delta, "pseudocount": pseudocount}.items():
            if not value > 0:
                raise ValueError(f"{argument}={value}; give a number above 0.")
        if not 0 < fdr < 1:
            raise ValueError(f"fdr={fdr}; give a number between 0 and 1.")
        check_whole_number("n_samples", n_samples, at_least=2)
        target_code, reference_code = self._compared(target, reference)
        adata = self._validate_anndata(adata)
        ways = {}
        if mode == "counterfactual":
            with seeded(seed):
                ways = {code: self._way(by, code, N_NEIGHBORS) for code in (target_code, reference_code)}
        compared = []
        for name, members in _groups(adata, groupby, groups):
            try:
                populations = self._populations(adata, name, members, target_code, reference_code, mode)
                compared.append((name, populations, _replicates(adata, replicate_key, name, populations)))
            except (EmptyPopulation, TooFewReplicates) as error:
                if groupby is None or groups is not None:
                    raise
                warnings.warn(f"{error} It is left out.", UserWarning, stacklevel=settings.warnings_stacklevel)
        if not compared:
            fix = "use mode='counterfactual'" if replicate_key is None else "leave replicate_key out"
            enough = "" if replicate_key is None else " and enough replicates"
            raise ValueError(f"no group of {groupby!r} has cells of both conditions{enough}; {fix}.")
        tables = []
        for name, populations, replicates in compared:
            sampler = ExpressionSampler(
                self, adata, populations, ways=ways, n_samples=n_samples, batch_size=batch_size, seed=seed
            )
            if batch_correction:
                sampler.shuffle_batches()
            table = _compare(sampler, adata, delta, pseudocount)
            table.insert(0, "group", name)
            table["is_de"] = expected_fdr_calls(table["proba_de"], fdr=fdr)
            table["n_target"], table["n_reference"] = (len(population.cells) for population in populations)
            table["target"], table["reference"] = (str(self.conditions[code]) for code in (target_code, reference_code))
            table = table.sort_values(["proba_de", "abs_lfc"], ascending=False)[COLUMNS]
            if replicates is not None:
                with seeded(seed):
                    test = replicates.test(lambda cells: self._draw_counts(adata, cells, N_PSEUDOBULKS, batch_size))
                table = _ranked_by(test, table, fdr).assign(n_replicates=len(replicates), paired=replicates.paired)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def _compared(self, target: str | None, reference: str | None) -> tuple[int, int]:
        """Codes of the conditions to compare."""
        if len(self.conditions) > 2 and (target is None or reference is None):
            known = list(self.conditions)
            raise ValueError(f"name target and reference: there are {len(known)} conditions, {known}.")
        codes = {}
        for argument, condition in {"target": target, "reference": reference}.items():
            codes[argument] = None if condition is None else self._condition_code(condition, argument)
        if codes["target"] is None:
            codes["target"] = 1 if codes["reference"] is None else 1 - codes["reference"]
        if codes["reference"] is None:
            codes["reference"] = 1 - codes["target"]
        if codes["target"] == codes["reference"]:
            raise ValueError(f"target and reference are both {target!r}; give two conditions.")
        return codes["target"], codes["reference"]

    def _draw_counts(
        self, adata: AnnData, cells: np.ndarray, n_draws: int, batch_size: int | None
    ) -> Iterator[np.ndarray]:
        """Of the posterior predictive distribution, for some cells at a time: ``(n_draws, n, genes)``."""
        for tensors in self._batches(adata, cells, batch_size, n_samples=n_draws):
            drawn = self._decode(self._latents_under(tensors, None, None, n_draws)).sample()
            yield drawn.cpu().numpy().reshape(n_draws, -1, adata.n_vars)

    def _populations(
        self, adata: AnnData, name: str, members: np.ndarray, target: int, reference: int, mode: str
    ) -> tuple[Population, Population]:
        """The cells to compare, and the conditions to decode them in."""
        manager = self.get_anndata_manager(adata, required=True)
        codes = manager.get_from_registry(REGISTRY_KEYS.LABELS_KEY).ravel()
        if mode == "counterfactual":
            cells = np.flatnonzero(members & np.isin(codes, (target, reference)))
            if not len(cells):
                raise EmptyPopulation(
                    f"group {name!r} has no cells of conditions {self.conditions[target]!r} and "
                    f"{self.conditions[reference]!r}; leave it out with groups=..."
                )
            return Population(cells, target), Population(cells, reference)
        found = [np.flatnonzero(members & (codes == code)) for code in (target, reference)]
        for code, cells in zip((target, reference), found, strict=True):
            if not len(cells):
                raise EmptyPopulation(
                    f"group {name!r} has no cells of condition {self.conditions[code]!r}; leave it out with "
                    "groups=..., or use mode='counterfactual'."
                )
        return Population(found[0], None), Population(found[1], None)


class ExpressionSampler:
    """Posterior samples of normalised expression of populations, some genes at a time.

    scvi-tools' own sampler decodes all genes of all cells at once. This one draws cells and latents first, which are
    small, and decodes them for each block of genes. It numbers populations where scvi-tools' computation has
    rows of an AnnData.
    """

    def __init__(self, model, adata, populations, *, ways, n_samples, batch_size, seed):
        self.model = model
        self.genes = slice(None)
        self._latents = []
        for number, population in enumerate(populations):
            # One seed under several conditions, so that a cell is decoded from the same z under each; different ones
            # for different cells, which would otherwise be paired by their place in the data.
            own = 0 if population.condition is not None else number
            cells = np.random.default_rng([seed, own]).choice(population.cells, n_samples)
            with seeded(seed + own):
                self._latents.append(
                    [
                        model._latents_under(tensors, population.condition, ways.get(population.condition), 1)
                        for tensors in model._batches(adata, cells, batch_size)
                    ]
                )
        self._rng = np.random.default_rng(seed)

    def shuffle_batches(self) -> None:
        """Have cells decoded in batches drawn uniformly, the same for the samples of a pair."""
        n_batch = self.model.summary_stats.n_batch
        for i, first in enumerate(self._latents[0]):
            batch = first.given.cats[-1]
            drawn = torch.as_tensor(self._rng.integers(n_batch, size=batch.shape), device=batch.device)
            for latents in self._latents:
                given = latents[i].given
                latents[i] = latents[i]._replace(given=given._replace(cats=(*given.cats[:-1], drawn)))

    def __call__(self, adata, indices, transform_batch, n_samples_overall) -> np.ndarray:
        """Expression ``(n_samples, genes of the block)`` of the population whose number is in ``indices``."""
        return np.concatenate(
            [
                self.model._decode(latents).scale[:, self.genes].cpu().numpy()
                for latents in self._latents[int(indices[0])]
            ]
        )


def _compare(sampler: ExpressionSampler, adata: AnnData, delta: float, pseudocount: float) -> pd.DataFrame:
    manager = sampler.model.get_anndata_manager(adata, required=True)
    computation = DifferentialComputation(sampler, None, manager)
    n_samples = sum(len(latents.own.z) for latents in sampler._latents[0])
    tables = []
    for genes in _blocks(adata.n_vars, max(1, MAX_FLOATS // n_samples)):
        sampler.genes = genes
        result = computation.get_bayes_factors(
            [0],
            [1],
            mode="change",
            use_observed_batches=True,
            delta=delta,
            pseudocounts=pseudocount / 1e4,
            cred_interval_lvls=[LEVEL],
        )
        tables.append(
            pd.DataFrame(
                {
                    "gene": adata.var_names[genes],
                    "lfc": result["lfc_mean"],
                    "abs_lfc": np.abs(result["lfc_mean"]),
                    "lfc_low": result[f"lfc_confidence_interval_{LEVEL}_min"],
                    "lfc_high": result[f"lfc_confidence_interval_{LEVEL}_max"],
                    "lfc_sd": result["lfc_std"],
                    "proba_de": result["proba_de"],
                    "bayes_factor": result["bayes_factor"],
                    "scale_target": result["scale1"],
                    "scale_reference": result["scale2"],
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


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


def _ranked_by(test: pd.DataFrame, table: pd.DataFrame, fdr: float) -> pd.DataFrame:
    """A table whose index numbers the genes, with a test's columns and calls, the clearest changes first."""
    table = table.join(test)
    tested = table["p_value"].notna()
    table["is_de"] = False
    table.loc[tested, "is_de"] = false_discovery_control(table.loc[tested, "p_value"]) <= fdr
    return table.sort_values("t", key=np.abs, ascending=False, kind="stable")


def _blocks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _groups(adata: AnnData, groupby: str | None, groups: Sequence[str] | None) -> Iterator[tuple[str, np.ndarray]]:
    """Names of groups and masks of their cells."""
    if groupby is None:
        if groups is not None:
            raise ValueError(f"groups={list(groups)} are of a column of adata.obs; name it with groupby.")
        yield "all", np.ones(adata.n_obs, dtype=bool)
        return
    check_columns(adata, [groupby], "groupby")
    labels = adata.obs[groupby]
    known = list(labels.dropna().unique())
    wanted = sorted(known) if groups is None else ([groups] if isinstance(groups, str) else list(groups))
    for name in wanted:
        if name not in known:
            raise ValueError(f"groups: {name!r} is not in adata.obs[{groupby!r}], which has {sorted(known)}.")
    for name in wanted:
        yield name, (labels == name).to_numpy()
