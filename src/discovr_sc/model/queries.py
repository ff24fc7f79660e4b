"""What a trained model is asked: latents, reconstructions, likelihoods, the report."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy.sparse import csr_array, csr_matrix
from scvi import REGISTRY_KEYS, settings
from scvi.utils import unsupported_if_adata_minified

from discovr_sc.model.checks import check_gene_list, check_whole_number
from discovr_sc.model.conditions import SEPARATOR
from discovr_sc.model.report import disentanglement_report

#: Numbers that a pass without gradients may hold of the data: small batches cost more to fetch than to encode.
_NUMBERS_PER_PASS = 2_000_000

LatentKind = Literal["z", "w", "zw"]
ReconstructionKind = Literal["full", "marginal"]


class QueryMixin:
    """Questions to a trained model; comes before scvi-tools' mixins, whose methods it extends."""

    #: Which reconstruction the methods of scvi-tools decode.
    _kind: ReconstructionKind = "full"

    # Latents ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def get_latent_representation(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        kind: LatentKind = "z",
        use_mean: bool = True,
        return_dist: bool = False,
        batch_size: int | None = None,
        dataloader: Iterable[dict[str, torch.Tensor]] | None = None,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The latent representation of cells.

        Parameters
        ----------
        adata
            Cells; those of the training by default. Cells whose condition is missing (or that have no column of
            conditions) count as unknown: their w is averaged over the conditions by their posterior probability
            given the cell.
        indices
            Rows to take; all by default.
        kind
            ``"z"``: shared by all conditions. ``"w"``: what the condition adds. ``"zw"``: both, z first.
        use_mean
            The posterior mean, or else one sample.
        return_dist
            Return means and variances.
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
        self._check_if_trained(warn=False)
        if kind not in ("z", "w", "zw"):
            raise ValueError(f"kind={kind!r} is not known; choose 'z', 'w' or 'zw'.")
        if dataloader is None:
            by_moments = return_dist or use_mean
            dataloader = self._batches(adata, indices, batch_size, sparse=by_moments and self.module.reads_sparse(kind))
        parts: list[tuple[torch.Tensor, ...]] = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)  # torch's sparse rows are in beta
            for tensors in dataloader:
                if return_dist or use_mean:
                    moments = self.module.latent_moments(tensors, kind)
                    picked = [moments[latent] for latent in kind]  # [(mean, variance), ...]
                    parts.append(tuple(torch.cat(columns, dim=-1).cpu() for columns in zip(*picked, strict=True)))
                else:
                    samples = self.module.latent_samples(tensors)
                    parts.append((torch.cat([samples[latent] for latent in kind], dim=-1).cpu(),))
        arrays = [torch.cat(column).numpy() for column in zip(*parts, strict=True)]
        return (arrays[0], arrays[1]) if return_dist else arrays[0]

    @unsupported_if_adata_minified
    @torch.inference_mode()
    def predict_condition(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        key: str | None = None,
        n_samples: int = 64,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """Posterior probabilities of the conditions given each cell's data, its label not used.

        Parameters
        ----------
        adata, indices, batch_size
            See :meth:`get_latent_representation`.
        key
            Of several columns that make the condition, the one to predict; their combinations by default.
        n_samples
            Importance samples for each condition.

        Returns
        -------
        DataFrame of cells by conditions.

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50, n_batches=2)
        >>> DISCOVR.setup_anndata(adata, condition_key=["condition", "batch"])
        >>> model = DISCOVR(adata)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> list(model.predict_condition(n_samples=2).columns)
        ['control & batch_0', 'control & batch_1', 'treated_1 & batch_0', 'treated_1 & batch_1']
        >>> list(model.predict_condition(key="condition", n_samples=2).columns)
        ['control', 'treated_1']
        """
        self._check_if_trained(warn=False)
        parts = None if key is None else self._condition_parts(key)
        adata = self._validate_anndata(adata)
        log_joint = [
            self.module.log_joint(tensors, n_mc_samples=n_samples).cpu()
            for tensors in self._batches(adata, indices, batch_size)
        ]
        probs = torch.softmax(torch.cat(log_joint), dim=-1).numpy()
        probs = pd.DataFrame(probs, index=_names(adata, indices), columns=self.conditions)
        return probs if parts is None else probs.T.groupby(parts, sort=False).sum().T

    def _condition_parts(self, key: str) -> np.ndarray:
        """What every condition says of one of the columns that make it."""
        keys = self.condition_keys
        if key not in keys:
            raise ValueError(f"key={key!r} is not one of the columns that make the condition; choose from {keys}.")
        if len(keys) == 1:
            return self.conditions
        return np.array([name.split(SEPARATOR)[keys.index(key)] for name in self.conditions])

    def disentanglement_report(
        self,
        cell_type_key: str | None = None,
        *,
        probes: Sequence[str] = ("linear", "knn", "boosting", "mlp"),
        estimators: Sequence[str] = ("knn",),
        seed: int = 0,
    ) -> pd.DataFrame:
        """How well z and w separate the condition from the rest, on the training cells and on held-out ones.

        Probes, clusterings and silhouettes look at posterior means, mutual informations at one posterior sample.
        Held-out cells are those that neither the model nor the probe was fitted on.

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
        and the 95th percentile of the permutation null (null_high).

        Examples
        --------
        >>> report = model.disentanglement_report("cell_type", probes=["linear"])
        >>> sorted(set(report["latent"])), sorted(set(report["of"])), sorted(set(report["split"]))
        (['w', 'z', 'zw'], ['cell_type', 'condition'], ['held-out', 'train'])
        """
        self._check_if_trained(warn=False)
        return disentanglement_report(self, cell_type_key, probes=probes, estimators=estimators, seed=seed)

    def get_elbo(self, *args, **kwargs):
        """See :meth:`scvi.model.base.VAEMixin.get_elbo`: a lower bound on log p(x | y), in nats per cell.

        Examples
        --------
        >>> bool(model.get_elbo() < 0)
        True
        """
        self._check_if_trained(warn=False)
        return super().get_elbo(*args, **kwargs)

    def get_latent_library_size(self, *args, **kwargs):
        """Not there: the library size is observed."""
        raise ValueError("The library size is observed, not latent; take adata.X.sum(1), or the size factors.")

    # Reconstructions -------------------------------------------------------------------------------------------

    def get_normalized_expression(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        kind: ReconstructionKind = "full",
        gene_list: Sequence[str] | None = None,
        library_size: float | Literal["latent"] = 1,
        n_samples: int = 1,
        n_samples_overall: int | None = None,
        return_mean: bool = True,
        return_numpy: bool | None = None,
        transform_batch: Sequence[str] | str | None = None,
        weights: Literal["uniform"] | None = None,
        batch_size: int | None = None,
        silent: bool = True,
        dataloader: Iterable[dict[str, torch.Tensor]] | None = None,
    ) -> pd.DataFrame | np.ndarray:
        """Normalised (decoded) gene expression.

        Parameters
        ----------
        adata, indices
            See :meth:`get_latent_representation`.
        kind
            ``"full"`` decodes both latents. ``"marginal"`` decodes z alone: what the cell would express, its
            condition averaged out.
        gene_list
            Genes to return; all by default.
        library_size
            What a cell's expression sums to; ``"latent"`` for the cell's own total (or size factor).
        n_samples, return_mean
            Posterior samples of the latents, and whether to average them. One sample differs from call to call.
        transform_batch
            Decode as if all cells were of this batch (or averaged over these).
        n_samples_overall, weights, return_numpy, batch_size, silent, dataloader
            See :meth:`scvi.model.SCVI.get_normalized_expression`.

        Returns
        -------
        DataFrame of cells by genes, whose rows sum to ``library_size``; an array where several samples are kept.

        Examples
        --------
        >>> marginal = model.get_normalized_expression(kind="marginal", library_size=1e4, n_samples=5)
        >>> marginal.shape, round(float(marginal.iloc[0].sum()))
        ((200, 50), 10000)
        """
        self._check_of_genes("get_normalized_expression", instead="; use get_reconstruction")
        self._check_if_trained(warn=False)
        if weights == "importance":
            raise ValueError("weights='importance' is for one latent with a normal prior; use weights='uniform'.")
        if kind == "marginal" and library_size == "latent" and not self.module.has_z_likelihood:
            raise ValueError(
                f"library_size='latent': {type(self).__name__} averages normalised expression for kind='marginal'; "
                "give library_size a number."
            )
        if gene_list is not None:
            check_gene_list(gene_list, self.get_var_names())
        with self._decoding(kind):
            return super().get_normalized_expression(
                adata,
                indices,
                transform_batch=transform_batch,
                gene_list=gene_list,
                library_size=library_size,
                n_samples=n_samples,
                n_samples_overall=n_samples_overall,
                weights=weights,
                batch_size=batch_size or self._cells_per_pass(n_samples),
                return_mean=return_mean,
                return_numpy=return_numpy,
                silent=silent,
                dataloader=dataloader,
            )

    def posterior_predictive_sample(self, *args, kind: ReconstructionKind = "full", **kwargs):
        """Counts drawn from the decoded distribution, as a sparse array ``(n_cells, n_genes)``.

        Parameters
        ----------
        *args, **kwargs
            See :meth:`scvi.model.SCVI.posterior_predictive_sample`.
        kind
            ``"full"`` draws from p(x | z, w), ``"marginal"`` from p(x | z).

        Examples
        --------
        >>> model.posterior_predictive_sample(kind="marginal").shape
        (200, 50)
        """
        self._check_if_trained(warn=False)
        if kind == "marginal" and not self.module.has_z_likelihood:
            raise ValueError(f"{type(self).__name__} has no likelihood of x given z alone; use kind='full'.")
        with self._decoding(kind):
            return super().posterior_predictive_sample(*args, **kwargs)

    @torch.inference_mode()
    def get_reconstruction(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        kind: ReconstructionKind = "full",
        use_mean: bool = False,
        n_samples: int = 1,
        return_mean: bool = True,
        batch_size: int | None = None,
    ) -> np.ndarray:
        """Mean of the decoded distribution, in the data's own shape; for counts the normalised expression.

        Parameters
        ----------
        adata, indices, batch_size
            See :meth:`get_latent_representation`.
        kind
            ``"full"`` from both latents, ``"marginal"`` from z, w averaged out.
        use_mean
            Decode the posterior means of the latents, in place of samples.
        n_samples
            Posterior samples of the latents.
        return_mean
            Average over the samples.

        Returns
        -------
        Array ``(n_cells, *shape)``; ``(n_samples, n_cells, *shape)`` for several samples that are kept.

        Examples
        --------
        >>> model.get_reconstruction(n_samples=3, return_mean=False).shape
        (3, 200, 50)
        """
        self._check_if_trained(warn=False)
        _check_kind(kind)
        check_whole_number("n_samples", n_samples, at_least=1)
        if use_mean and n_samples != 1:
            raise ValueError(f"n_samples={n_samples}: there is one posterior mean; leave n_samples out with use_mean.")
        likelihood = self.module.likelihood_of(kind)
        parts = []
        for tensors in self._batches(adata, indices, batch_size, n_samples=n_samples):
            _, p = self._forward(tensors, n_samples, kind, use_mean)
            px = likelihood.reconstruction(p["px"])
            parts.append((px.mean(0) if n_samples > 1 and return_mean else px).cpu())
        cell_axis = 1 if n_samples > 1 and not return_mean else 0
        return torch.cat(parts, dim=cell_axis).numpy()

    @unsupported_if_adata_minified
    @torch.inference_mode()
    def get_reconstruction_error(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        kind: ReconstructionKind = "full",
        batch_size: int | None = None,
        return_mean: bool = True,
    ) -> float | np.ndarray:
        """-log p(x | z, w), or -log p(x | z) for ``kind="marginal"``, at one posterior sample; in nats per cell.

        Parameters
        ----------
        adata, indices, batch_size
            See :meth:`get_latent_representation`.
        kind
            Which decoder.
        return_mean
            Average over cells.

        Examples
        --------
        >>> model.get_reconstruction_error(kind="marginal", return_mean=False).shape
        (200,)
        """
        self._check_if_trained(warn=False)
        _check_kind(kind)
        if kind == "marginal" and not self.module.has_z_likelihood:
            raise ValueError(
                f"{type(self).__name__} has no likelihood of x given z alone; use kind='full', or compare "
                "get_reconstruction(kind='marginal') with the data."
            )
        likelihood = self.module.likelihood_of(kind)
        errors = []
        for tensors in self._batches(adata, indices, batch_size):
            _, p = self._forward(tensors, 1, kind)
            x = self.module.data(tensors).to(self.module.device)
            errors.append(-likelihood.log_prob(p["px"], x).cpu())
        errors = torch.cat(errors).numpy()
        return float(errors.mean()) if return_mean else errors

    @unsupported_if_adata_minified
    def get_marginal_ll(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        kind: ReconstructionKind = "full",
        n_mc_samples: int = 1000,
        batch_size: int | None = None,
        return_mean: bool = True,
    ) -> float | np.ndarray:
        """Log p(x) (not its negative) by importance sampling, in nats per cell.

        Parameters
        ----------
        adata, indices, batch_size
            See :meth:`get_latent_representation`.
        kind
            ``"full"``: of the model of both latents, the condition summed out with p(y). ``"marginal"``: of the model
            of z alone.
        n_mc_samples
            Importance samples (for each condition).
        return_mean
            Average over cells.

        Examples
        --------
        >>> bool(model.get_marginal_ll(n_mc_samples=20) < 0)
        True
        """
        self._check_if_trained(warn=False)
        _check_kind(kind)
        log_px = [
            self.module.marginal_ll(tensors, n_mc_samples=n_mc_samples, kind=kind)
            for tensors in self._batches(adata, indices, batch_size)
        ]
        log_px = torch.cat(log_px).numpy()
        return float(log_px.mean()) if return_mean else log_px

    def _check_of_genes(self, method: str, instead: str = "") -> None:
        """Raise where a method is asked about other data than counts of genes."""
        if not self.module.likelihood.counts:
            raise ValueError(f"{method} is for counts (likelihood 'zinb' or 'nb'){instead}.")
        tensor_key = self.registry["setup_args"]["tensor_key"]
        if tensor_key is not None:
            raise ValueError(
                f"{method} is about genes, but the model's counts are in obsm[{tensor_key!r}], whose columns have no "
                f"names; set up the model with the counts in X or in a layer{instead}."
            )

    def _forward(
        self, tensors: dict[str, torch.Tensor], n_samples: int, kind: ReconstructionKind, use_mean: bool = False
    ):
        return self.module.forward(
            tensors,
            inference_kwargs={"n_samples": n_samples, "use_mean": use_mean},
            generative_kwargs={"kind": kind},
            compute_loss=False,
        )

    def _batches(
        self,
        adata: AnnData | None,
        indices: Sequence[int] | None,
        batch_size: int | None,
        *,
        n_samples: int = 1,
        sparse: bool = False,
    ):
        """Mini-batches so small that ``n_samples`` can be decoded at once; with ``sparse``, sparse rows stay sparse."""
        adata = self._validate_anndata(adata)
        manager = self.get_anndata_manager(adata, required=True)
        stored_as_rows = isinstance(manager.get_from_registry(REGISTRY_KEYS.X_KEY), csr_matrix | csr_array)
        return self._make_data_loader(
            adata=adata,
            indices=indices,
            batch_size=batch_size or self._cells_per_pass(n_samples),
            load_sparse_tensor=sparse and stored_as_rows,
        )

    def _cells_per_pass(self, n_samples: int = 1) -> int:
        return max(_NUMBERS_PER_PASS // (n_samples * math.prod(self.module.shape)), settings.batch_size)

    @contextmanager
    def _decoding(self, kind: ReconstructionKind):
        """Let scvi-tools' methods decode this kind of reconstruction, through the hook below."""
        _check_kind(kind)
        self._kind = kind
        try:
            yield
        finally:
            self._kind = "full"

    def _get_transform_batch_gen_kwargs(self, batch: int | None) -> dict[str, Any]:
        return {"transform_batch": batch, "kind": self._kind}


def _check_kind(kind: str) -> None:
    if kind not in ("full", "marginal"):
        raise ValueError(f"kind={kind!r} is not known; choose 'full' or 'marginal'.")


def _names(adata: AnnData, indices: Sequence[int] | None) -> pd.Index:
    return adata.obs_names if indices is None else adata.obs_names[indices]
