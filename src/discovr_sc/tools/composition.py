"""What a model's z tells of the condition beyond composition: rows of the report."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from scvi import settings
from sklearn.cluster import KMeans

from discovr_sc import metrics

#: Clusters of z that stand in for cell types, where none are given.
N_CLUSTERS = 10
#: Share of a type's cells below which a condition is said to lack the type.
FEW = 0.02
#: How far above chance composition may tell the condition, before a user is warned that no types are given.
UNEQUAL = 0.1


def composition_rows(
    z: np.ndarray, conditions: np.ndarray, cell_types: np.ndarray | None, train: np.ndarray, seed: int
) -> Iterator[dict[str, Any]]:
    """Metrics of z, each with its value, on the cells that are not in ``train``.

    Parameters
    ----------
    z, conditions
        Posterior means, ``(n, n_latent_z)``, and labels of the conditions, ``(n,)``.
    cell_types
        Labels of the cell types, ``(n,)``; clusters of z where there are none.
    train
        Cells that probes are fitted on, a mask ``(n,)``.
    seed
        Of probes and clusters.
    """
    given = cell_types is not None
    if cell_types is None:
        kinds = KMeans(N_CLUSTERS, n_init=1, random_state=seed).fit(z[train]).predict(z).astype(str)
    else:
        kinds = cell_types
    floor = metrics.composition_floor(conditions, kinds, train=train, seed=seed)
    yield {"metric": "composition_floor", "value": floor}
    chance = 1 / len(np.unique(conditions))
    if not given and floor > chance + UNEQUAL:
        warnings.warn(
            "Conditions differ in their composition, or z reveals them: clusters of z predict the condition with "
            f"accuracy {floor:.2f} (chance {chance:.2f}). If you have cell types, pass them to this report and to "
            "setup_anndata(..., cell_type_key=...).",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )
    with suppress(ValueError):  # no kind has enough cells of two conditions
        leak = metrics.leak_within_types(z, conditions, kinds, train=train, seed=seed).mean
        yield {"metric": "leak_within_types", "value": leak}
    if given:
        if transfers := list(metrics.type_transfer(z, conditions, kinds, train=train).values()):
            yield {"metric": "type_transfer", "value": float(np.mean(transfers))}
        yield from ({"metric": f"apart_{name}", "value": value} for name, value in apart(z, conditions, kinds, train))


def apart(z: np.ndarray, conditions: np.ndarray, kinds: np.ndarray, train: np.ndarray) -> Iterator[tuple[str, float]]:
    """Types that a condition lacks, and the share of their cells whose neighbours are of the type, too."""
    names = np.unique(conditions)
    for kind in np.unique(kinds):
        shares = np.array([np.mean(conditions[kinds == kind] == name) for name in names])
        asked = (kinds == kind) & ~train
        if shares.min() < FEW / len(names) and asked.any():
            yield str(kind), metrics.type_recalls(z, kinds, train=train)[str(kind)]
