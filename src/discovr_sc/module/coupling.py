"""Counts of one distribution at the quantiles that measured counts have in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from scvi.distributions import NegativeBinomial, ZeroInflatedNegativeBinomial
from torch import Tensor

from discovr_sc.module.noise import CellNoise

#: A tail ends where its next count is less likely than this: double precision does not tell its quantiles apart.
LOG_LEAST = -34.0
#: Counts with less probability than this above them are surprising.
TAIL = 1e-12


def at_same_quantiles(
    x: Tensor, own: NegativeBinomial, other: NegativeBinomial, noise: CellNoise | None = None
) -> Tensor:
    """What a cell would have been counted at under another distribution, had luck been the same.

    A count x covers the quantiles from F(x - 1) to F(x) of its own distribution. One of them is drawn, and the count
    that has it in the other distribution is the result. Under equal distributions x stays as it is; if x is
    distributed as ``own``, the result is distributed as ``other``. What the model does not know of a cell (that a gene
    has twice the counts that it expects) thus stays with the cell. A count so far beyond what its own distribution
    expects that its quantile cannot be told from 1 is multiplied by the ratio of the means.

    The distributions are negative binomials, zero-inflated or not, whose parameters broadcast to x ``([s,] n, genes)``.
    The noise may be the cells' own; it is torch's by default.
    """
    ours, others = (Parameters.of(px, x.shape) for px in (own, other))
    counts = x.cpu().double().flatten()  # not every accelerator has double precision
    _, below, up_to = _climb(ours, lambda left, count, *_: counts[left] > count)
    quantiles = below + (up_to - below) * _uniform(x.shape, noise)
    found = _at(quantiles, others)
    surprising = 1 - below < TAIL
    found = torch.where(surprising, (counts * others.mu / ours.mu).round(), found)
    # Rounding could move a count at the very end of its quantiles.
    unchanged = torch.stack([mine == their for mine, their in zip(ours, others, strict=True)]).all(0)
    return torch.where(unchanged, counts, found).to(x).reshape(x.shape)


def drawn_counts(px: NegativeBinomial, noise: CellNoise) -> Tensor:
    """Counts of distributions ``([s,] n, genes)`` at quantiles that are the cells' own."""
    return _at(_uniform(px.mu.shape, noise), Parameters.of(px, px.mu.shape)).to(px.mu).reshape(px.mu.shape)


def _uniform(shape: torch.Size, noise: CellNoise | None) -> Tensor:
    if noise is None:
        return torch.rand(shape.numel(), dtype=torch.float64)
    return torch.as_tensor(noise.uniform(shape)).flatten()


def _at(quantiles: Tensor, parameters: Parameters) -> Tensor:
    """The counts at quantiles."""

    def below_quantile(left, count, up_to, log_probability, of_left):
        # Before the mode probabilities rise, however small.
        in_tail = (log_probability < LOG_LEAST) & (count > of_left.mu)
        return (quantiles[left] > up_to) & ~in_tail

    return _climb(parameters, below_quantile)[0]


class Parameters(NamedTuple):
    """Of zero-inflated negative binomials, one for each count, in double precision."""

    mu: Tensor
    theta: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, px: NegativeBinomial, shape: torch.Size) -> Self:
        """From scvi-tools' distributions."""
        zeros = px.zi_probs if isinstance(px, ZeroInflatedNegativeBinomial) else torch.zeros_like(px.mu)
        return cls(*(part.cpu().double().expand(shape).flatten() for part in (px.mu, px.theta, zeros)))

    def take(self, rows: Tensor) -> Self:
        """Some of them."""
        return type(self)(*(part[rows] for part in self))

    def log_of_next(self, log_probability: Tensor, count: int) -> Tensor:
        """Its log-probability of a count, given that of the count before; probabilities themselves may underflow."""
        return log_probability + torch.log((count - 1 + self.theta) / count * self.mu / (self.mu + self.theta))


def _climb(parameters: Parameters, onward: Callable[..., Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Counts x, F(x - 1) and F(x), by adding up probabilities from 0 for as long as it goes onward: most are small.

    ``onward`` tells which counts are to rise, from the rows that still do, their count, F of it, its log-probability
    and their parameters.
    """
    log_probability = -parameters.theta * torch.log1p(parameters.mu / parameters.theta)  # of 0, but for extra zeros
    up_to = parameters.zeros + (1 - parameters.zeros) * log_probability.exp()
    counts, below = torch.zeros_like(up_to), torch.zeros_like(up_to)
    left, of_left, count = torch.arange(len(up_to)), parameters, 0
    while len(left):
        more = onward(left, count, up_to[left], log_probability, of_left)
        left, log_probability, of_left, count = left[more], log_probability[more], of_left.take(more), count + 1
        log_probability = of_left.log_of_next(log_probability, count)
        below[left], counts[left] = up_to[left], count
        up_to[left] += (1 - of_left.zeros) * log_probability.exp()
    return counts, below, up_to
