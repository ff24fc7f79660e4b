"""Minified data: the latents of the cells in place of their counts."""

from __future__ import annotations

from typing import ClassVar, Literal

from discovr_sc.model.interface import ModelInterface


class MinifiedMixin(ModelInterface):
    """A model whose data can be made small, for sharing; also on scvi-tools' hub."""

    # scvi-tools' load looks for these names.
    _LATENT_QZM_KEY: ClassVar[str] = "_scvi_latent_qzm"
    _LATENT_QZV_KEY: ClassVar[str] = "_scvi_latent_qzv"

    def minify_adata(
        self,
        minified_data_type: Literal[
            "latent_posterior_parameters", "latent_posterior_parameters_with_counts"
        ] = "latent_posterior_parameters",
    ) -> None:
        """Give the model a copy of its data with the posteriors of z and w in place of the counts.

        :meth:`get_latent_representation`, :meth:`get_normalized_expression` (full and marginal),
        :meth:`get_reconstruction` and :meth:`disentanglement_report` answer from these posteriors as they did from the
        counts; what needs counts (likelihoods, :meth:`predict_condition`, training) raises. For a cell of unknown
        condition the mean and the variance of w over the conditions are kept. The AnnData that the model was made with
        stays as it is.

        Parameters
        ----------
        minified_data_type
            Whether the counts are kept, too.

        Examples
        --------
        >>> import scvi
        >>> from discovr_sc import DISCOVR, data
        >>> scvi.settings.verbosity = 30  # warnings only
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition")
        >>> model = DISCOVR(adata)
        >>> model.train(max_epochs=1, enable_progress_bar=False)
        >>> model.minify_adata()
        >>> model.adata.X.nnz, adata.X.nnz > 0
        (0, True)
        >>> model.get_normalized_expression(kind="marginal").shape
        (200, 50)
        """
        self.check_trained()
        if "w" not in self.latents:
            raise ValueError(f"minify_adata keeps z and w; {type(self).__name__} has no w.")
        if self.adata is None:
            raise ValueError("The model was loaded without data; there is nothing to minify.")
        if self.minified_data_type is not None:
            raise ValueError("The model's data are minified already.")
        if self.get_setup_arg("tensor_key") is not None:
            raise ValueError("minify_adata is for data in adata.X or a layer, not for an array in obsm (tensor_key).")
        mean, variance = self.get_latent_representation(kind="zw", return_dist=True)
        kept = {self._LATENT_QZM_KEY: mean, self._LATENT_QZV_KEY: variance}
        original = self.adata
        original.obsm.update(kept)
        try:
            super().minify_adata(minified_data_type, *kept)
        finally:
            for key in kept:
                del original.obsm[key]
