"""The methods that the paper compares DisCoVR with, under DISCOVR's API."""

from discovr_sc.model.base import DisentangledModel
from discovr_sc.module import CCVAEModule, CSVAEModule, CVAEModule, DIVAModule, HCSVAEModule


class Baseline(DisentangledModel):
    """What the baselines share.

    Parameters
    ----------
    adata
        An AnnData that :meth:`setup_anndata` has seen.
    n_latent_z, n_latent_w
        Sizes of the latents.
    likelihood, network, n_hidden, ...
        See :class:`~discovr_sc.DISCOVR`.
    weights
        Of the objective's terms: a dictionary of those that differ from the default, or :class:`~discovr_sc.Weights`
        with all. By default the paper's, for counts those of its single-cell experiment.
    registry
        For scvi-tools, when a model is loaded without data.

    Examples
    --------
    >>> from discovr_sc import CCVAE, CSVAE, CVAE, DIVA, HCSVAE
    >>> for method, settings in [(CSVAE, {}), (HCSVAE, {"n_latent_u": 5}), (DIVA, {}), (CCVAE, {}), (CVAE, {})]:
    ...     method.setup_anndata(adata, condition_key="condition")
    ...     model = method(adata, **settings)
    ...     model.train(max_epochs=1, enable_progress_bar=False)
    ...     print(method.__name__, model.get_latent_representation(kind="z").shape)
    CSVAE (200, 10)
    HCSVAE (200, 10)
    DIVA (200, 10)
    CCVAE (200, 10)
    CVAE (200, 10)
    """


class CSVAE(Baseline):
    """Conditional subspace VAE. See :class:`Baseline` for arguments.

    Without its adversary, as in the paper's "No Adv.", it is ``CSVAE.paper(adata, experiment, method="csvae-noadv")``.
    """

    _module_cls = CSVAEModule
    _paper_name = "csvae"


class HCSVAE(Baseline):
    """CSVAE with one more latent level; takes ``n_latent_u``. See :class:`Baseline` for the other arguments."""

    _module_cls = HCSVAEModule
    _paper_name = "hcsvae"


class DIVA(Baseline):
    """Domain-invariant VAE. See :class:`Baseline` for arguments."""

    _module_cls = DIVAModule
    _paper_name = "diva"
    # w is inferred from the data alone: its posterior is that of the cell's own condition.
    counterfactual_ways = ("quantile", "prior", "neighbors", "neighbor-shift")


class CCVAE(Baseline):
    """Characteristic-capturing VAE; takes ``prior_z`` and ``n_classifier_samples``, and what :class:`Baseline` does."""

    _module_cls = CCVAEModule
    _paper_name = "ccvae"
    counterfactual_ways = ("quantile", "prior", "neighbors", "neighbor-shift")


class CVAE(Baseline):
    """Conditional VAE: it has no w. See :class:`Baseline` for arguments, of which ``n_latent_w`` has no effect."""

    _module_cls = CVAEModule
    latents = ("z",)
    counterfactual_ways = ("posterior",)
    _paper_name = "cvae"
