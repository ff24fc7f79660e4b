"""Distances between the distributions of a latent in different conditions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from discovr_sc.settings import BANDWIDTHS

#: What a denominator is at least.
SMALLEST = 1e-6
#: Cells of a condition that an unbiased criterion needs.
FEWEST = 4


def mmd(
    z: Tensor, y: Tensor, n_conditions: int, bandwidths: Sequence[float] = BANDWIDTHS, shares: Tensor | None = None
) -> Tensor:
    """Squared maximum mean discrepancy between each condition's z and that of all others, a scalar.

    The unbiased estimate with a Gaussian kernel averaged over several bandwidths, averaged over the conditions by their
    share of the cells. Bandwidths are fixed on the scale of the prior of z: relative to z's own scale, z would inflate
    to escape the kernel. It is 0 in expectation where z does not depend on the condition, and may be negative.

    Where conditions have different shares of the kinds of cells, cells have overlap weights (Li, Morgan and Zaslavsky
    2018): a cell of the condition weighs the others' share of its kind, and the other way round. So every kind has the
    same mass on both sides, and one that a side lacks has none.

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
    shares
        Shares of the conditions among cells of the same kind as each cell, ``(n, K)``; None where all cells are of one.
    """
    scale = 2.0 * z.shape[-1]
    distances = squared_distances(z)
    widths = scale * torch.tensor(tuple(bandwidths)).to(z).view(-1, 1, 1)
    kernel = torch.exp(distances / -widths).mean(0)
    kernel = kernel - torch.diag(kernel.diagonal())  # a cell says nothing about its distance to itself

    inside = one_hot(y, n_conditions).to(z)  # (n, K)
    outside = 1 - inside
    n_in, n_out = inside.sum(0), outside.sum(0)
    # Conditions with too few cells in the mini-batch have no estimate.
    weights = torch.where((n_in >= 2) & (n_out >= 2), n_in, 0.0)
    total = weights.sum().clamp(min=1)
    if shares is not None:
        inside, outside = inside * (1 - shares), outside * shares
        # What the kinds have in common, 1 where all conditions have the same shares of them.
        weights = weights * inside.sum(0) * len(y) / (n_in * n_out).clamp(min=1)
    to_inside = kernel @ inside
    within = (inside * to_inside).sum(0) / pairs(inside)
    without = (outside * (kernel @ outside)).sum(0) / pairs(outside)
    between = (outside * to_inside).sum(0) / (inside.sum(0) * outside.sum(0)).clamp(min=SMALLEST)
    return (weights * (within + without - 2 * between)).sum() / total


def dependence(w: Tensor, z: Tensor, y: Tensor, n_conditions: int) -> Tensor:
    """How much w depends on z within conditions, 1 for a copy: normalised HSIC without bias, a scalar.

    The Hilbert-Schmidt independence criterion with Gaussian kernels whose bandwidths are the mean squared distances
    within conditions, divided by the norms of both kernels. Kernels are U-centred within conditions (Szekely and Rizzo
    2014), so the criterion is 0 in expectation where w and z are independent, whatever the distribution of w. The
    plain estimate is above 0 there, and least where w is the same for all cells of a condition: as a penalty it takes
    all that w tells of a cell, and not only what z tells, too.

    Parameters
    ----------
    w, z
        ``(n, n_latent)`` each.
    y
        Indices of the conditions, ``(n,)``. Conditions of fewer than four cells have no estimate.
    n_conditions
        Number of conditions, K.
    """
    member = one_hot(y, n_conditions).to(w)
    same = member @ member.T
    n = same.sum(1).clamp(min=FEWEST)
    of_two = (same - torch.eye(len(y)).to(w)) * (same.sum(1) >= FEWEST)

    def centred_kernel(x: Tensor) -> Tensor:
        distances = squared_distances(x)
        width = (distances * same).sum() / same.sum()
        kernel = torch.exp(-distances / width.detach().clamp(min=SMALLEST)) * of_two
        of_cells = kernel.sum(1)
        of_conditions = member @ (member.T @ of_cells) / ((n - 1) * (n - 2))
        share = of_cells / (n - 2)
        return (kernel - share.unsqueeze(0) - share.unsqueeze(1) + of_conditions.unsqueeze(1)) * of_two

    of_w, of_z = centred_kernel(w), centred_kernel(z)
    return (of_w * of_z).sum() / (of_w.norm() * of_z.norm()).clamp(min=SMALLEST)


def squared_distances(x: Tensor) -> Tensor:
    """Between all rows, ``(n, n)``."""
    squared_norms = x.square().sum(-1)
    return (squared_norms.unsqueeze(0) + squared_norms.unsqueeze(1) - 2 * x @ x.T).clamp(min=0)


def pairs(weights: Tensor) -> Tensor:
    """Total weight of the pairs of two different cells, for weights ``(n, K)``."""
    return (weights.sum(0).square() - weights.square().sum(0)).clamp(min=SMALLEST)
