"""What a cell would express in a condition that it was not measured in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from anndata import AnnData
from scvi.utils import track

from discovr_sc.model.checks import check_whole_number
from discovr_sc.model.conditions import conditions_of
from discovr_sc.model.values import row_numbers
from discovr_sc.module.counterfactual import (
    AtSameQuantile,
    ByNeighborShift,
    Decodable,
    FromNeighbors,
    FromPosterior,
    FromPrior,
    Pair,
)
from discovr_sc.module.coupling import at_same_quantiles, drawn_counts
from discovr_sc.module.noise import COUNTS, KEY, WAYS, CellNoise, noise_of
from discovr_sc.tools.draws import seeded

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface, Tensors

#: Posterior samples that a prediction is averaged over, by kind; the mean of several draws of counts is no count.
N_SAMPLES = {"scale": 25, "counts": 1}
#: From that many passes a progress bar is shown.
PASSES_TO_SHOW = 20
#: Like cells to draw from, by default.
N_NEIGHBORS = 200
#: Ways that need no training cells.
WITHOUT_CELLS = {"quantile": AtSameQuantile, "prior": FromPrior, "posterior": FromPosterior}
#: Samples that the ends of an interval are read from at least.
FEWEST_FOR_INTERVAL = 10
UNITS = {
    "scale": "normalised expression: fractions of a cell's counts, which sum to 1 over genes",
    "counts": "counts at the cell's own total (or size factor)",
    "reconstruction": "mean of p(x | z, w), in the units of the data",
}


def predict_counterfactual(
    model: ModelInterface,
    adata: AnnData | None = None,
    *,
    target: str,
    indices: Sequence[int] | np.ndarray | None = None,
    n_samples: int | None = None,
    kind: Literal["scale", "counts"] = "scale",
    by: Literal["quantile", "prior", "posterior", "neighbors", "neighbor-shift"] | None = None,
    n_neighbors: int = N_NEIGHBORS,
    cell_type_key: str | None = None,
    keep_noise: bool = True,
    interval: float | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> AnnData:
    """Predict cells in another condition.

    Parameters
    ----------
    adata
        Cells; those of the training by default. They need not have been seen in training, nor their condition be
        known.
    target
        Condition to predict the cells in.
    indices
        Rows to take; all by default.
    n_samples
        Samples of the latents to average over: by default 25 for ``kind="scale"`` and 1 for ``"counts"``, as a
        mean of counts is no count.
    kind
        ``"scale"``: normalised expression, which sums to 1 over genes. ``"counts"``: counts at the cell's own total
        (or size factor), with the noise that real cells have. Models of other data than counts predict the mean in
        the data's units; leave this out.
    by
        How w of the target condition is chosen; z stays the cell's own. ``"quantile"``, the default: the cell's w keeps
        its place, its quantile in p(w | its condition) becomes the same quantile of p(w | target). ``"prior"``: drawn
        from p(w | target). ``"posterior"``: from q(w | x, target), as if the cell as measured had been in the target
        condition. These three need neither training cells nor cell types. ``"neighbors"``: from the posteriors of the
        training cells of the target condition that are nearest in z. ``"neighbor-shift"`` is a rule around the model:
        the cell moves as a training cell of the target condition that is like it differs from its counterpart in the
        cell's own condition, half in the latents and half in what is decoded. CVAE has no w, and only its posterior.
    n_neighbors
        For ``by="neighbors"`` and ``"neighbor-shift"``: how many like cells to draw from, anew for each sample; a tenth
        of the training cells of a condition at most.
    cell_type_key
        For ``by="neighbor-shift"``: column of the model's ``obs`` with cell types. A like cell and its counterpart are
        then of one type, and half of the like cells are found among those of the cell's own condition.
    keep_noise
        For ``kind="counts"``: each count is that of the target condition at the quantile which the measured count
        has in the cell's own, so that what is peculiar to a cell stays with it. False draws counts anew.
    interval
        Also give the ends of a credible interval, such as 0.9 for the 5 % and 95 % quantiles of the samples, in the
        layers ``"lower"`` and ``"upper"``. It needs at least 10 samples.
    seed
        Of the samples: cells of the same name get the same prediction, whichever others are predicted with them.
    batch_size
        Cells per pass.

    Returns
    -------
    AnnData with the cells' own names, the prediction in ``X`` (in ``obsm`` for models with ``tensor_key``), and in
    ``obs`` the cells' columns and ``source_condition`` and ``target_condition``; the columns of conditions have the
    target. ``uns["counterfactual"]`` has units and settings. Ends of an interval are in ``layers`` (in ``obsm``, with
    ``"_lower"`` and ``"_upper"`` after the key, for models with ``tensor_key``).

    Examples
    --------
    >>> treated = model.predict_counterfactual(target="treated_1", indices=[0, 1, 2])
    >>> treated.shape, round(float(treated.X.sum()), 3)
    ((3, 50), 3.0)
    """
    model.check_trained()
    model.check_not_minified("predict_counterfactual")
    if kind not in N_SAMPLES:
        raise ValueError(f"kind={kind!r} is not known; choose from {list(N_SAMPLES)}.")
    if kind == "counts" and not model.module.likelihood.counts:
        raise ValueError("kind='counts' is for likelihood 'zinb' or 'nb'; leave kind out.")
    chosen = by or model.counterfactual_ways[0]
    if cell_type_key is not None and chosen != "neighbor-shift":
        raise ValueError(
            f"cell_type_key={cell_type_key!r} does nothing with by={chosen!r}; leave it out, or by='neighbor-shift'."
        )
    n_samples = N_SAMPLES[kind] if n_samples is None else n_samples
    check_whole_number("n_samples", n_samples, at_least=1)
    ends = interval_ends(interval, n_samples)
    condition = model.condition_index(target, "target")
    adata = model.validate(adata)
    rows = row_numbers(indices, adata.n_obs)
    predicted = np.empty((len(rows), *model.module.shape), dtype=np.float32)
    layers = {name: np.empty_like(predicted) for name in ends}
    n_passes = math.ceil(len(rows) / (batch_size or model.cells_per_pass(n_samples)))
    done = 0
    with seeded(seed):
        way = way_to(model, condition, chosen, n_neighbors, cell_type_key)
        batches = model.batches(adata, rows, batch_size, n_samples=n_samples, seed=seed)
        for tensors in track(batches, f"Cells in {target}", n_passes < PASSES_TO_SHOW, total=n_passes):
            own, under = own_and_under(model, tensors, condition, way, n_samples)
            px = decode(model, under)
            if kind == "scale":
                values = model.module.likelihood.reconstruction(px)
            elif keep_noise:
                x = model.module.data(tensors).expand(px.mu.shape)
                values = at_same_quantiles(x, decode(model, own), px, noise_of(tensors, COUNTS))
            else:
                values = drawn_counts(px, CellNoise(tensors[KEY], COUNTS))
            here = slice(done, done + values.shape[n_samples > 1])
            for name, end in ends.items():
                layers[name][here] = torch.quantile(values, end, dim=0).cpu().numpy()
            predicted[here] = (values.mean(0) if n_samples > 1 else values).cpu().numpy()
            done = here.stop
    settings: dict[str, Any] = {"target": target, "by": chosen, "n_samples": n_samples}
    given = {"cell_type_key": cell_type_key, "interval": interval}
    settings |= {name: value for name, value in given.items() if value is not None}
    settings |= {"keep_noise": keep_noise} if kind == "counts" else {}
    settings["units"] = UNITS[kind if model.module.likelihood.counts else "reconstruction"]
    obs = _columns(model, adata, rows, target)
    tensor_key = model.get_setup_arg("tensor_key")
    if tensor_key is not None:
        of_data = {tensor_key: predicted} | {f"{tensor_key}_{name}": values for name, values in layers.items()}
        return AnnData(obs=obs, obsm=of_data, uns={"counterfactual": settings})
    return AnnData(predicted, obs=obs, var=adata.var[[]].copy(), layers=layers, uns={"counterfactual": settings})


def interval_ends(interval: float | None, n_samples: int) -> dict[str, float]:
    """The quantiles at both ends of a credible interval; none where no interval is asked for."""
    if interval is None:
        return {}
    if not 0 < interval < 1:
        raise ValueError(f"interval={interval!r}; give a share of the samples between 0 and 1, such as 0.9.")
    if n_samples < FEWEST_FOR_INTERVAL:
        raise ValueError(
            f"interval={interval!r} is read from n_samples={n_samples} samples, which are too few; give n_samples of "
            f"at least {FEWEST_FOR_INTERVAL}."
        )
    return {"lower": (1 - interval) / 2, "upper": (1 + interval) / 2}


def _columns(model: ModelInterface, adata: AnnData, rows: np.ndarray, target: str):
    """The cells' columns of ``obs``, their own conditions noted and replaced by the target."""
    obs = adata.obs.iloc[rows].copy()
    obs = obs.drop(columns=[column for column in obs if column.startswith("_scvi")])
    has_conditions = all(key in obs for key in model.condition_keys)
    how = model.get_setup_arg("condition_key"), model.get_setup_arg("unlabeled_category")
    obs["source_condition"] = conditions_of(obs, *how).of_cells if has_conditions else np.nan
    obs["target_condition"] = target
    return obs.assign(**model.condition_table.iloc[model.condition_index(target, "target")])


# Parts, which differential expression and effects use, too ---------------------------------------------------------


def way_to(
    model: ModelInterface,
    condition: int,
    by: str | None = None,
    n_neighbors: int = N_NEIGHBORS,
    cell_type_key: str | None = None,
) -> Callable:
    """How w is chosen for a condition; by default in the method's first way."""
    by = by or model.counterfactual_ways[0]
    if by not in model.counterfactual_ways:
        raise ValueError(
            f"by={by!r} is not a way {type(model).__name__} has; choose from {list(model.counterfactual_ways)}."
        )
    check_whole_number("n_neighbors", n_neighbors, at_least=1)
    if by in WITHOUT_CELLS:
        return WITHOUT_CELLS[by]()
    moments = moments_by_condition(model, by, condition)
    if by == "neighbors":
        return FromNeighbors(moments, condition, n_neighbors)
    cell_types = None
    if cell_type_key is not None:
        if cell_type_key not in model.adata.obs:
            raise KeyError(
                f"cell_type_key {cell_type_key!r} is not a column of the model's adata.obs; it has "
                f"{list(model.adata.obs.columns)}."
            )
        cells = model.training_cells()
        of_cells = model.adata.obs[cell_type_key].astype(str).to_numpy()[cells]
        cell_types = {k: of_cells[has_k] for k, has_k in model.by_condition(cells).items()}
    return ByNeighborShift(moments, condition, n_neighbors, names=list(model.conditions), cell_types=cell_types)


def moments_by_condition(model: ModelInterface, by: str, condition: int) -> dict[int, tuple[np.ndarray, ...]]:
    """Posterior means of z, and means and variances of w, of the training cells, by condition."""
    what_else = "with the cells it was trained on and give others as adata, or use by='prior'."
    if model.adata is None:
        raise ValueError(f"by={by!r} looks for cells like these, but the model has no data; load it {what_else}")
    cells = model.training_cells()
    conditions = model.by_condition(cells)
    if condition not in conditions:
        raise ValueError(
            f"by={by!r} looks for cells of condition {model.conditions[condition]!r}, but the model's AnnData has "
            f"none; load the model {what_else}"
        )
    z = model.get_latent_representation(indices=cells)
    w = model.get_latent_representation(indices=cells, kind="w", return_dist=True)
    return {k: tuple(moment[has_k] for moment in (z, *w)) for k, has_k in conditions.items()}


def own_and_under(
    model: ModelInterface, tensors: Tensors, condition: int | None, way: Callable | None, n_samples: int
) -> tuple[Decodable, Decodable]:
    """Samples of what cells are decoded from in their own condition, and in another (None: again their own)."""
    inputs, q = model.infer(tensors, n_samples)
    own = Decodable(Pair(q["z"], q["w"]), inputs["given"])
    if condition is None or way is None:
        return own, own
    with torch.inference_mode():
        target = torch.full_like(inputs["y"], condition)
        return own, way(model.module, inputs["x"], inputs["given"], q, target, noise_of(tensors, WAYS))


@torch.inference_mode()
def decode(model: ModelInterface, latents: Decodable) -> Any:
    """p(x | .)."""
    return latents.decode(model.module)
