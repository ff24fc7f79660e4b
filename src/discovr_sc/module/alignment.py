"""Distances between the distributions of a latent in different conditions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from discovr_sc.settings import BANDWIDTHS


def mmd(z: Tensor, y: Tensor, n_conditions: int, bandwidths: Sequence[float] = BANDWIDTHS) -> Tensor:
    """Squared maximum mean discrepancy between each condition's z and that of all others, a scalar.

    The unbiased estimate with a Gaussian kernel averaged over several bandwidths, averaged over the conditions by their
    share of the cells. Bandwidths are fixed on the scale of the prior of z: relative to z's own scale, z would inflate
    to escape the kernel. It is 0 in expectation where z does not depend on the condition, and may be negative.

    Parameters
    ----------
    z
        ``(n, n_latent)``.
    y
        Indices of the conditions, ``(n,)``.
    n_conditions
        Number of conditions, K.
    bandwidths
        Squared, relative to the mean squared distance of two draws from N(0, I).
    """
    squared_norms = z.square().sum(-1)
    squared_distances = (squared_norms.unsqueeze(0) + squared_norms.unsqueeze(1) - 2 * z @ z.T).clamp(min=0)
    scale = 2.0 * z.shape[-1]
    kernels = [torch.exp(-squared_distances / (width * scale)) for width in bandwidths]
    kernel = functools.reduce(torch.add, kernels) / len(bandwidths)
    kernel = kernel - torch.diag(kernel.diagonal())  # a cell says nothing about its distance to itself

    inside = one_hot(y, n_conditions).to(z.dtype)  # (n, K)
    outside = 1 - inside
    n_in, n_out = inside.sum(0), outside.sum(0)
    to_inside = kernel @ inside
    within = (inside * to_inside).sum(0) / (n_in * (n_in - 1)).clamp(min=1)
    without = (outside * (kernel @ outside)).sum(0) / (n_out * (n_out - 1)).clamp(min=1)
    between = (outside * to_inside).sum(0) / (n_in * n_out).clamp(min=1)
    # Conditions with too few cells in the batch have no estimate.
    weights = torch.where((n_in >= 2) & (n_out >= 2), n_in, 0.0)
    return (weights * (within + without - 2 * between)).sum() / weights.sum().clamp(min=1)
