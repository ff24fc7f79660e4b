"""Log-probabilities of counts, the expensive part computed only where counts are not zero.

Single-cell counts are mostly zeros, and three log-gammas an entry are most of what a dense likelihood costs. Here every
entry pays for log p(0), and the others for what they differ by. The sums are those of scvi-tools, epsilons included.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

_EPS = 1e-8


class NonZero(NamedTuple):
    """The counts of a mini-batch that are not zero, m of them; found once for all decoders."""

    flat: Tensor  # (m,): positions in the flattened matrix
    cells: Tensor  # (m,)
    genes: Tensor  # (m,)
    counts: Tensor  # (m,)
    log_factorials: Tensor  # (m,)

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """Those of counts ``(n, genes)``."""
        flat = torch.nonzero(x.reshape(-1)).squeeze(-1)
        counts = x.reshape(-1).index_select(0, flat)
        return cls(flat, flat // x.shape[-1], flat % x.shape[-1], counts, torch.lgamma(counts + 1))

    def take(self, values: Tensor) -> Tensor:
        """Entries ``(..., m)`` of ``(..., n, genes)``, or of ``(..., 1, genes)`` where the cells share them."""
        if values.shape[-2] == 1:
            return values.squeeze(-2).index_select(-1, self.genes)
        return values.flatten(-2).index_select(-1, self.flat)


def nb_log_prob(nonzero: NonZero, mu: Tensor, theta: Tensor) -> Tensor:
    """Log NB(x; mu, theta) summed over genes: ``(..., n)`` for means ``(..., n, genes)``."""
    theta = collapse(theta)
    rest, _ = _rest_and_log_zero(nonzero, mu, theta)
    return nb_log_zero(mu, theta).sum(-1) + _sum_by_cell(nonzero, rest, mu.shape)


def zinb_log_prob(nonzero: NonZero, mu: Tensor, theta: Tensor, zero_logits: Tensor) -> Tensor:
    """Log ZINB(x; mu, theta, zero_logits) summed over genes: ``(..., n)`` for means ``(..., n, genes)``."""
    theta = collapse(theta)
    rest, log_zero = _rest_and_log_zero(nonzero, mu, theta)
    # What the negative binomial drew is not zero: log NB(0) - logits in the place of its mixture with extra zeros.
    rest = rest - softplus(nonzero.take(zero_logits) - log_zero)
    return ZINBLogZero.apply(mu, theta, zero_logits) + _sum_by_cell(nonzero, rest, mu.shape)


def nb_log_zero(mu: Tensor, theta: Tensor) -> Tensor:
    """Log NB(0; mu, theta)."""
    return theta * (torch.log(theta + _EPS) - torch.log(mu + (theta + _EPS)))


class ZINBLogZero(torch.autograd.Function):
    """Log ZINB(0; mu, theta, zero_logits) summed over genes, with the gradient written out.

    With l = log NB(0; mu, theta) and s = sigmoid(l - logits), the probability that a zero is the negative binomial's,
    the value is softplus(l - logits) - softplus(-logits), its derivative by l is s and by the logits
    sigmoid(-logits) - s. Autograd's own way through the same lines makes twice the passes over (n, genes) matrices.
    """

    @staticmethod
    def forward(ctx, mu: Tensor, theta: Tensor, zero_logits: Tensor) -> Tensor:
        """``(..., n)`` for ``mu`` and ``zero_logits`` of ``(..., n, genes)``; theta broadcasts to them."""
        total = mu + (theta + _EPS)
        log_share = total.log().neg_().add_(torch.log(theta + _EPS))
        a = torch.addcmul(-zero_logits, theta, log_share)
        value, from_nb = softplus_and_sigmoid(a)
        not_inflated, not_extra = softplus_and_sigmoid(-zero_logits)
        ctx.save_for_backward(theta, total, log_share, from_nb, not_extra)
        return value.sub_(not_inflated).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`torch.autograd.Function`."""
        theta, total, log_share, from_nb, not_extra = ctx.saved_tensors
        gradient = gradient.unsqueeze(-1)
        by_log_zero = from_nb * gradient
        by_logits = (not_extra * gradient).sub_(by_log_zero)
        share = theta / total
        by_theta = (log_share - share).add_(theta / (theta + _EPS)).mul_(by_log_zero).sum_to_size(theta.shape)
        return share.mul_(by_log_zero).neg_(), by_theta, by_logits


def softplus_and_sigmoid(a: Tensor) -> tuple[Tensor, Tensor]:
    """Both from one exponential, exact to the precision of the numbers, for large ``a`` too."""
    opposite = torch.sigmoid(-a)
    value = opposite.clamp(min=torch.finfo(a.dtype).tiny).log_().neg_()
    return torch.maximum(value, a, out=value), opposite.neg_().add_(1)


def _rest_and_log_zero(nonzero: NonZero, mu: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Log NB(x) - log NB(0) and log NB(0) at the counts that are not zero, each ``(..., m)``."""
    x, mu_at, theta_at = nonzero.counts, nonzero.take(mu), nonzero.take(theta)
    log_total = torch.log(theta_at + mu_at + _EPS)
    rest = x * (torch.log(mu_at + _EPS) - log_total) + torch.lgamma(x + theta_at) - nonzero.take(torch.lgamma(theta))
    return rest - nonzero.log_factorials, theta_at * (nonzero.take(torch.log(theta + _EPS)) - log_total)


def _sum_by_cell(nonzero: NonZero, values: Tensor, shape: torch.Size) -> Tensor:
    """Sums over the counts of each cell, ``(..., n)``, for data of ``shape``."""
    return values.new_zeros(shape[:-1]).index_add(-1, nonzero.cells, values)


def collapse(values: Tensor) -> Tensor:
    """Undo an expansion: axes along which all entries are one come out with size 1."""
    for axis, stride in enumerate(values.stride()):
        if stride == 0:
            values = values.narrow(axis, 0, 1)
    return values
