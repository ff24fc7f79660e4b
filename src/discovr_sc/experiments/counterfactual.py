"""Leave one cell type out: predict its stimulated cells from its controls and from all other types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scanpy as sc
import scvi
import torch
from anndata import AnnData

from discovr_sc import metrics
from discovr_sc.data import log_counts
from discovr_sc.model import DISCOVR

#: Predicted cells at least: where a type has fewer controls, each is predicted several times, with other draws.
N_PREDICTED = 2000
#: Genes that differ most between the type's real conditions, by Welch's t-test on log counts.
N_TOP = 100


def run_heldout(
    adata: AnnData,
    held_out: str,
    method: str,
    seed: int = 0,
    max_epochs: int | None = None,
    *,
    condition_key: str = "stim",
    type_key: str = "cell_type",
    control: str = "CTRL",
    target: str = "STIM",
) -> dict[str, float]:
    """Train without the target cells of one type, predict them from its controls, and compare with the real ones.

    Cells are compared as log(1 + counts per 10,000 of the genes of ``adata``).

    Parameters
    ----------
    adata
        Counts of all cells.
    held_out
        Cell type whose target cells are left out.
    method
        One of :data:`METHODS`.
    seed
        Of training and prediction.
    max_epochs
        Of training; the model's default where None.
    condition_key, type_key
        Columns of ``obs``.
    control, target
        Conditions.

    Returns
    -------
    ``r2_all``, ``r2_top100`` (squared correlation of gene means, over all genes and over the most differential ones),
    ``determination_all``, ``determination_top100`` (coefficient of determination) and ``energy_distance``.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known; choose from {list(METHODS)}.")
    if held_out not in set(adata.obs[type_key]):
        raise ValueError(f"held_out={held_out!r} is not in adata.obs[{type_key!r}].")
    of_type = (adata.obs[type_key] == held_out).to_numpy()
    is_target = (adata.obs[condition_key] == target).to_numpy()
    is_control = (adata.obs[condition_key] == control).to_numpy()
    real, controls = adata[of_type & is_target], adata[of_type & is_control].copy()
    train = adata[~(of_type & is_target)].copy()
    scvi.settings.seed = seed
    predicted = METHODS[method](train, controls, condition_key, type_key, control, target, max_epochs)
    return score(predicted, log_counts(real.X), log_counts(controls.X))


def score(predicted: np.ndarray, real: np.ndarray, controls: np.ndarray) -> dict[str, float]:
    """Compare predicted with real cells, all as log counts ``(cells, genes)``; controls tell which genes differ."""
    top = differential_genes(real, controls, N_TOP)
    over_all, over_top = (metrics.mean_score(predicted, real, genes) for genes in (None, top))
    return {
        "r2_all": over_all.r2,
        "r2_top100": over_top.r2,
        "determination_all": over_all.determination,
        "determination_top100": over_top.determination,
        "energy_distance": metrics.energy_distance(predicted, real),
    }


def differential_genes(real: np.ndarray, controls: np.ndarray, n: int) -> np.ndarray:
    """Positions of the genes with the largest |t| of Welch's t-test."""
    cells = AnnData(np.vstack([real, controls]))
    cells.obs["group"] = ["real"] * len(real) + ["control"] * len(controls)
    sc.tl.rank_genes_groups(cells, "group", groups=["real"], reference="control", method="t-test")
    table = sc.get.rank_genes_groups_df(cells, "real").dropna(subset="scores")
    best = table.reindex(table["scores"].abs().sort_values(ascending=False, kind="stable").index)["names"][:n]
    return cells.var_names.get_indexer(best)


# The methods: from training cells and the type's controls to predicted cells, as log counts ------------------------


def predict_discovr(train, controls, condition_key, type_key, control, target, max_epochs) -> np.ndarray:
    """DISCOVR with its defaults: counts drawn under the target condition."""
    DISCOVR.setup_anndata(train, condition_key=condition_key)
    model = DISCOVR(train)
    model.train(max_epochs, enable_progress_bar=False)
    draws = [
        model.predict_counterfactual(controls, target=target, kind="counts", seed=i).X for i in range(_draws(controls))
    ]
    return log_counts(np.concatenate(draws))


def predict_shift(train, controls, condition_key, type_key, control, target, max_epochs) -> np.ndarray:
    """Each control plus the mean difference between the conditions, over the cells of all other types."""
    others = train[~train.obs[type_key].isin(controls.obs[type_key])]
    x, condition = log_counts(others.X), others.obs[condition_key].to_numpy()
    return log_counts(controls.X) + x[condition == target].mean(0) - x[condition == control].mean(0)


def predict_scgen(train, controls, condition_key, type_key, control, target, max_epochs) -> np.ndarray:
    """Arithmetic as in scGen on an scVI latent: the conditions' mean difference is added to the controls' z.

    As in scGen the difference is over all other types, each with equally many cells of both conditions.
    """
    scvi.model.SCVI.setup_anndata(train)
    model = scvi.model.SCVI(train)
    model.train(max_epochs, enable_progress_bar=False)
    others = np.flatnonzero(~train.obs[type_key].isin(controls.obs[type_key]))
    z = model.get_latent_representation(train)
    balanced = _equal_numbers(train.obs.iloc[others], [type_key, condition_key])
    chosen = others[balanced]
    condition = train.obs[condition_key].to_numpy()[chosen]
    shift = z[chosen][condition == target].mean(0) - z[chosen][condition == control].mean(0)
    draws = [_decode_shifted(model, controls, shift) for _ in range(_draws(controls))]
    return log_counts(np.concatenate(draws))


def predict_scvi(train, controls, condition_key, type_key, control, target, max_epochs) -> np.ndarray:
    """SCVI with the condition as its batch: the controls' counts drawn as if of the target's batch."""
    scvi.model.SCVI.setup_anndata(train, batch_key=condition_key)
    model = scvi.model.SCVI(train)
    model.train(max_epochs, enable_progress_bar=False)
    draws = [
        model.posterior_predictive_sample(controls, transform_batch=[target]).todense() for _ in range(_draws(controls))
    ]
    return log_counts(np.concatenate(draws))


METHODS: dict[str, Callable[..., np.ndarray]] = {
    "discovr": predict_discovr,
    "shift": predict_shift,
    "scgen-style": predict_scgen,
    "scvi": predict_scvi,
}


def _draws(controls: AnnData) -> int:
    return max(1, round(N_PREDICTED / controls.n_obs))


def _equal_numbers(obs, keys: list[str]) -> np.ndarray:
    """Positions of cells such that, by the first key, both conditions have as many as the larger one (drawn again)."""
    rng = np.random.default_rng(0)
    picked = []
    for _, of_type in obs.reset_index(drop=True).groupby(keys[0], observed=True):
        groups = [rows.index.to_numpy() for _, rows in of_type.groupby(keys[1], observed=True)]
        size = max(map(len, groups))
        picked += [rng.choice(rows, size) if len(rows) < size else rows for rows in groups]
    return np.concatenate(picked)


@torch.inference_mode()
def _decode_shifted(model: scvi.model.SCVI, cells: AnnData, shift: np.ndarray) -> np.ndarray:
    """Counts drawn at z + shift, at the cells' own totals."""
    drawn = []
    loader = model._make_data_loader(model._validate_anndata(cells))
    for tensors in loader:
        inference = model.module.inference(**model.module._get_inference_input(tensors))
        inputs = model.module._get_generative_input(tensors, inference)
        inputs["z"] = inputs["z"] + torch.as_tensor(shift, dtype=inputs["z"].dtype)
        drawn.append(model.module.generative(**inputs)["px"].sample().numpy())
    return np.concatenate(drawn)
