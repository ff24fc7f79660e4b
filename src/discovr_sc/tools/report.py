"""How well a model separates: one tidy table for its latents, on the training cells and on held-out ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from sklearn.decomposition import PCA

from discovr_sc import metrics
from discovr_sc.model.conditions import conditions_of
from discovr_sc.tools.composition import composition_rows
from discovr_sc.tools.draws import seeded
from discovr_sc.tools.progress import shown

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Cells of a label that every split needs for it to be probed.
MIN_CELLS = 5

#: A fresh probe looks at so many cells at most, and at so many principal components: with more genes than cells it
#: would memorise noise.
PROBED_CELLS, PROBED_COMPONENTS = 5000, 50

#: In the history, before the name of the place that a fresh probe looked at.
FRESH_PROBE = "fresh_probe_"

COLUMNS = ["split", "latent", "of", "metric", "value", "low", "high", "null_high"]


def disentanglement_report(
    model: ModelInterface,
    cell_type_key: str | None = None,
    *,
    probes: Sequence[str] = ("linear", "knn", "boosting", "mlp"),
    estimators: Sequence[str] = ("knn",),
    seed: int = 0,
) -> pd.DataFrame:
    """How well z and w separate the condition from the rest, on the training cells and on held-out ones.

    Probes, clusterings and silhouettes look at posterior means, mutual informations at one posterior sample.
    Held-out cells are those that neither the model nor the probe was fitted on. The encoder of w sees each cell's
    condition; :meth:`predict_condition` shows how well cells of hidden condition are recognised.

    Parameters
    ----------
    cell_type_key
        Column of ``obs`` with what the conditions share, such as the cell type.
    probes
        Classifiers; see :func:`discovr_sc.metrics.probe`.
    estimators
        Of mutual information, ``"knn"`` and ``"mine"``.
    seed
        Of everything random in the metrics.

    Returns
    -------
    DataFrame with columns split, latent, of, metric, value and, for probes, the ends of a 95 % interval (low, high)
    and the 95th percentile of the permutation null (null_high). The metric ``fresh_probe`` is what a linear probe read,
    when the training ended, where the adversary had looked: at z, or at the reconstruction from z.

    Examples
    --------
    >>> report = model.disentanglement_report("cell_type", probes=["linear"])
    >>> sorted(set(report["latent"])), sorted(set(report["of"])), sorted(set(report["split"]))
    (['reconstruction', 'w', 'z', 'zw'], ['cell_type', 'condition'], ['held-out', 'train'])
    """
    model.check_trained()
    adata = model.adata
    if not model.has_training_data():
        raise ValueError(
            "the report tells training cells from held-out ones and so needs the AnnData that the model was trained "
            "on; load the model with it."
        )
    columns = _conditions(model)
    if cell_type_key is not None:
        columns[cell_type_key] = _cell_types(adata, cell_type_key)
    splits = list(_splits(model))
    labels = {key: _without_rare(key, column, splits) for key, column in columns.items()}
    with seeded(seed):
        means = {latent: model.get_latent_representation(kind=latent) for latent in model.latents}
        samples = {latent: model.get_latent_representation(kind=latent, use_mean=False) for latent in model.latents}

    # Generators, which work when their turn comes, so that a bar can tell how far the report is.
    work: list[tuple[dict[str, str], Iterator[dict[str, Any]]]] = []
    for split, train, cells in splits:
        for key, (y, kept) in labels.items():
            of_split = np.intersect1d(cells, kept)
            to_fit_on = None if train is None else np.intersect1d(train, kept)
            for latent, x in means.items():
                place = {"split": split, "latent": latent, "of": key}
                work.append((place, _probe_rows(x, y, to_fit_on, of_split, probes, seed)))
                work.append((place, _cluster_rows(x[of_split], y[of_split], seed)))
            if key == model.condition_key and "w" in samples:
                place = {"split": split, "latent": "zw", "of": key}
                w, z = samples["w"][of_split], samples["z"][of_split]
                work.append((place, _information_rows(w, z, y[of_split], estimators, seed)))
    work.append(({}, _composition_rows(model, means["z"], columns[model.condition_key], cell_type_key, seed)))
    rows = [place | row for place, found in shown(work, "Report") for row in found]
    return pd.DataFrame(rows + list(_fresh_probe_rows(model)), columns=COLUMNS)


def judged_split(table: pd.DataFrame) -> str:
    """The cells that a report judges a model by: those held out, where there are any."""
    return "held-out" if "held-out" in set(table["split"]) else "train"


def headline(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of a report to look at first, of held-out cells where there are any, and what they come to."""
    split = judged_split(table)
    rows = table[(table["split"] == split) & table["metric"].isin(["probe_best", "kmeans_nmi"])]
    condition = table["of"].iloc[0]
    best = rows[(rows["of"] == condition) & (rows["metric"] == "probe_best")].set_index("latent")
    if best.empty:
        return rows, ""
    chance = best["null_high"].max()
    seen = {"w": " (w is given the condition)"}
    found = " and ".join(f"{value:.3f} from {latent}{seen.get(latent, '')}" for latent, value in best["value"].items())
    text = f"A classifier reads {condition!r} with balanced accuracy {found}, on {split} cells."
    text += f" Chance reaches {chance:.3f}."
    if "w" in best.index and best.loc["w", "value"] < (1 + chance) / 2:
        text += " w hardly separates the conditions: train longer."
    if best.loc["z", "value"] > chance + 0.1:
        text += " z reveals the condition: see 'Weights, the report, and leakage' in the docs."
    return rows, text


def _composition_rows(
    model: ModelInterface, z: np.ndarray, conditions: pd.Series, cell_type_key: str | None, seed: int
) -> Iterator[dict[str, Any]]:
    """What z tells within cell types, on held-out cells where there are any, else on a part of the training cells."""
    cell_type_key = cell_type_key or model.get_setup_arg("cell_type_key")
    known = conditions.notna().to_numpy(copy=True)
    types = None if cell_type_key is None else model.adata.obs[cell_type_key]
    if types is not None:
        known &= types.notna().to_numpy()
        types = types.astype(str).to_numpy()[known]
    train = np.zeros(len(known), dtype=bool)
    train[model.train_indices] = True
    split = "train" if train.all() else "held-out"
    if split == "train":
        train = np.random.default_rng(seed).random(len(known)) < 0.7
    place = {"split": split, "latent": "z", "of": model.condition_key}
    found = composition_rows(z[known], conditions.astype(str).to_numpy()[known], types, train[known], seed)
    yield from (place | row for row in found)


def _fresh_probe_rows(model: ModelInterface) -> Iterator[dict[str, Any]]:
    """What fresh probes read, when the training ended, where the adversary had looked."""
    split = "train" if _is_empty(model.validation_indices) else "held-out"
    for name, values in (model.history_ or {}).items():
        if name.startswith(FRESH_PROBE):
            latent = name.removeprefix(FRESH_PROBE).replace("latent", "z")
            place = {"split": split, "latent": latent, "of": model.condition_key, "metric": "fresh_probe"}
            yield place | {"value": float(values.iloc[-1, 0])}


@torch.inference_mode()
def fresh_probes(model: ModelInterface, seed: int = 0) -> dict[str, float]:
    """Balanced accuracy of a linear probe at every place where the adversary looked, after a training.

    An adversary reads nothing if the condition is gone, and also if the adversary has failed. A classifier that starts
    afresh tells the two apart. It looks at validation cells or, where there are none, at training cells: it is fitted
    on some of them and scored on the others. A model without adversary, or with too few cells, has none.
    """
    module = model.module
    cells = model.train_indices if _is_empty(model.validation_indices) else model.validation_indices
    y = model.condition_indices()[cells]
    names, counts = np.unique(y[y >= 0], return_counts=True)
    common = names[counts >= MIN_CELLS]
    if module.adversary is None or len(common) < 2:
        return {}
    cells = np.random.default_rng(seed).permutation(cells[np.isin(y, common)])[:PROBED_CELLS]
    y = model.condition_indices()[cells]
    views: dict[str, list[np.ndarray]] = {place: [] for place in module.adversary.classifiers}
    with seeded(seed):
        for tensors in model.batches(model.adata, cells):
            found = module.adversary_views(*module.forward(tensors, compute_loss=False))
            for place, parts in views.items():
                parts.append(found[place].flatten(start_dim=1).cpu().numpy())
    return {place: _fresh_probe(np.concatenate(parts), y, seed) for place, parts in views.items()}


def _fresh_probe(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    pca = PCA(min(PROBED_COMPONENTS, *x.shape), svd_solver="randomized", random_state=seed)
    components = pca.fit_transform(x)
    # A probe standardises: rounding errors would weigh as much as what there is.
    components = components[:, pca.explained_variance_ >= 1e-8 * pca.explained_variance_[0]]
    return metrics.probe(components, y, n_permutations=1, n_bootstrap=1, seed=seed).accuracy


def _is_empty(cells: np.ndarray | None) -> bool:
    return cells is None or len(cells) == 0


def _conditions(model: ModelInterface) -> dict[str, pd.Series]:
    """The condition of every cell (missing where unknown), and each of its parts where several columns make it."""
    columns = {key: key for key in model.condition_keys} if len(model.condition_keys) > 1 else {}
    columns = {model.condition_key: model.get_setup_arg("condition_key")} | columns
    unknown = model.get_setup_arg("unlabeled_category")
    return {name: conditions_of(model.adata.obs, key, unknown).of_cells for name, key in columns.items()}


def _cell_types(adata: AnnData, key: str) -> pd.Series:
    if key not in adata.obs:
        raise KeyError(f"cell_type_key {key!r} is not a column of adata.obs; it has {list(adata.obs.columns)}.")
    if adata.obs[key].isna().any():
        raise ValueError(f"cell_type_key {key!r} has missing values; fill them in or drop these cells.")
    if adata.obs[key].nunique() > adata.n_obs / 2:
        raise ValueError(f"cell_type_key {key!r} has {adata.obs[key].nunique()} different values; it needs groups.")
    return adata.obs[key]


def _splits(model: ModelInterface) -> Iterator[tuple[str, np.ndarray | None, np.ndarray]]:
    """Name, cells that a probe is fitted on (None: a part of the split), and cells of each split."""
    train = np.sort(model.train_indices)
    yield "train", None, train
    held_out = np.setdiff1d(np.arange(model.adata.n_obs), train)
    if len(held_out):
        yield "held-out", train, held_out


def _without_rare(key: str, labels: pd.Series, splits) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and the cells that have one with enough cells in every split to be probed."""
    known = labels.notna().to_numpy()
    y = labels.astype(str).to_numpy()
    common = set(y[known])
    for _, _, cells in splits:
        names, counts = np.unique(y[cells][known[cells]], return_counts=True)
        common &= set(names[counts >= MIN_CELLS])
    rare = sorted(set(y[known]) - common)
    if len(common) < 2:
        raise ValueError(
            f"{key!r} has fewer than two labels with {MIN_CELLS} cells in every split; hold out more cells, or merge "
            "labels."
        )
    if rare:
        warnings.warn(
            f"{key!r}: labels with fewer than {MIN_CELLS} cells in a split are left out of the report: {rare}.",
            UserWarning,
            stacklevel=4,
        )
    return y, np.flatnonzero(known & np.isin(y, sorted(common)))


def _probe_rows(x, y, train, cells, kinds, seed) -> Iterator[dict[str, Any]]:
    rows = cells if train is None else np.union1d(train, cells)
    x, y = x[rows], y[rows]
    train = None if train is None else np.flatnonzero(np.isin(rows, train))
    found: list[dict[str, Any]] = []
    for kind in kinds:
        result = metrics.probe(x, y, kind=kind, train=train, seed=seed)
        interval = {"low": result.low, "high": result.high, "null_high": result.null_high}
        found.append({"metric": f"probe_{kind}", "value": result.accuracy} | interval)
    yield from found
    if found:
        yield max(found, key=lambda row: row["value"]) | {"metric": "probe_best"}


def _cluster_rows(x, y, seed) -> Iterator[dict[str, Any]]:
    nmi = metrics.kmeans_nmi(x, y, seed=seed)
    yield {"metric": "kmeans_nmi", "value": nmi.whole}
    yield {"metric": "kmeans_nmi_best_dimension", "value": nmi.best_dimension}
    yield {"metric": "kmeans_ari", "value": metrics.kmeans_ari(x, y, seed=seed).whole}
    yield {"metric": "silhouette", "value": metrics.silhouette(x, y, seed=seed)}


def _information_rows(w, z, y, estimators, seed) -> Iterator[dict[str, Any]]:
    rarest = int(np.unique(y, return_counts=True)[1].min())
    for estimator in estimators:
        table = metrics.information_table(w, z, y, estimator=estimator, k=min(20, rarest - 1), seed=seed)
        for name in ("yz", "yw", "wz", "wz_given_y", "mig", "mic"):
            yield {"metric": f"{estimator}_{name}", "value": getattr(table, name)}
