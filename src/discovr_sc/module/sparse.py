"""The first layer of an encoder of counts, computed from the counts that are not zero."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

#: From so many columns on, numpy has no fast way to sort their numbers.
SHORT = np.iinfo(np.uint16).max


class SparseRows(NamedTuple):
    """A matrix of m numbers, the others being zero, row after row and column after column."""

    values: Tensor  # (m,)
    rows: Tensor  # (m,)
    columns: Tensor  # (m,)
    shape: tuple[int, int]
    by_column: Tensor | None  # (m,): where the numbers of the columns are, column after column; for gradients

    @classmethod
    def of(cls, values: Tensor, rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> Self:
        """From numbers in order of rows."""
        if not torch.is_grad_enabled():
            return cls(values, rows, columns, shape, None)
        numbers = columns.numpy().astype(np.uint16 if shape[1] <= SHORT else np.int64)
        return cls(values, rows, columns, shape, torch.from_numpy(np.argsort(numbers, kind="stable")))

    def times(self, weights: Tensor) -> Tensor:
        """The product ``(n_rows, n_out)`` with weights of the columns, ``(n_columns, n_out)``."""
        return _sums(weights, self.columns, self.values, self.rows, self.shape[0])

    def transposed_times(self, weights: Tensor, n_more: int = 0) -> Tensor:
        """The transpose's product ``(n_columns + n_more, n_out)`` with weights of the rows, ``(n_rows, n_out)``."""
        values, rows, columns = (part[self.by_column] for part in (self.values, self.rows, self.columns))
        return _sums(weights, rows, values, columns, self.shape[1] + n_more)


def _sums(weights: Tensor, which: Tensor, factors: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """For each group the sum of rows of weights, each times a factor; members of a group follow each other."""
    starts = torch.zeros(n_groups + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(group, minlength=n_groups), 0, out=starts[1:])
    return embedding_bag(which, weights, starts, per_sample_weights=factors, mode="sum", include_last_offset=True)


class SparseLinear(torch.autograd.Function):
    """A linear layer of sparse rows, followed by columns that are dense: ``(n, n_out)``.

    It costs what the numbers that are not zero cost; torch's own layer multiplies all zeros, forwards and backwards.
    """

    @staticmethod
    def forward(ctx, weight: Tensor, bias: Tensor, rows: SparseRows, others: Tensor) -> Tensor:
        """With ``weight`` of ``(n_out, n_columns + n_others)`` and ``others`` of ``(n, n_others)``."""
        ctx.rows = rows
        ctx.save_for_backward(others)
        by_column = weight.t().contiguous()
        n_columns = rows.shape[1]
        return rows.times(by_column).add_(bias).addmm_(others, by_column[n_columns:])

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """See :class:`torch.autograd.Function`; the inputs are data and have no gradient."""
        (others,) = ctx.saved_tensors
        n_others = others.shape[1]
        by_column = ctx.rows.transposed_times(gradient.contiguous(), n_others)
        by_column[len(by_column) - n_others :] = others.t() @ gradient
        return by_column.t(), gradient.sum(0), None, None
