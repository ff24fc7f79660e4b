"""The skeleton of every method: two latents, one decoder of both, an adversary; subclasses give the objective."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import LossOutput, auto_move_data
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal
from torch.nn.functional import cross_entropy

from discovr_sc.module.evidence import EvidenceMixin, Given
from discovr_sc.module.gaussians import draw, rows, standard_normal_like
from discovr_sc.module.likelihoods import LIKELIHOODS, Likelihood
from discovr_sc.module.minified import MinifiedMixin
from discovr_sc.module.networks import ADVERSARIES, ADVERSARY_NETWORKS, NETWORKS, Adversary
from discovr_sc.module.priors import PRIORS, ConditionMeans
from discovr_sc.module.weights import Weights


class DisentangledModule(MinifiedMixin, EvidenceMixin):
    """z shared by all conditions, w what the condition adds; both reconstruct the data.

    A subclass gives :meth:`objective`, and whatever its graphical model needs beyond the skeleton.

    Parameters
    ----------
    shape
        Shape of one observation: ``(n_genes,)`` or ``(channels, height, width)``.
    n_conditions
        Number of conditions, K.
    n_batch, n_cats_per_cov, n_continuous_cov
        Numbers of batches, of categories of each categorical covariate, and of continuous covariates. They
        condition the decoders and, with ``encode_covariates``, the encoders.
    condition_probs
        p(y), of length K; uniform by default.
    n_latent_z, n_latent_w
        Sizes of the latents.
    likelihood
        ``"zinb"``, ``"nb"``, ``"gaussian"``, ``"image-gaussian"`` or ``"bernoulli"``.
    network
        ``"mlp"``, ``"cnn"`` or ``"larsen"``.
    n_hidden, n_layers, dropout_rate, use_batch_norm, classifier_batch_norm, channels
        Of the networks; see :class:`~discovr_sc.module.networks.MLP`.
    dispersion
        ``"gene"``, ``"gene-batch"`` or ``"gene-cell"``, for counts.
    zero_inflation
        ``"gene"`` or ``"gene-cell"``, for ``"zinb"``.
    noise_scale
        Standard deviation of a Gaussian likelihood.
    prior
        Of w: ``"condition-mean"``, ``"mapped"``, ``"learned"``, ``"standard"`` or ``"separable"``.
    adversary
        Where the adversary looks; one of :attr:`adversary_places`.
    network_adversary, n_hidden_adversary, n_layers_adversary, channels_adversary
        Of the adversary's networks; as the others by default.
    weights
        Of the objective's terms.
    encode_covariates
        Whether batch and covariates enter the encoders, too.
    data_scale
        Factor by which stored values are multiplied on the fly, 1/255 for images stored as bytes.

    Examples
    --------
    A method is its objective: named terms, each a weight and a loss ``(n,)``. A plain VAE of z and w:

    >>> from discovr_sc.module import DisentangledModule
    >>> from discovr_sc.module.gaussians import kl
    >>> class Plain(DisentangledModule):
    ...     adversary_places = ()
    ...
    ...     def objective(self, x, q, p, logits):
    ...         return {
    ...             "rec": (self.weights.rec, -self.likelihood.log_prob(p["px"], x)),
    ...             "kl_z": (self.weights.kl_z, kl(q["qz"], p["pz"])),
    ...             "kl_w": (self.weights.kl_w, kl(q["qw"], p["pw"])),
    ...         }
    >>> Plain((50,), n_conditions=2).adversary is None
    True
    """

    #: Latents whose encoder sees the condition beside the data.
    sees_condition: ClassVar[tuple[str, ...]] = ("w",)
    #: Whether the method has a likelihood of the data given z alone.
    has_z_likelihood: ClassVar[bool] = False
    #: Terms of the objective that a cell of unknown condition has, where there is a likelihood given z alone.
    terms_without_condition: ClassVar[tuple[str, ...]] = ("rec_z", "kl_z", "mmd")
    #: Where this method's adversary can look; nowhere if it has none.
    adversary_places: ClassVar[tuple[str, ...]] = ("latent",)

    def __init__(
        self,
        shape: tuple[int, ...],
        n_conditions: int,
        *,
        n_batch: int = 1,
        n_cats_per_cov: Sequence[int] = (),
        n_continuous_cov: int = 0,
        condition_probs: Sequence[float] | None = None,
        n_latent_z: int = 10,
        n_latent_w: int = 2,
        likelihood: str = "zinb",
        network: str = "mlp",
        n_hidden: int = 128,
        n_layers: int = 1,
        dropout_rate: float = 0.1,
        use_batch_norm: bool = True,
        classifier_batch_norm: bool = False,
        channels: Sequence[int] | None = None,
        dispersion: str = "gene",
        zero_inflation: str = "gene-cell",
        noise_scale: float = 1.0,
        prior: str = "mapped",
        adversary: str = "latent",
        network_adversary: str | None = None,
        n_hidden_adversary: int | None = None,
        n_layers_adversary: int | None = None,
        channels_adversary: Sequence[int] | None = None,
        weights: Weights | None = None,
        encode_covariates: bool = False,
        data_scale: float = 1.0,
    ):
        super().__init__()
        sizes = {"n_latent_z": n_latent_z, "n_latent_w": n_latent_w, "n_hidden": n_hidden, "n_layers": n_layers}
        for argument, size in sizes.items():
            if size < 1:
                raise ValueError(f"{argument}={size}; give a whole number of at least 1.")
        self.shape = tuple(shape)
        self.n_conditions = n_conditions
        self.n_latent_z = n_latent_z
        self.n_latent_w = n_latent_w
        self.weights = weights or Weights()
        self.encode_covariates = encode_covariates
        self.n_cats = (*n_cats_per_cov, n_batch)
        self.n_cont = n_continuous_cov
        probs = torch.full((n_conditions,), 1 / n_conditions) if condition_probs is None else condition_probs
        self.register_buffer("condition_probs", torch.as_tensor(probs, dtype=torch.float32))

        likelihood_cls = choose(LIKELIHOODS, "likelihood", likelihood)
        self._likelihood_name = likelihood
        network_cls = choose(NETWORKS, "network", network)
        if likelihood_cls.counts and len(self.shape) != 1:
            raise ValueError(
                f"likelihood={likelihood!r} models counts of genes, but one observation has shape {self.shape}; "
                "use likelihood='gaussian' or 'bernoulli' for images."
            )
        # Counts are counts, however they are stored.
        self.data_scale = 1.0 if likelihood_cls.counts else data_scale
        self._likelihood_settings = {"dispersion": dispersion, "zero_inflation": zero_inflation, "n_batch": n_batch}
        self.likelihood = likelihood_cls(self.shape, noise_scale=noise_scale, **self._likelihood_settings)
        sizes = {"n_hidden": n_hidden, "n_layers": n_layers}
        regularisation = {
            "dropout_rate": dropout_rate,
            "use_batch_norm": use_batch_norm,
            "classifier_batch_norm": classifier_batch_norm,
        }
        self.networks = network_cls(self.shape, channels=channels, **sizes, **regularisation)
        sizes = {"n_hidden": n_hidden_adversary or n_hidden, "n_layers": n_layers_adversary or n_layers}
        adversary_cls = choose(ADVERSARY_NETWORKS, "network_adversary", network_adversary or network)
        if adversary_cls is network_cls:
            channels_adversary = channels_adversary or channels
        self.adversary_networks = adversary_cls(self.shape, channels=channels_adversary, **sizes, **regularisation)
        self.condition_means = ConditionMeans(n_conditions, n_latent_z)
        self.prior = choose(PRIORS, "prior", prior)(n_conditions, n_latent_z, n_latent_w)
        self.build_networks()
        if self.prior.in_space_of_z:
            self.start_alike()
        self.adversary = self._build_adversary(adversary)

    # Parts ----------------------------------------------------------------------------------------------------

    def build_networks(self) -> None:
        """Build encoders and decoders; a subclass with other networks extends or replaces this."""
        self.z_encoder = self.networks.encoder(self.n_latent_z, *self.encoder_covariates("z"))
        self.w_encoder = self.networks.encoder(self.n_latent_w, *self.encoder_covariates("w"))
        self.decoder = self.networks.decoder(
            self.n_latent_z + self.n_latent_w, self.likelihood.heads, self.n_cats, self.n_cont
        )

    @torch.no_grad()
    def start_alike(self) -> None:
        """Let both latents, and the decoder's use of them, start alike, where the prior puts them into one space.

        Else w may learn the mirror image of z, which the prior then fights for good. A subclass with more networks
        extends this.
        """
        copy_shared_weights(self.z_encoder, self.w_encoder)
        first = next(self.decoder.parameters())
        first[:, self.n_latent_z : 2 * self.n_latent_z] = first[:, : self.n_latent_z]

    def encoder_covariates(self, latent: str) -> tuple[tuple[int, ...], int]:
        """Numbers of categories and of continuous covariates that the encoder of a latent sees."""
        condition = (self.n_conditions,) if latent in self.sees_condition else ()
        cats, cont = (self.n_cats, self.n_cont) if self.encode_covariates else ((), 0)
        return (*condition, *cats), cont

    def encode(self, encoder: nn.Module, latent: str, h: Tensor, y: Tensor, given: Given) -> Normal:
        """q(latent | h), with the covariates that its encoder sees."""
        condition = (y.clamp(min=0).unsqueeze(-1),) if latent in self.sees_condition else ()
        cats, cont = (given.cats, given.cont) if self.encode_covariates else ((), None)
        return encoder(h, *condition, *cats, cont=cont)

    def _build_adversary(self, adversary: str) -> Adversary | None:
        places = choose(ADVERSARIES, "adversary", adversary)
        if not self.adversary_places:
            if adversary != "latent":
                raise ValueError(f"adversary={adversary!r}: {type(self).__name__} has no adversary; leave it out.")
            return None
        unavailable = set(places) - set(self.adversary_places)
        if unavailable:
            available = [name for name, p in ADVERSARIES.items() if set(p) <= set(self.adversary_places)]
            raise ValueError(
                f"adversary={adversary!r} looks at the {unavailable.pop()}, which {type(self).__name__} does not "
                f"have; choose from {available}."
            )
        if self.weights.adv == 0:
            return None
        builders = {
            "latent": lambda: self.adversary_networks.latent_classifier(self.n_latent_z, self.n_conditions),
            "reconstruction": lambda: self.adversary_networks.data_classifier(self.n_conditions),
        }
        return Adversary({place: builders[place]() for place in places})

    @property
    def gene_likelihood(self) -> str:
        """Name of the likelihood, as scvi-tools' methods ask for it."""
        return self._likelihood_name

    # Inference: q(z | x) q(w | x, y) --------------------------------------------------------------------------

    def _get_inference_input(self, tensors: dict[str, Tensor], draw_unknown: bool = True) -> dict:
        """Inputs of inference; unknown conditions are drawn from their posterior, or else (in training) stay -1."""
        if self.minified_data_type is not None:
            return self._cached_inference_input(tensors)
        y = self._known_conditions(tensors) if draw_unknown else tensors[REGISTRY_KEYS.LABELS_KEY].squeeze(-1).long()
        return {
            "x": self.data(tensors),
            "y": y,
            "given": self._given(tensors),
        }

    def _regular_inference(
        self,
        x: Tensor,
        y: Tensor,
        given: Given,
        n_samples: int = 1,
        use_mean: bool = False,
        generator: torch.Generator | None = None,
        spread: float = 1.0,
    ) -> dict[str, Tensor | Distribution]:
        """Posteriors of the latents and a sample of each: ``q<latent>`` and ``<latent>``, and the conditions ``y``.

        Parameters
        ----------
        x
            Data, ``(n, *shape)``.
        y
            Condition codes, ``(n,)``.
        given
            Size factors and covariates.
        n_samples
            Above 1, samples get a leading axis of that length.
        use_mean
            Take posterior means in place of samples.
        generator
            Of the samples' noise; torch's global one by default.
        spread
            Draw from Gaussians that many times as wide as the posteriors, as importance sampling does.
        """
        h = self.likelihood.encode(x)
        qz = self.encode(self.z_encoder, "z", h, y, given)
        qw = self.encode(self.w_encoder, "w", h, y, given)
        return {
            "qz": qz,
            "z": draw(qz, n_samples, use_mean, generator, spread),
            "qw": qw,
            "w": draw(qw, n_samples, use_mean, generator, spread),
            "y": y,
        }

    def data(self, tensors: dict[str, Tensor]) -> Tensor:
        """The data of a mini-batch, ``(n, *shape)``; images stored as bytes come out in [0, 1]."""
        x = tensors[REGISTRY_KEYS.X_KEY]
        return x if self.data_scale == 1 else x * self.data_scale

    def _given(self, tensors: dict[str, Tensor]) -> Given:
        size_factor = None
        if self.likelihood.counts:
            size_factor = tensors.get(REGISTRY_KEYS.SIZE_FACTOR_KEY)
            if size_factor is None:
                size_factor = tensors.get(REGISTRY_KEYS.OBSERVED_LIB_SIZE)  # kept with minified data
            if size_factor is None:
                size_factor = tensors[REGISTRY_KEYS.X_KEY].sum(-1, keepdim=True)
        cats = tensors.get(REGISTRY_KEYS.CAT_COVS_KEY)
        cats = () if cats is None else cats.long().split(1, dim=-1)
        return Given(size_factor, (*cats, tensors[REGISTRY_KEYS.BATCH_KEY]), tensors.get(REGISTRY_KEYS.CONT_COVS_KEY))

    # Generation: p(x | z, w), p(w | y) ------------------------------------------------------------------------

    def _get_generative_input(self, tensors: dict[str, Tensor], inference_outputs: dict) -> dict:
        return {"q": inference_outputs, "given": self._given(tensors)}

    def generative(
        self,
        q: dict[str, Tensor | Distribution],
        given: Given,
        transform_batch: int | None = None,
        kind: Literal["objective", "full", "marginal"] = "objective",
        kl_weight: float | Tensor | None = None,
    ) -> dict[str, Tensor | Distribution]:
        """Distributions of the data, ``px``, and of the latents, ``p<latent>``.

        Parameters
        ----------
        q
            Outputs of :meth:`inference`.
        given
            Size factors and covariates.
        transform_batch
            Decode as if all cells were of this batch.
        kind
            ``"full"``: data from both latents. ``"marginal"``: data from z, w averaged out. ``"objective"``: all that
            the objective needs.
        kl_weight
            See :meth:`loss`; None where there is no warm-up.
        """
        if transform_batch is not None:
            given = given._replace(cats=(*given.cats[:-1], torch.full_like(given.cats[-1], transform_batch)))
        if kind == "marginal":
            return {"px": self.decode_marginal(q["z"], given)}
        if kind == "full":
            return {"px": self.decode(q["z"], q["w"], given)}
        return self.objective_inputs(q, given, kl_weight)

    def objective_inputs(
        self, q: dict[str, Tensor | Distribution], given: Given, kl_weight: float | Tensor | None = None
    ) -> dict[str, Distribution]:
        """The distributions that the objective is made of; a method with more than :meth:`joint` adds them."""
        return self.joint(q, given)

    def joint(self, q: dict[str, Tensor | Distribution], given: Given) -> dict[str, Distribution]:
        """The factors of p(x, latents | y): the likelihood at the sampled latents, and their priors."""
        return {"px": self.decode(q["z"], q["w"], given)} | self.latent_priors(q)

    def latent_priors(self, q: dict[str, Tensor | Distribution]) -> dict[str, Normal]:
        """p(z) and p(w | y), for every cell."""
        condition_means = self.condition_means(q["z"], q["y"]) if self.prior.uses_condition_means else None
        return {"pz": standard_normal_like(q["qz"]), "pw": rows(self.prior(condition_means), q["y"].clamp(min=0))}

    def likelihood_of(self, kind: Literal["full", "marginal"]) -> Likelihood:
        """The likelihood behind a reconstruction."""
        return self.likelihood

    def decode(self, z: Tensor, w: Tensor, given: Given) -> Distribution:
        """p(x | z, w)."""
        return self.likelihood(self.decoder_outputs(z, w, given), given.size_factor, given.cats[-1])

    def decoder_outputs(self, z: Tensor, w: Tensor, given: Given) -> dict[str, Tensor]:
        """What the likelihood makes a distribution of, each of the data's shape."""
        return self.decoder(torch.cat([z, w], dim=-1), *given.cats, cont=given.cont)

    def decode_marginal(self, z: Tensor, given: Given, n_draws: int = 64) -> Tensor | Distribution:
        """The reconstruction with w averaged out: over y ~ p(y) and w ~ p(w | y).

        For methods without a decoder of z alone.
        """
        pw = self.prior(self.condition_means.means)
        total = 0.0
        for _ in range(n_draws):
            y = Categorical(self.condition_probs).sample(z.shape[:-1])
            w = rows(pw, y).sample()
            total = total + self.likelihood.reconstruction(self.decode(z, w, given))
        return total / n_draws

    @torch.inference_mode()
    def sample(self, tensors: dict[str, Tensor], n_samples: int = 1, generative_kwargs: dict | None = None) -> Tensor:
        """Draw data from the posterior predictive: ``(n, *shape)``, with a trailing axis for several samples."""
        _, outputs = self.forward(
            tensors,
            inference_kwargs={"n_samples": n_samples},
            generative_kwargs={"kind": "full"} | (generative_kwargs or {}),
            compute_loss=False,
        )
        draws = outputs["px"].sample()
        return (draws.movedim(0, -1) if n_samples > 1 else draws).cpu()

    # Objective ------------------------------------------------------------------------------------------------

    @abstractmethod
    def objective(self, x: Tensor, q: dict, p: dict, logits: list[Tensor] | None) -> dict[str, tuple[float, Tensor]]:
        """The loss, term by term: ``{name: (weight, value per cell)}``; weights may be per cell, too.

        Parameters
        ----------
        x
            Data, ``(n, *shape)``.
        q
            Outputs of :meth:`inference`.
        p
            Outputs of :meth:`generative`.
        logits
            The adversary's, one ``(n, K)`` per place it looks at; None where there is no adversary.
        """

    def loss(
        self,
        tensors: dict[str, Tensor],
        inference_outputs: dict,
        generative_outputs: dict,
        kl_weight: float = 1.0,
        views: dict[str, Tensor] | None = None,
    ) -> LossOutput:
        """Weighted sum of the objective's terms, averaged over cells.

        ``kl_weight`` scales the terms whose name starts with ``kl``, for a warm-up; ``views`` are
        :meth:`adversary_views` where they have been computed already.
        """
        q, p = inference_outputs, generative_outputs
        logits = None if self.adversary is None else self.adversary(views or self.adversary_views(q, p))
        terms = self.objective(self.data(tensors), q, p, logits)
        known = q["y"] >= 0
        if not known.all():
            # Cells of unknown condition have the terms of z alone; every term is averaged over the cells that have it.
            share = known / known.float().mean().clamp(min=1 / len(known))
            terms = {
                name: (weight, value if name in self.terms_without_condition else value * share)
                for name, (weight, value) in terms.items()
            }
        loss = sum(
            (weight * value).mean() * (kl_weight if name.startswith("kl") else 1.0)
            for name, (weight, value) in terms.items()
        )
        metrics = {name: value.mean() for name, (_, value) in terms.items()}
        if logits is not None:
            metrics["adversary_loss"] = self.adversary_loss(logits, q["y"])
            metrics["adversary_accuracy"] = adversary_accuracy(logits, q["y"])
        return LossOutput(
            loss=loss,
            reconstruction_loss=terms["rec"][1],
            kl_local={name: value for name, (_, value) in terms.items() if name.startswith("kl")},
            extra_metrics=metrics,
        )

    def adversary_views(self, q: dict, p: dict) -> dict[str, Tensor]:
        """What the adversary may look at, by place."""
        return {"latent": q["z"]}

    @staticmethod
    def adversary_loss(logits: list[Tensor], y: Tensor) -> Tensor:
        """What the adversary minimises: its cross-entropy, summed over the places it looks at."""
        n_known = (y >= 0).sum().clamp(min=1)
        return sum(cross_entropy(place, y, ignore_index=-1, reduction="sum") for place in logits) / n_known

    # The condition means over the training set ----------------------------------------------------------------

    @torch.inference_mode()
    def fit_condition_means(self, batches: Iterable[dict[str, Tensor]]) -> None:
        """Set the condition means of z to those of the posterior means over ``batches``."""
        if not self.prior.uses_condition_means:
            return
        self.condition_means.fit(self._posterior_means(tensors) for tensors in batches)

    @auto_move_data
    def _posterior_means(self, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = self.inference(**self._get_inference_input(tensors), use_mean=True)
        return outputs["z"], outputs["y"]


def choose(options: dict, argument: str, value: str):
    """The option of that name, or an error that lists the names."""
    if value not in options:
        raise ValueError(f"{argument}={value!r} is not known; choose from {list(options)}.")
    return options[value]


@torch.no_grad()
def copy_shared_weights(source: nn.Module, target: nn.Module) -> None:
    """Let a network of the same layers start as another that sees fewer covariates, which come last in its inputs."""
    for of_source, of_target in zip(source.parameters(), target.parameters(), strict=True):
        shared = tuple(slice(size) for size in of_source.shape)
        of_target[shared] = of_source


def adversary_accuracy(logits: list[Tensor], y: Tensor) -> Tensor:
    """Accuracy of the best of the adversary's classifiers, over cells of known condition."""
    n_known = (y >= 0).sum().clamp(min=1)
    return torch.stack([(place.argmax(-1) == y).sum() / n_known for place in logits]).max()
