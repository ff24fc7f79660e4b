"""What a cell would express in a condition that it was not measured in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from anndata import AnnData
from scvi import REGISTRY_KEYS

from discovr_sc.model.checks import check_whole_number
from discovr_sc.model.conditions import SEPARATOR, condition_labels
from discovr_sc.model.draws import row_numbers, seeded
from discovr_sc.module.counterfactual import ByAnalogy, Decodable, FromNeighbors, FromPosterior, FromPrior, Pair
from discovr_sc.module.coupling import at_same_quantiles

#: Posterior samples that a prediction is averaged over, by kind; the mean of several draws of counts is no count.
N_SAMPLES = {"scale": 25, "counts": 1}
#: Like cells to draw from, by default.
N_NEIGHBORS = 200
UNITS = {
    "scale": "normalised expression: fractions of a cell's counts, which sum to 1 over genes",
    "counts": "counts at the cell's own total (or size factor)",
    "reconstruction": "mean of p(x | z, w), in the units of the data",
}


class CounterfactualMixin:
    """Predictions of cells in other conditions."""

    #: Ways to choose w that the method has, the default first.
    counterfactual_ways: ClassVar[tuple[str, ...]] = ("analogy", "neighbors", "prior", "posterior")

    def predict_counterfactual(
        self,
        adata: AnnData | None = None,
        *,
        target: str,
        indices: Sequence[int] | None = None,
        n_samples: int | None = None,
        kind: Literal["scale", "counts"] = "scale",
        by: Literal["analogy", "neighbors", "prior", "posterior"] | None = None,
        n_neighbors: int = N_NEIGHBORS,
        cell_type_key: str | None = None,
        keep_noise: bool = True,
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
            ``"analogy"``: the cell is moved as a like cell of the target condition is moved from its counterpart in
            the cell's own condition, half in the latents and half in what is decoded (expression as log(1 + counts per
            10,000)). The other ways decode the cell's z with a w of the target condition. ``"neighbors"``: from the
            posteriors of the training cells of the target condition that are nearest in z. ``"prior"``: from
            p(w | target). ``"posterior"``: from q(w | x, target), which is told that the cell as measured had been in
            the target condition. The default is the first of these that the method has (CVAE has no w, and its
            posterior is the condition itself).
        n_neighbors
            For ``by="analogy"`` and ``"neighbors"``: how many like cells to draw from, anew for each sample; a tenth of
            the training cells of a condition at most.
        cell_type_key
            For ``by="analogy"``: column of the model's ``obs`` with kinds of cells, such as the cell type. A like cell
            and its counterpart are then of one kind, and half of the like cells are found among those of the cell's own
            condition. Give it where a kind is missing from the target condition: z has to put such cells beside others,
            and the difference of two kinds would be taken for an effect.
        keep_noise
            For ``kind="counts"``: each count is that of the target condition at the quantile which the measured count
            has in the cell's own, so that what is peculiar to a cell stays with it. False draws counts anew.
        seed
            Of the samples: the same cells get the same prediction.
        batch_size
            Cells per pass.

        Returns
        -------
        AnnData with the cells' own names, the prediction in ``X`` (in ``obsm`` for models with ``tensor_key``), and in
        ``obs`` the cells' columns and ``source_condition`` and ``target_condition``; the columns of conditions have the
        target. ``uns["counterfactual"]`` has units and settings.

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition")
        >>> model = DISCOVR(adata)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> treated = model.predict_counterfactual(target="treated_1", indices=[0, 1, 2])
        >>> treated.shape, round(float(treated.X.sum()), 3)
        ((3, 50), 3.0)
        """
        self._check_if_trained(warn=False)
        self._check_has_counts("predict_counterfactual")
        if kind not in N_SAMPLES:
            raise ValueError(f"kind={kind!r} is not known; choose from {list(N_SAMPLES)}.")
        if kind == "counts" and not self.module.likelihood.counts:
            raise ValueError("kind='counts' is for likelihood 'zinb' or 'nb'; leave kind out.")
        if cell_type_key is not None and (by or self.counterfactual_ways[0]) != "analogy":
            raise ValueError(
                f"cell_type_key={cell_type_key!r} does nothing with by={by!r}; leave it out, or by='analogy'."
            )
        n_samples = N_SAMPLES[kind] if n_samples is None else n_samples
        check_whole_number("n_samples", n_samples, at_least=1)
        code = self._condition_code(target, "target")
        adata = self._validate_anndata(adata)
        parts = []
        with seeded(seed):
            way = self._way(by, code, n_neighbors, cell_type_key)
            for tensors in self._batches(adata, indices, batch_size, n_samples=n_samples):
                own, under = self._own_and_under(tensors, code, way, n_samples)
                px = self._decode(under)
                if kind == "scale":
                    values = self.module.likelihood.reconstruction(px)
                elif keep_noise:
                    x = self.module.data(tensors).expand(px.mu.shape)
                    values = at_same_quantiles(x, self._decode(own), px)
                else:
                    values = px.sample()
                parts.append((values.mean(0) if n_samples > 1 else values).cpu().numpy())
        settings = {"target": target, "by": by or self.counterfactual_ways[0], "n_samples": n_samples}
        if cell_type_key is not None:
            settings["cell_type_key"] = cell_type_key
        if kind == "counts":
            settings["keep_noise"] = keep_noise
        return self._as_anndata(adata, indices, np.concatenate(parts), kind, settings)

    # Parts, which differential expression and effects use, too -----------------------------------------------------

    def _condition_code(self, condition: str, argument: str) -> int:
        known = list(self.conditions)
        if condition not in known:
            raise ValueError(f"{argument}={condition!r} is not one of the model's conditions; choose from {known}.")
        return known.index(condition)

    def _way(self, by: str | None, code: int, n_neighbors: int, cell_type_key: str | None = None) -> Callable:
        """How w is chosen for a condition."""
        by = by or self.counterfactual_ways[0]
        if by not in self.counterfactual_ways:
            raise ValueError(
                f"by={by!r} is not a way {type(self).__name__} has; choose from {list(self.counterfactual_ways)}."
            )
        check_whole_number("n_neighbors", n_neighbors, at_least=1)
        if by in ("posterior", "prior"):
            return {"posterior": FromPosterior, "prior": FromPrior}[by]()
        moments = self._moments_by_condition(by, code)
        if by == "neighbors":
            return FromNeighbors(moments, code, n_neighbors)
        kinds = None if cell_type_key is None else self._kinds_by_condition(cell_type_key)
        return ByAnalogy(moments, code, n_neighbors, names=list(self.conditions), kinds=kinds)

    def _cells_and_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the training cells, or of all cells of the model's data where these are others; their conditions."""
        cells = np.sort(self.train_indices) if self._has_training_data() else np.arange(self.adata.n_obs)
        return cells, self.adata_manager.get_from_registry(REGISTRY_KEYS.LABELS_KEY).ravel()[cells]

    def _kinds_by_condition(self, cell_type_key: str) -> dict[int, np.ndarray]:
        """Labels of the training cells, by condition."""
        if cell_type_key not in self.adata.obs:
            raise KeyError(
                f"cell_type_key {cell_type_key!r} is not a column of the model's adata.obs; it has "
                f"{list(self.adata.obs.columns)}."
            )
        cells, codes = self._cells_and_codes()
        labels = self.adata.obs[cell_type_key].astype(str).to_numpy()[cells]
        return {int(k): labels[codes == k] for k in np.unique(codes[codes >= 0])}

    def _moments_by_condition(self, by: str, code: int) -> dict[int, tuple[np.ndarray, ...]]:
        """Posterior means of z, and means and variances of w, of the training cells, by condition."""
        what_else = "with the cells it was trained on and give others as adata, or use by='prior'."
        if self.adata is None:
            raise ValueError(f"by={by!r} looks for cells like these, but the model has no data; load it {what_else}")
        cells, codes = self._cells_and_codes()
        if code not in codes:
            raise ValueError(
                f"by={by!r} looks for cells of condition {self.conditions[code]!r}, but the model's AnnData has none; "
                f"load the model {what_else}"
            )
        z = self.get_latent_representation(indices=cells)
        w = self.get_latent_representation(indices=cells, kind="w", return_dist=True)
        known = np.unique(codes[codes >= 0])
        return {int(k): tuple(moment[codes == k] for moment in (z, *w)) for k in known}

    @torch.inference_mode()
    def _latents_under(
        self, tensors: dict[str, torch.Tensor], code: int | None, way: Callable | None, n_samples: int
    ) -> Decodable:
        """Samples of what cells are decoded from in a condition; None for their own."""
        return self._own_and_under(tensors, code, way, n_samples)[-1]

    @torch.inference_mode()
    def _own_and_under(
        self, tensors: dict[str, torch.Tensor], code: int | None, way: Callable | None, n_samples: int
    ) -> tuple[Decodable, Decodable]:
        """Samples for the cells' own condition and for another, from the same z."""
        tensors = {key: value.to(self.module.device) for key, value in tensors.items()}
        inputs = self.module._get_inference_input(tensors)
        q = self.module.inference(**inputs, n_samples=n_samples)
        own = Decodable(Pair(q["z"], q["w"]), inputs["given"])
        if way is None:
            return own, own
        return own, way(self.module, inputs["x"], inputs["given"], q, torch.full_like(inputs["y"], code))

    @torch.inference_mode()
    def _decode(self, latents: Decodable):
        return latents.decode(self.module)

    def _as_anndata(
        self, adata: AnnData, indices: Sequence[int] | None, values: np.ndarray, kind: str, settings: dict
    ) -> AnnData:
        arguments = self.registry["setup_args"]
        obs = adata.obs.iloc[row_numbers(indices, adata.n_obs)].copy()
        obs = obs.drop(columns=[column for column in obs if column.startswith("_scvi")])
        target, keys = settings["target"], self.condition_keys
        obs["source_condition"] = (
            condition_labels(obs, arguments["condition_key"], arguments.get("unlabeled_category"))
            if all(key in obs for key in keys)
            else np.nan
        )
        obs["target_condition"] = target
        for key, label in zip(keys, target.split(SEPARATOR) if len(keys) > 1 else [target], strict=True):
            obs[key] = label
        tensor_key = arguments["tensor_key"]
        units = UNITS[kind if self.module.likelihood.counts else "reconstruction"]
        uns = {"counterfactual": {"units": units} | settings}
        if tensor_key is not None:
            return AnnData(obs=obs, obsm={tensor_key: values}, uns=uns)
        return AnnData(values, obs=obs, var=adata.var[[]].copy(), uns=uns)
