"""The skeleton of every method: two latents, one decoder of both, an adversary; subclasses give the objective."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, cast

import torch
from scvi.module.base import LossOutput, auto_move_data
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal

from discovr_sc.module.adversary import Adversary, adversary_accuracy, adversary_loss, build_adversary
from discovr_sc.module.evidence import EvidenceMixin, Given, cell_types_of, conditions_of
from discovr_sc.module.gaussians import draw, rows, standard_normal_like
from discovr_sc.module.likelihoods import LIKELIHOODS, Averaged, Likelihood
from discovr_sc.module.minified import MinifiedMixin
from discovr_sc.module.networks import choose, copy_shared_weights, family
from discovr_sc.module.noise import CellNoise
from discovr_sc.module.priors import PRIORS, ConditionMeans
from discovr_sc.module.sparse import SparseRows
from discovr_sc.settings import Settings, Weights

#: Terms of an objective that make the conditions alike in z.
ALIGNING = ("adv", "mmd", "shift")


class DisentangledModule(MinifiedMixin, EvidenceMixin):
    """z shared by all conditions, w what the condition adds; both reconstruct the data.

    A subclass gives :meth:`objective`, and whatever its graphical model needs beyond the skeleton.

    Parameters
    ----------
    shape
        Shape of one observation: ``(n_genes,)`` or ``(channels, height, width)``.
    n_conditions
        Number of conditions, K.
    settings
        Sizes, networks, likelihood, priors, adversary and weights; the method's defaults where left out.
    n_batch, n_cats_per_cov, n_continuous_cov
        Numbers of batches, of categories of each categorical covariate, and of continuous covariates. They
        condition the decoders and, with ``encode_covariates``, the encoders.
    n_cell_types
        Number of cell types that are known for some cells at least.
    condition_probs
        p(y), of length K; uniform by default.
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

    #: Which settings the method takes, and their defaults.
    settings_cls: ClassVar[type[Settings]] = Settings
    #: Latents whose encoder sees the condition beside the data.
    sees_condition: ClassVar[tuple[str, ...]] = ("w",)
    #: Whether the method has a likelihood of the data given z alone.
    has_z_likelihood: ClassVar[bool] = False
    #: Terms of the objective that a cell of unknown condition has, where there is a likelihood given z alone.
    terms_without_condition: ClassVar[tuple[str, ...]] = ("rec_z", "kl_z", "mmd", "shift")
    #: Draws of w that the marginal reconstruction is averaged over, where there is no decoder of z alone.
    n_marginal_draws: int = 64
    #: Where this method's adversary can look; nowhere if it has none.
    adversary_places: ClassVar[tuple[str, ...]] = ("latent",)

    def __init__(
        self,
        shape: tuple[int, ...],
        n_conditions: int,
        settings: Settings | None = None,
        *,
        n_batch: int = 1,
        n_cats_per_cov: Sequence[int] = (),
        n_continuous_cov: int = 0,
        n_cell_types: int = 0,
        condition_probs: Sequence[float] | None = None,
        data_scale: float = 1.0,
    ):
        super().__init__()
        self.settings = (settings or self.settings_cls()).completed(n_conditions)
        self.shape = tuple(shape)
        self.n_conditions = n_conditions
        self.n_cell_types = n_cell_types
        self.n_latent_z, self.n_latent_w = self.settings.n_latent_z, cast(int, self.settings.n_latent_w)
        self.n_cats = (*n_cats_per_cov, n_batch)
        self.n_cont = n_continuous_cov
        probs = torch.full((n_conditions,), 1 / n_conditions) if condition_probs is None else condition_probs
        self.register_buffer("condition_probs", torch.as_tensor(probs, dtype=torch.float32))
        self.likelihood = self.build_likelihood("likelihood", self.settings.likelihood, self.settings)
        # Counts are counts, however they are stored.
        self.data_scale = 1.0 if self.likelihood.counts else data_scale
        self.networks = family(self.settings, self.shape)
        self.condition_means = ConditionMeans(n_conditions, self.n_latent_z)
        self.prior = choose(PRIORS, "prior", self.settings.prior)(n_conditions, self.n_latent_z, self.n_latent_w)
        self.build_networks()
        if self.prior.in_space_of_z:
            self.start_alike()
        self.adversary = build_adversary(
            self.settings, self.shape, n_conditions, self.adversary_places, type(self).__name__
        )

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
        cats, cont = (self.n_cats, self.n_cont) if self.settings.encode_covariates else ((), 0)
        return (*condition, *cats), cont

    def encode(self, encoder: nn.Module, latent: str, h: Tensor | SparseRows, y: Tensor, given: Given) -> Normal:
        """q(latent | h), with the covariates that its encoder sees."""
        condition = (y.unsqueeze(-1),) if latent in self.sees_condition else ()
        cats, cont = (given.cats, given.cont) if self.settings.encode_covariates else ((), None)
        return encoder(h, *condition, *cats, cont=cont)

    def build_likelihood(self, argument: str, name: str, settings: Settings) -> Likelihood:
        """The likelihood that an argument names."""
        likelihood_cls = choose(LIKELIHOODS, argument, name)
        if likelihood_cls.counts and len(self.shape) != 1:
            raise ValueError(
                f"likelihood={name!r} models counts of genes, but one observation has shape {self.shape}; "
                "use likelihood='gaussian' or 'bernoulli' for images."
            )
        return likelihood_cls(self.shape, settings, n_batch=self.n_cats[-1])

    @property
    def weights(self) -> Weights:
        """Weights of the objective's terms."""
        return cast(Weights, self.settings.weights)

    @property
    def gene_likelihood(self) -> str:
        """Name of the likelihood, as scvi-tools' methods ask for it."""
        return self.settings.likelihood

    # Inference: q(z | x) q(w | x, y) --------------------------------------------------------------------------

    def inference_input(self, tensors: dict[str, Tensor], draw_unknown: bool = True) -> dict[str, Any]:
        """Inputs of inference; unknown conditions are drawn from their posterior, or else (in training) masked."""
        if self.minified_data_type is not None:
            return self._cached_inference_input(tensors)
        y, known = self.drawn_conditions(tensors) if draw_unknown else conditions_of(tensors)
        of_cells = {"y": y, "known": known, "cell_type": cell_types_of(tensors)}
        return {"x": self.data(tensors), "given": self.given(tensors)} | of_cells

    _get_inference_input = inference_input  # as scvi-tools' forward asks for it

    @auto_move_data
    def inference(
        self, *args, known: Tensor | None = None, cell_type: Tensor | None = None, **kwargs
    ) -> dict[str, Any]:
        """See :meth:`_regular_inference`; hands on whose condition is known (by default all), and the cell types."""
        outputs = super().inference(*args, **kwargs)
        known = torch.ones_like(outputs["y"], dtype=torch.bool) if known is None else known
        return outputs | {"known": known, "cell_type": cell_type}

    def _regular_inference(
        self,
        x: Tensor,
        y: Tensor,
        given: Given,
        n_samples: int = 1,
        use_mean: bool = False,
        generator: torch.Generator | CellNoise | None = None,
        spread: float = 1.0,
    ) -> dict[str, Any]:
        """Posteriors of latents and samples: ``q<latent>``, ``<latent>``; conditions ``y`` and data ``observed``.

        Parameters
        ----------
        x
            Data, ``(n, *shape)``.
        y
            Indices of the conditions, ``(n,)``.
        given
            Size factors and covariates.
        n_samples
            Above 1, samples get a leading axis of that length.
        use_mean
            Take posterior means in place of samples.
        generator
            Of the samples' noise, or the cells' own; torch's global one by default.
        spread
            Draw from Gaussians that many times as wide as the posteriors, as importance sampling does.
        """
        observed = self.likelihood.observe(x)
        h = self.likelihood.encode(x, observed)
        qz = self.encode(self.z_encoder, "z", h, y, given)
        qw = self.encode(self.w_encoder, "w", h, y, given)
        return {
            "qz": qz,
            "z": draw(qz, n_samples, use_mean, generator, spread),
            "qw": qw,
            "w": draw(qw, n_samples, use_mean, generator, spread),
            "y": y,
            "observed": observed,
        }

    # Generation: p(x | z, w), p(w | y) ------------------------------------------------------------------------

    def _get_generative_input(self, tensors: dict[str, Tensor], inference_outputs: dict) -> dict:
        return {"q": inference_outputs, "given": self.given(tensors)}

    def generative(
        self,
        q: dict[str, Any],
        given: Given,
        transform_batch: int | None = None,
        kind: Literal["objective", "full", "marginal"] = "objective",
        kl_weight: float | Tensor | None = None,
    ) -> dict[str, Any]:
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
            Data from both latents, ``"full"``, or from z, ``"marginal"``; or ``"objective"``, all that this needs.
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

    def objective_inputs(self, q: dict, given: Given, kl_weight: float | Tensor | None = None) -> dict[str, Any]:
        """The distributions that the objective is made of; a method with more than :meth:`joint` adds them."""
        return self.joint(q, given)

    def joint(self, q: dict[str, Any], given: Given) -> dict[str, Any]:
        """The factors of p(x, latents | y): the likelihood at the sampled latents, and their priors."""
        return {"px": self.decode(q["z"], q["w"], given)} | self.latent_priors(q)

    def latent_priors(self, q: dict[str, Any]) -> dict[str, Normal]:
        """p(z) and p(w | y), for every cell."""
        means = self.condition_means(q["z"], q["y"], q["known"]) if self.prior.uses_condition_means else None
        return {"pz": standard_normal_like(q["qz"]), "pw": rows(self.prior(means), q["y"])}

    def likelihood_of(self, kind: Literal["full", "marginal"]) -> Likelihood:
        """The likelihood behind a reconstruction."""
        return self.likelihood

    def decode(self, z: Tensor, w: Tensor, given: Given) -> Distribution:
        """p(x | z, w)."""
        return self.likelihood(self.decoder_outputs(z, w, given), given.size_factor, given.cats[-1])

    def decoder_outputs(self, z: Tensor, w: Tensor, given: Given) -> dict[str, Tensor]:
        """What the likelihood makes a distribution of, each of the data's shape."""
        return self.decoder(torch.cat([z, w], dim=-1), *given.cats, cont=given.cont)

    def decode_marginal(self, z: Tensor, given: Given) -> Distribution:
        """The reconstruction averaged over y ~ p(y), w ~ p(w | y); for methods without a decoder of z alone."""
        pw = self.prior(self.condition_means.means)
        total = torch.zeros(())
        for _ in range(self.n_marginal_draws):
            y = Categorical(self.condition_probs).sample(z.shape[:-1])
            w = rows(pw, y).sample()
            total = total + self.likelihood.reconstruction(self.decode(z, w, given))
        return Averaged(total / self.n_marginal_draws)

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
        alignment: float = 1.0,
    ) -> LossOutput:
        """Weighted sum of the objective's terms, averaged over cells.

        ``kl_weight`` scales the terms whose name starts with ``kl``, for a warm-up, and ``alignment`` those that align
        the conditions; ``views`` are :meth:`adversary_views` where they have been computed already.
        """
        q, p = inference_outputs, generative_outputs
        logits = None if self.adversary is None else self.adversary_logits(views or self.adversary_views(q, p), p)
        terms = self.objective(self.data(tensors), q, p, logits)
        known = q["known"]
        if not known.all():
            # Cells of unknown condition have the terms of z alone; every term is averaged over the cells that have it.
            share = known / known.float().mean().clamp(min=1 / len(known))
            terms = {
                name: (weight, value if name in self.terms_without_condition else value * share)
                for name, (weight, value) in terms.items()
            }
        factors = {n: kl_weight if n.startswith("kl") else 1.0 for n in terms} | dict.fromkeys(ALIGNING, alignment)
        parts = {name: (weight * value).mean() * factors[name] for name, (weight, value) in terms.items()}
        loss = sum(parts.values())
        metrics = {name: value.mean() for name, (_, value) in terms.items()}
        if logits is not None:
            metrics["loss_without_adversary"] = loss - parts["adv"]
            metrics["adversary_loss"] = adversary_loss(logits, q["y"], q["known"])
            metrics["adversary_accuracy"] = adversary_accuracy(logits, q["y"], q["known"])
        return LossOutput(
            loss=loss,
            reconstruction_loss=terms["rec"][1],
            kl_local={name: value for name, (_, value) in terms.items() if name.startswith("kl")},
            extra_metrics=metrics,
        )

    def adversary_logits(self, views: dict[str, Tensor], p: dict) -> list[Tensor]:
        """What the adversary makes of what it sees, one ``(n, K)`` per place; ``p`` are outputs of generative."""
        return cast(Adversary, self.adversary)(views)

    def find_kinds(self, cells: list[dict[str, Tensor]]) -> None:
        """Learn kinds from mini-batches (posterior means z, y, known, cell_type), before conditions are aligned."""

    def adversary_views(self, q: dict, p: dict) -> dict[str, Tensor]:
        """What the adversary may look at, by place."""
        return {"latent": q["z"]}

    # The condition means over the training set ----------------------------------------------------------------

    @torch.inference_mode()
    def fit_condition_means(self, batches: Iterable[dict[str, Tensor]]) -> None:
        """Set the condition means of z to those of the posterior means over ``batches``."""
        if not self.prior.uses_condition_means:
            return
        self.condition_means.fit(self._posterior_means(tensors) for tensors in batches)

    @auto_move_data
    def _posterior_means(self, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = self.inference(**self.inference_input(tensors), use_mean=True)
        return outputs["z"], outputs["y"]
