"""Diagonal Gaussians of latents: samples, densities, divergences."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, kl_divergence


def draw(
    q: Normal,
    n_samples: int,
    use_mean: bool = False,
    generator: torch.Generator | None = None,
    spread: float = 1.0,
) -> Tensor:
    """The mean, or a reparametrised sample; a leading axis only for several, as scvi-tools has it.

    With a ``spread`` other than 1 the sample is of a Gaussian that many times as wide.
    """
    if use_mean:
        return q.loc
    shape = q.loc.shape if n_samples == 1 else (n_samples, *q.loc.shape)
    noise = torch.randn(shape, generator=generator, device=q.loc.device, dtype=q.loc.dtype)
    return q.loc + spread * q.scale * noise


def rows(prior: Normal, y: Tensor) -> Normal:
    """The Gaussians of conditions y, from those of all conditions, ``(K, n_latent)``."""
    return Normal(prior.loc[y], prior.scale[y], validate_args=False)


def log_prob(distribution: Distribution, value: Tensor) -> Tensor:
    """Log-density summed over the latent's dimensions."""
    return distribution.log_prob(value).sum(-1)


def widened(q: Normal, spread: float) -> Normal:
    """The Gaussian of the same mean, ``spread`` times as wide."""
    return Normal(q.loc, spread * q.scale, validate_args=False)


def kl(q: Normal, p: Normal) -> Tensor:
    """KL(q || p) summed over the latent's dimensions, ``(n,)``."""
    return kl_divergence(q, p).sum(-1)


def standard_normal_like(q: Normal) -> Normal:
    """N(0, I) of the shape of q."""
    return Normal(torch.zeros_like(q.loc), torch.ones_like(q.scale), validate_args=False)
