"""Diagonal Gaussians of latents and their mixtures: samples, densities, divergences."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, kl_divergence

from discovr_sc.module.noise import CellNoise


class Mixture(NamedTuple):
    """A mixture of diagonal Gaussians."""

    #: Log shares of the components, ``(C,)``.
    log_shares: Tensor
    #: Of shape ``(C, n_latent)``.
    components: Normal


def draw(
    q: Normal,
    n_samples: int,
    use_mean: bool = False,
    generator: torch.Generator | CellNoise | None = None,
    spread: float = 1.0,
) -> Tensor:
    """The mean, or a reparametrised sample; a leading axis only for several, as scvi-tools has it.

    With a ``spread`` other than 1 the sample is of a Gaussian that many times as wide.
    """
    if use_mean:
        return q.loc
    shape = q.loc.shape if n_samples == 1 else (n_samples, *q.loc.shape)
    if isinstance(generator, CellNoise):
        noise = generator.normal(shape, like=q.loc)
    else:
        noise = torch.randn(shape, generator=generator, device=q.loc.device, dtype=q.loc.dtype)
    return q.loc + spread * q.scale * noise


def rows(prior: Normal, y: Tensor) -> Normal:
    """The Gaussians of conditions y, from those of all conditions, ``(K, n_latent)``."""
    return Normal(prior.loc[y], prior.scale[y], validate_args=False)


def log_prob(distribution: Distribution | Mixture, value: Tensor) -> Tensor:
    """Log-density summed over the latent's dimensions."""
    if isinstance(distribution, Mixture):
        return torch.logsumexp(distribution.log_shares + log_components(distribution.components, value), dim=-1)
    return distribution.log_prob(value).sum(-1)


def log_components(components: Normal, value: Tensor) -> Tensor:
    """Log-densities ``(..., C)`` under Gaussians of shape ``(C, n_latent)``, of values ``(..., n_latent)``."""
    log_norms = components.scale.log().sum(-1) + value.shape[-1] * math.log(2 * math.pi) / 2
    return -_squares(components, value) / 2 - log_norms


def _squares(components: Normal, loc: Tensor, variance: Tensor | float = 0.0) -> Tensor:
    """Expected squared distances from components in units of their scale, ``(..., C)``: products of matrices.

    All pairs of cells and components, dimension by dimension, would take many times as long.
    """
    precision = components.scale**-2
    weighted = components.loc * precision
    constant = (components.loc * weighted).sum(-1)
    return (variance + loc.square()) @ precision.T - 2 * loc @ weighted.T + constant


def widened(q: Normal, spread: float) -> Normal:
    """The Gaussian of the same mean, ``spread`` times as wide."""
    return Normal(q.loc, spread * q.scale, validate_args=False)


def kl(q: Normal, p: Normal | Mixture) -> Tensor:
    """KL(q || p) summed over the latent's dimensions, ``(n,)``.

    From a mixture it is a bound from above in closed form, -log of the sum over components of their share times
    exp(-KL(q || component)): the KL of (z, component) with the best q(component | x).
    """
    if isinstance(p, Mixture):
        # The KL from each component, (..., C), up to what they share: the entropy of q.
        cross = _squares(p.components, q.loc, q.variance) / 2 + p.components.scale.log().sum(-1)
        entropy = q.scale.log().sum(-1) + q.loc.shape[-1] / 2
        return -torch.logsumexp(p.log_shares - cross, dim=-1) - entropy
    return kl_divergence(q, p).sum(-1)


def standard_normal_like(q: Normal) -> Normal:
    """N(0, I) of the shape of q."""
    return Normal(torch.zeros_like(q.loc), torch.ones_like(q.scale), validate_args=False)
