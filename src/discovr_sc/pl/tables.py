"""What plots take from a table of a differential expression."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

#: A p-value that a volcano can still show.
SMALLEST_P = 1e-300


def pick_groups(table: pd.DataFrame, groups: str | Sequence[str] | None) -> list[str]:
    """The groups that were named, or all of the table."""
    known = list(table["group"].unique())
    chosen = known if groups is None else [groups] if isinstance(groups, str) else list(groups)
    if unknown := [group for group in chosen if group not in known]:
        raise ValueError(f"groups: {unknown[0]!r} is not in the table, which has {known}.")
    return chosen


def one_group(table: pd.DataFrame, group: str | None) -> str:
    """The group that was named, or the only one of the table."""
    groups = list(table["group"].unique())
    if group is None and len(groups) > 1:
        raise ValueError(f"the table has {len(groups)} groups; name one of {groups} with group=...")
    group = groups[0] if group is None else group
    if group not in groups:
        raise ValueError(f"group={group!r} is not in the table, which has {groups}.")
    return group


def tested(table: pd.DataFrame, group: str) -> pd.DataFrame:
    """A group's genes with ``change``, their log2 fold change, and ``evidence`` for it.

    Of a test over replicates these are the replicates' fold changes and -log10 p, of the genes that were tested;
    otherwise the model's, and the posterior probability of a change.
    """
    part = table[table["group"] == group]
    if is_over_replicates(table):
        part = part[part["p_value"].notna()]
        evidence = -np.log10(part["p_value"].clip(lower=SMALLEST_P))
        return part.assign(change=part["lfc_replicates"], evidence=evidence)
    return part.assign(change=part["lfc"], evidence=part["proba_de"])


def is_over_replicates(table: pd.DataFrame) -> bool:
    """Whether genes were called by a test over replicates."""
    return "p_value" in table


def top_genes(table: pd.DataFrame, groups: Sequence[str], n_genes: int) -> list[str]:
    """The first genes that are called in each group, those that rise in most groups first."""
    called = [part[part["is_de"].astype(bool)].head(n_genes) for part in (tested(table, group) for group in groups)]
    genes = list(dict.fromkeys(gene for part in called for gene in part["gene"]))
    if not genes:
        raise ValueError(f"no gene is called in {list(groups)}; test larger groups, or raise fdr.")
    changes = pd.concat([tested(table, group) for group in groups])
    mean = changes.groupby("gene")["change"].mean()
    return sorted(genes, key=lambda gene: -mean[gene])
