"""The methods that the paper compares DisCoVR with, under DISCOVR's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from anndata import AnnData

from discovr_sc.model.base import DisentangledModel
from discovr_sc.model.paper import paper_weights
from discovr_sc.module import CCVAEModule, CSVAEModule, CVAEModule, DIVAModule, HCSVAEModule, Weights
from discovr_sc.module.likelihoods import is_of_counts
from discovr_sc.module.weights import complete


class Baseline(DisentangledModel):
    """What the baselines share.

    Parameters
    ----------
    adata
        An AnnData that :meth:`setup_anndata` has seen.
    n_latent_z, n_latent_w
        Sizes of the latents.
    likelihood, network, n_hidden, n_layers, dropout_rate, use_batch_norm, classifier_batch_norm, channels
        See :class:`~discovr_sc.DISCOVR`.
    dispersion, noise_scale, encode_covariates
        See :class:`~discovr_sc.DISCOVR`.
    weights
        Of the objective's terms: a dictionary of those that differ from the default, or :class:`~discovr_sc.Weights`
        with all. By default the paper's, for counts those of its single-cell experiment.
    registry
        For scvi-tools, when a model is loaded without data.
    **kwargs
        Settings of this method alone; see its module.
    """

    #: p(w | y) of the method.
    _prior: ClassVar[str]

    def __init__(
        self,
        adata: AnnData | None = None,
        n_latent_z: int = 10,
        n_latent_w: int = 2,
        *,
        likelihood: Literal["zinb", "nb", "gaussian", "image-gaussian", "bernoulli"] = "zinb",
        network: Literal["mlp", "cnn", "larsen"] = "mlp",
        n_hidden: int = 128,
        n_layers: int = 1,
        dropout_rate: float = 0.0,
        use_batch_norm: bool = True,
        classifier_batch_norm: bool = False,
        channels: Sequence[int] | None = None,
        dispersion: Literal["gene", "gene-batch", "gene-cell"] = "gene",
        noise_scale: float = 1.0,
        weights: Weights | Mapping[str, float] | None = None,
        encode_covariates: bool = False,
        registry: dict | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            adata,
            registry,
            n_latent_z=n_latent_z,
            n_latent_w=n_latent_w,
            likelihood=likelihood,
            network=network,
            n_hidden=n_hidden,
            n_layers=n_layers,
            dropout_rate=dropout_rate,
            use_batch_norm=use_batch_norm,
            classifier_batch_norm=classifier_batch_norm,
            channels=channels,
            dispersion=dispersion,
            noise_scale=noise_scale,
            prior=self._prior,
            weights=complete(weights, self._default_weights(likelihood)),
            encode_covariates=encode_covariates,
            **kwargs,
        )
        self.init_params_ = self._get_init_params(locals())

    @classmethod
    def _default_weights(cls, likelihood: str) -> Weights:
        return paper_weights(cls._paper_name, "kang" if is_of_counts(likelihood) else "parametric")


class CSVAE(Baseline):
    """Conditional subspace VAE. See :class:`Baseline` for arguments.

    Without its adversary, as in the paper's "No Adv.", it is ``CSVAE.paper(adata, experiment, method="csvae-noadv")``.

    Examples
    --------
    >>> from discovr_sc import CSVAE, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> CSVAE.setup_anndata(adata, condition_key="condition")
    >>> model = CSVAE(adata)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation(kind="z").shape
    (200, 10)
    """

    _module_cls = CSVAEModule
    _paper_name = "csvae"
    _prior = "separable"


class HCSVAE(Baseline):
    """CSVAE with one more latent level; takes ``n_latent_u``. See :class:`Baseline` for the other arguments.

    Examples
    --------
    >>> from discovr_sc import HCSVAE, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> HCSVAE.setup_anndata(adata, condition_key="condition")
    >>> model = HCSVAE(adata, n_latent_u=5)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation(kind="zw").shape
    (200, 12)
    """

    _module_cls = HCSVAEModule
    _paper_name = "hcsvae"
    _prior = "separable"


class DIVA(Baseline):
    """Domain-invariant VAE. See :class:`Baseline` for arguments.

    Examples
    --------
    >>> from discovr_sc import DIVA, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> DIVA.setup_anndata(adata, condition_key="condition")
    >>> model = DIVA(adata)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation(kind="w").shape
    (200, 2)
    """

    _module_cls = DIVAModule
    _paper_name = "diva"
    # w is inferred from the data alone: its posterior is that of the cell's own condition.
    counterfactual_ways = ("analogy", "neighbors", "prior")
    _prior = "learned"


class CCVAE(Baseline):
    """Characteristic-capturing VAE; takes ``prior_z`` and ``n_classifier_samples``.

    See :class:`Baseline` for the other arguments.

    Examples
    --------
    >>> from discovr_sc import CCVAE, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> CCVAE.setup_anndata(adata, condition_key="condition")
    >>> model = CCVAE(adata, n_classifier_samples=10)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_normalized_expression(kind="marginal").shape
    (200, 50)
    """

    _module_cls = CCVAEModule
    _paper_name = "ccvae"
    counterfactual_ways = ("analogy", "neighbors", "prior")
    _prior = "learned"


class CVAE(Baseline):
    """Conditional VAE: it has no w. See :class:`Baseline` for arguments, of which ``n_latent_w`` has no effect.

    Examples
    --------
    >>> from discovr_sc import CVAE, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> CVAE.setup_anndata(adata, condition_key="condition")
    >>> model = CVAE(adata)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation().shape
    (200, 10)
    """

    _module_cls = CVAEModule
    latents = ("z",)
    counterfactual_ways = ("posterior",)
    _paper_name = "cvae"
    _prior = "standard"

    @classmethod
    def _default_weights(cls, likelihood):
        return Weights()

    def get_latent_representation(
        self, adata: AnnData | None = None, indices: Sequence[int] | None = None, *, kind: Literal["z"] = "z", **kwargs
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """See :meth:`DISCOVR.get_latent_representation`; ``kind="z"`` only.

        Examples
        --------
        >>> from discovr_sc import CVAE, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> CVAE.setup_anndata(adata, condition_key="condition")
        >>> model = CVAE(adata)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> model.get_latent_representation().shape
        (200, 10)
        """
        if kind != "z":
            raise ValueError(f"kind={kind!r}: CVAE has no w, the condition itself stands in its place; use kind='z'.")
        return super().get_latent_representation(adata, indices, kind=kind, **kwargs)
