"""DisCoVR, the model."""

from discovr_sc.model.base import DisentangledModel
from discovr_sc.module import DISCOVRModule
from discovr_sc.settings import COUNT_PLAN, VECTOR_PLAN


class DISCOVR(DisentangledModel):
    """Separates what all conditions share (z) from what a condition changes (w).

    Parameters
    ----------
    adata
        An AnnData that :meth:`setup_anndata` has seen.
    n_latent_z, n_latent_w
        Dimensions of z, what all conditions share, and of w, what a condition changes. By default w of counts has as
        many as there are conditions, from 2 to 10; w of other data has 2.
    likelihood
        ``"zinb"`` or ``"nb"`` for counts, ``"gaussian"``, or ``"image-gaussian"`` or ``"bernoulli"`` for values in
        [0, 1].
    network
        ``"mlp"`` for vectors, ``"cnn"`` for images (the paper's for coloured MNIST), ``"larsen"`` for images whose
        height and width are multiples of 8 (those of Larsen et al. 2016 for faces).
    n_hidden, n_layers
        Width and number of the hidden layers of encoders and decoders.
    dropout_rate
        Dropout in the encoders.
    use_batch_norm, classifier_batch_norm
        Batch normalisation in encoders and decoders, and in the fully connected layers of classifiers, the adversary's
        among them.
    channels
        Widths of the convolutions, four for ``"cnn"`` and three for ``"larsen"``; None takes the paper's.
    dispersion
        Of counts: ``"gene"``, ``"gene-batch"`` or ``"gene-cell"``.
    zero_inflation
        Of ``"zinb"``: a share of extra zeros for each ``"gene"``, or decoded for each gene and cell (``"gene-cell"``,
        scVI's and the paper's). The latter can explain any zero, and expression is then free where a gene is silent.
    likelihood_z
        Of the data given z alone; by default as ``likelihood``, but without zero inflation (``"nb"`` for ``"zinb"``):
        a gene that one condition silences would pass for one with extra zeros.
    noise_scale, noise_scale_z
        Standard deviations of the Gaussian decoders of (z, w) and of z alone, fixed. The second is as the first
        by default.
    narrow_z
        How many times narrower the convolutions of the decoder of z alone are: an average needs less detail, and the
        second decoder is most of what DisCoVR costs more than its baselines on images.
    mmd_bandwidths
        Of the kernels of the weight ``mmd``, squared, relative to the mean squared distance of two draws from N(0, I).
        Where z lies on a thin sheet, finer ones see a shift between conditions across it, which neighbours still tell
        and an adversary of smooth layers does not.
    n_components_z
        Of the mixture of Gaussians that is the prior of z, so that kinds of cells may lie apart; 1 is N(0, I), the
        paper's. By default 50 for counts, otherwise 1. Every condition has its own shares of them. With
        ``cell_type_key`` there is one for each cell type.
    center_w
        Whether the encoder of w gives what a cell's w adds to the mean of p(w | y), where ``prior="learned"``. By
        default for counts only.
    prior
        p(w | y): ``"condition-mean"`` is N(mu_k, I) around the condition mean of z (needs equal sizes), ``"mapped"`` a
        small network of mu_k, ``"learned"`` has free parameters per condition, ``"standard"`` is N(0, I),
        ``"separable"`` is off or on per condition.
    adversary
        Where the adversary looks: at the ``"reconstruction"`` from z (the paper), at z itself (``"latent"``), or
        at ``"both"``.
    adversary_trains
        What learns to hide the condition in the reconstruction from z: the ``"encoder"`` of z, or the ``"encoder and
        decoder"`` of z alone. The decoder can hide from the adversary what z still tells; the encoder cannot.
    network_adversary
        Kind of the adversary's networks, by default as ``network``; ``"mlp"`` takes images, too, and is the cheapest.
    n_hidden_adversary, n_layers_adversary, channels_adversary
        Sizes of the adversary's networks; None takes those of the encoders.
    weights
        Of the objective's terms: a dictionary of those that differ from the default, or :class:`~discovr_sc.Weights`
        with all. By default, for counts, ``rec=1, rec_z=0.1, kl_z=0.4, kl_w=0.5, adv=40, mmd=1000, shift=5,
        hsic=200``, otherwise ``rec=1, rec_z=0.5, kl_z=1, kl_w=1, adv=1, mmd=0, shift=0, hsic=0``.
    encode_covariates
        Whether batch and covariates enter the encoders as well as the decoders.
    registry
        For scvi-tools, when a model is loaded without data.

    Examples
    --------
    >>> from discovr_sc import DISCOVR, data
    >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
    >>> DISCOVR.setup_anndata(adata, condition_key="condition")
    >>> model = DISCOVR(adata)
    >>> model.train(max_epochs=1, enable_progress_bar=False)
    >>> model.get_latent_representation(kind="z").shape
    (200, 10)
    """

    _module_cls = DISCOVRModule
    _paper_name = "discovr"
    _uses_cell_types = True
    _plan_defaults = {"counts": COUNT_PLAN, "vectors": VECTOR_PLAN}
