"""log p(x), and what follows from it for cells whose condition is unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import auto_move_data
from torch import Tensor
from torch.distributions import Categorical, Normal

from discovr_sc.module.gaussians import log_prob, widened
from discovr_sc.module.likelihoods import Likelihood
from discovr_sc.module.noise import CONDITIONS, EVIDENCE, KEY, CellNoise, noise_of

#: Entry of a mini-batch, and of scvi-tools' registry, with the cell types.
CELL_TYPE_SLOT = "cell_type"

#: Floats that one pass of a Monte Carlo estimate may hold at once.
_MAX_FLOATS_PER_PASS = 2e7

#: Importance samples come in equal shares from Gaussians so many times as wide as the posteriors. Posteriors trained
#: with weights of the KL terms below 1 are too narrow to be the only proposal: the estimate of p(x) would be too low.
SPREADS = (1.0, 2.0)

#: From so many conditions on, a few samples first tell which conditions a cell may have: those whose log-probability is
#: less than a margin, in nats, below the best. Only these get all of the samples.
SCREENED_FROM, SCREENING_SAMPLES, SCREENING_MARGIN = 5, 8, 20.0


class Given(NamedTuple):
    """What a cell brings beside its data and condition."""

    size_factor: Tensor | None  # (n, 1), counts only
    cats: tuple[Tensor, ...]  # each (n, 1); the batch comes last
    cont: Tensor | None  # (n, n_continuous_cov)


class EvidenceMixin:
    """Importance-sampled likelihoods, and latents of cells whose condition may be unknown.

    What it asks of the module that it is mixed into, :class:`DisentangledModule`, is declared first.
    """

    shape: tuple[int, ...]
    n_conditions: int
    condition_probs: Tensor
    likelihood: Likelihood
    sees_condition: ClassVar[tuple[str, ...]]
    data_scale: float
    inference: Callable[..., dict[str, Any]]
    inference_input: Callable[..., dict[str, Any]]
    joint: Callable[[dict[str, Any], Given], dict[str, Any]]

    # What a mini-batch brings -----------------------------------------------------------------------------------

    def data(self, tensors: dict[str, Tensor]) -> Tensor:
        """The data of a mini-batch, ``(n, *shape)``; images stored as bytes come out in [0, 1]."""
        x = tensors[REGISTRY_KEYS.X_KEY]
        return x if self.data_scale == 1 else x * self.data_scale

    def given(self, tensors: dict[str, Tensor]) -> Given:
        """What the cells of a mini-batch bring beside their data and conditions."""
        size_factor = None
        if self.likelihood.counts:
            size_factor = tensors.get(REGISTRY_KEYS.SIZE_FACTOR_KEY)
            if size_factor is None:
                size_factor = tensors.get(REGISTRY_KEYS.OBSERVED_LIB_SIZE)  # kept with minified data
            if size_factor is None:
                x = tensors[REGISTRY_KEYS.X_KEY]
                size_factor = x.sum(-1, keepdim=True)
                size_factor = size_factor.to_dense() if x.layout == torch.sparse_csr else size_factor
        stored = tensors.get(REGISTRY_KEYS.CAT_COVS_KEY)
        cats = () if stored is None else stored.long().split(1, dim=-1)
        return Given(size_factor, (*cats, tensors[REGISTRY_KEYS.BATCH_KEY]), tensors.get(REGISTRY_KEYS.CONT_COVS_KEY))

    # Likelihood of the data, conditions given the data ---------------------------------------------------------

    @torch.inference_mode()
    @auto_move_data
    def log_joint(self, tensors: dict[str, Tensor], n_mc_samples: int = 64, seed: int = 0) -> Tensor:
        """Log p(x, y = k), ``(n, K)``, by importance sampling from the posteriors.

        All conditions share their noise, so that what they are compared by is the condition and not the draw; and the
        noise has a seed of its own, so that the same cells give the same answer. Of many conditions, those that a few
        samples rule out keep the estimate of these few.
        """
        if self.n_conditions < SCREENED_FROM or n_mc_samples <= 2 * SCREENING_SAMPLES:
            columns = [self._log_px(tensors, k, n_mc_samples, seed) for k in range(self.n_conditions)]
            return torch.stack(columns, dim=-1) + self.condition_probs.log()
        if KEY not in tensors:
            # Noise that belongs to cells is the same when only some of them are looked at again.
            places = torch.arange(len(tensors[REGISTRY_KEYS.X_KEY])) + (seed << 32)
            tensors = tensors | {KEY: places.to(self.condition_probs.device)}
        columns = [self._log_px(tensors, k, SCREENING_SAMPLES, seed) for k in range(self.n_conditions)]
        log_joint = torch.stack(columns, dim=-1) + self.condition_probs.log()
        likely = log_joint > log_joint.max(dim=-1, keepdim=True).values - SCREENING_MARGIN
        for k, cells in enumerate(likely.unbind(-1)):
            if cells.any():
                log_px = self._log_px(take(tensors, cells), k, n_mc_samples, seed)
                log_joint[cells, k] = log_px + self.condition_probs[k].log()
        return log_joint

    def _log_px(self, tensors: dict[str, Tensor], k: int, n_mc_samples: int, seed: int) -> Tensor:
        """Log p(x | y = k), ``(n,)``."""
        x, given = self.data(tensors), self.given(tensors)
        y = torch.full((len(x),), k, device=x.device)
        generator = torch.Generator(x.device).manual_seed(seed)
        log_weights: list[Tensor] = []
        for spread, size in self._passes(len(x), n_mc_samples):
            noise = noise_of(tensors, EVIDENCE, first_sample=sum(map(len, log_weights))) or generator
            log_weights.append(
                self._log_importance_weights(
                    x, y, given, n_samples=size, generator=noise, spread=spread, shares=shares(n_mc_samples)
                )
            )
        return torch.logsumexp(torch.cat(log_weights), dim=0) - math.log(n_mc_samples)

    @torch.inference_mode()
    def marginal_ll(
        self,
        tensors: dict[str, Tensor],
        n_mc_samples: int = 1000,
        kind: Literal["full", "marginal"] = "full",
    ) -> Tensor:
        """Log p(x), ``(n,)``: of the full model with y summed out, or of the model of z alone."""
        estimate = self.log_joint if kind == "full" else self.log_marginal_z
        log_px = estimate(tensors, n_mc_samples=n_mc_samples)
        log_px = torch.logsumexp(log_px, dim=-1) if kind == "full" else log_px
        return log_px.cpu()

    def log_marginal_z(self, tensors: dict[str, Tensor], n_mc_samples: int) -> Tensor:
        """Log p(x) of the model of z alone, ``(n,)``; for methods that have one."""
        raise ValueError(f"{type(self).__name__} has no likelihood of x given z alone; use kind='full'.")

    def _log_importance_weights(
        self,
        x: Tensor,
        y: Tensor,
        given: Given,
        n_samples: int,
        generator: torch.Generator | CellNoise,
        spread: float,
        shares: Mapping[float, float],
    ) -> Tensor:
        """Log of p(x, latents | y) / r(latents | x, y) at samples of one part of the proposal r, ``(n_samples, n)``."""
        q = self.inference(x, y, given, n_samples=n_samples, generator=generator, spread=spread)
        log_weights = self.log_importance_weight(x, q, self.joint(q, given), shares)
        return log_weights.reshape(n_samples, len(x))

    def log_importance_weight(self, x: Tensor, q: dict, p: dict, shares: Mapping[float, float]) -> Tensor:
        """Log of p(x, latents | y) / r(latents | x, y), ``(..., n)``.

        The proposal r is a mixture of the posterior widened by the keys of ``shares``, in those shares.
        """
        latents = [name[1:] for name in p if f"q{name[1:]}" in q]
        log_joint = self.likelihood.log_prob(p["px"], x) + sum(log_prob(p[f"p{name}"], q[name]) for name in latents)
        return log_joint - log_mixture([(q[f"q{name}"], q[name]) for name in latents], shares)

    @property
    def floats_per_sample(self) -> int:
        """Floats that one Monte Carlo sample of one cell takes; a subclass with larger parts than the data says so."""
        return math.prod(self.shape)

    def _passes(self, n: int, n_mc_samples: int) -> Iterator[tuple[float, int]]:
        """Spreads and numbers of samples, split so that one pass fits into memory."""
        largest = max(1, int(_MAX_FLOATS_PER_PASS / (n * self.floats_per_sample)))
        for spread, share in shares(n_mc_samples).items():
            left = round(share * n_mc_samples)
            while left > 0:
                yield spread, min(left, largest)
                left -= largest

    # Latents of cells whose condition may be unknown ---------------------------------------------------------------

    @torch.inference_mode()
    @auto_move_data
    def latent_moments(self, tensors: dict[str, Tensor], latents: Sequence[str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Posterior means and variances of latents, each ``(n, n_latent)``.

        Where the condition is unknown, a latent that depends on it is averaged over the conditions by their
        posterior probability given the cell.
        """
        x, given = self.data(tensors), self.given(tensors)
        y, known = conditions_of(tensors)
        q = self.posteriors(x, y, given, latents)
        moments = {latent: (q[latent].loc, q[latent].variance) for latent in latents}
        to_average = [latent for latent in latents if latent in self.sees_condition]
        if to_average and not known.all():
            for latent, average in self._averaged_moments(take(tensors, ~known), to_average).items():
                for moment, averaged in zip(moments[latent], average, strict=True):
                    moment[~known] = averaged
        return moments

    def posteriors(self, x: Tensor, y: Tensor, given: Given, latents: Sequence[str]) -> dict[str, Normal]:
        """Posteriors of latents at the means of those that they depend on, by name."""
        q = self.inference(x, y, given, use_mean=True)
        return {latent: q[f"q{latent}"] for latent in latents}

    def reads_sparse(self, latents: Sequence[str]) -> bool:
        """Whether :meth:`latent_moments` of these takes data stored as torch's sparse rows; a subclass may."""
        return False

    def _averaged_moments(self, tensors: dict[str, Tensor], latents: Sequence[str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Mean and variance of the mixtures over conditions of latents that depend on it."""
        x, given = self.data(tensors), self.given(tensors)
        probs = torch.softmax(self.log_joint(tensors), dim=-1)
        posteriors = [
            self.inference(x, torch.full((len(x),), k, device=x.device), given, use_mean=True)
            for k in range(self.n_conditions)
        ]
        averages = {}
        for latent in latents:
            loc = torch.stack([q[f"q{latent}"].loc for q in posteriors], dim=1)  # (n, K, n_latent)
            variance = torch.stack([q[f"q{latent}"].variance for q in posteriors], dim=1)
            mean = (probs.unsqueeze(-1) * loc).sum(1)
            # A difference of means of squares could fall below 0 in single precision.
            averages[latent] = mean, (probs.unsqueeze(-1) * (variance + (loc - mean.unsqueeze(1)) ** 2)).sum(1)
        return averages

    @torch.inference_mode()
    @auto_move_data
    def latent_samples(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One posterior sample of z and of w, each ``(n, n_latent)``."""
        q = self.inference(**self.inference_input(tensors))
        return {"z": q["z"], "w": q["w"]}

    def drawn_conditions(self, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """See :func:`conditions_of`; unknown ones are drawn from their posterior given the cell, and so known."""
        y, known = conditions_of(tensors)
        if not known.all():
            unknown = take(tensors, ~known)
            y[~known] = drawn_categories(self.log_joint(unknown), noise_of(unknown, CONDITIONS)).to(y.device)
        return y, torch.ones_like(known)


def conditions_of(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Indices of the conditions of a mini-batch, ``(n,)``, and whether they are known; an unknown one has index 0.

    The one place that reads how an unknown condition is stored, as -1.
    """
    stored = tensors[REGISTRY_KEYS.LABELS_KEY].squeeze(-1).long()
    return stored.clamp(min=0), stored >= 0


def cell_types_of(tensors: dict[str, Tensor]) -> Tensor | None:
    """Indices of the cell types of a mini-batch, ``(n,)``, -1 where unknown; None where the model knows no types."""
    stored = tensors.get(CELL_TYPE_SLOT)
    return None if stored is None else stored.squeeze(-1).long()


def shares(n_mc_samples: int) -> dict[float, float]:
    """The share of each spread in a number of samples; the narrowest has one more where they do not divide evenly."""
    counts = {spread: len(range(i, n_mc_samples, len(SPREADS))) for i, spread in enumerate(SPREADS)}
    return {spread: count / n_mc_samples for spread, count in counts.items() if count}


def log_mixture(posteriors: Sequence[tuple[Normal, Tensor]], shares: Mapping[float, float]) -> Tensor:
    """Log-density at values of latents, ``(..., n)``, of the mixture of their posteriors widened together."""
    parts = [
        math.log(share) + torch.stack([log_prob(widened(q, spread), value) for q, value in posteriors]).sum(0)
        for spread, share in shares.items()
    ]
    return torch.logsumexp(torch.stack(parts), dim=0)


def drawn_categories(logits: Tensor, noise: CellNoise | None) -> Tensor:
    """One category for each row of ``(n, K)``, with the cells' own noise where there is some."""
    if noise is None:
        return Categorical(logits=logits).sample()
    quantiles = torch.as_tensor(noise.uniform((len(logits), 1)), device=logits.device)
    return (logits.double().softmax(-1).cumsum(-1) < quantiles).sum(-1).clamp(max=logits.shape[-1] - 1)


def take(tensors: dict[str, Tensor], cells: Tensor) -> dict[str, Tensor]:
    """Some cells of a mini-batch."""
    return {key: value[cells] for key, value in tensors.items()}
