"""Log-probabilities of counts, the expensive part computed only where counts are not zero.

Single-cell counts are mostly zeros, and three log-gammas an entry are most of what a dense likelihood costs. Here every
entry pays for log p(0), and the others for what they differ by. The sums are those of scvi-tools, epsilons included.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus

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
        """Those of counts ``(n, genes)``, which may be torch's sparse rows."""
        if x.layout == torch.sparse_csr:
            cells = torch.repeat_interleave(x.crow_indices().diff())
            counts, genes = x.values(), x.col_indices().long()
            return cls(cells * x.shape[-1] + genes, cells, genes, counts, torch.lgamma(counts + 1))
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
    log_zero = NBLogZero.apply(mu, theta)
    rest, _ = _rest_and_log_zero(nonzero, mu, theta)
    return log_zero.sum(-1) + _sum_by_cell(nonzero, rest, mu.shape)


def zinb_log_prob(nonzero: NonZero, mu: Tensor, theta: Tensor, zero_logits: Tensor) -> Tensor:
    """Log ZINB(x; mu, theta, zero_logits) summed over genes: ``(..., n)`` for means ``(..., n, genes)``."""
    theta, zero_logits = collapse(theta), collapse(zero_logits)
    log_zero = zinb_log_zero(mu, theta, zero_logits)
    rest, log_nb_zero = _rest_and_log_zero(nonzero, mu, theta)
    # What the negative binomial drew is not zero: log NB(0) - logits in the place of its mixture with extra zeros.
    rest = rest - softplus(nonzero.take(zero_logits) - log_nb_zero)
    return log_zero + _sum_by_cell(nonzero, rest, mu.shape)


def zinb_log_zero(mu: Tensor, theta: Tensor, zero_logits: Tensor) -> Tensor:
    """Log ZINB(0; mu, theta, zero_logits) summed over genes; what cells share costs once: ``(1, genes)``."""
    not_zero = logsigmoid(zero_logits - NBLogZero.apply(mu, theta))
    return logsigmoid(zero_logits).sum(-1) - not_zero.sum(-1)


class NBLogZero(torch.autograd.Function):
    """Log NB(0; mu, theta) = -theta log(1 + mu / theta), with the gradient written out.

    With r = mu / theta, its derivative by mu is -1 / (1 + r), and by theta r / (1 + r) - log(1 + r). Autograd's own way
    makes twice the passes over (n, genes) matrices.
    """

    @staticmethod
    def forward(ctx, mu: Tensor, theta: Tensor) -> Tensor:
        """``(..., n, genes)`` as ``mu``; theta broadcasts to it."""
        ratio = mu / (theta + _EPS)
        log = torch.log1p(ratio)
        ctx.save_for_backward(theta, ratio, log)
        return log * -theta

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`torch.autograd.Function`."""
        theta, ratio, log = ctx.saved_tensors
        by_mu = 1 + ratio
        torch.div(-theta / (theta + _EPS), by_mu, out=by_mu).mul_(gradient)
        by_theta = (gradient * log).addcmul_(by_mu, ratio).sum_to_size(theta.shape).neg()
        return by_mu, by_theta


class LogCounts(torch.autograd.Function):
    """Log(1 + total * rho), with the gradient 1 / (rho + 1 / total) in two passes."""

    @staticmethod
    def forward(ctx, rho: Tensor, total: float) -> Tensor:
        """For normalised expression ``(..., genes)`` and counts per cell."""
        ctx.save_for_backward(rho)
        ctx.total = total
        return (rho * total).log1p_()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        """See :class:`torch.autograd.Function`."""
        by_rho = ctx.saved_tensors[0] + 1 / ctx.total
        return torch.div(gradient, by_rho, out=by_rho), None


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
