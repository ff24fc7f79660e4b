"""Priors p(w | y): objects that give one Gaussian per condition; and the mixture that may be the prior p(z).

``uses_condition_means`` tells whether they hang on the condition means of z, ``can_grow`` whether a trained one can
get a row for one more condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.cluster import KMeans
from torch import Tensor, distributed, nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from discovr_sc.module.gaussians import Mixture, log_components


class ConditionMeans(nn.Module):
    """The mean of z in every condition, mu_k, that centres the prior of w.

    In training it is the mean over the mini-batch, with its gradient: that is the coupling of z and w
    that the paper describes. Conditions absent from the batch fall back to a running mean. In
    evaluation it is the mean over the whole training set, which :meth:`fit` computes.

    Parameters
    ----------
    n_conditions
        Number of conditions, K.
    n_latent_z
        Size of z.
    momentum
        Share of the newest batch in the running mean.
    """

    means: Tensor
    seen: Tensor

    def __init__(self, n_conditions: int, n_latent_z: int, momentum: float = 0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("means", torch.zeros(n_conditions, n_latent_z))
        self.register_buffer("seen", torch.zeros(n_conditions, dtype=torch.bool))

    def forward(self, z: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """Means of z, ``(K, n_latent_z)``, for z ``(n, n_latent_z)``, conditions y ``(n,)`` and which are known."""
        if not self.training:
            return self.means
        sums, counts = (over_ranks(total) for total in self._sums(z[known], y[known]))
        present = (counts > 0).unsqueeze(-1)
        means = torch.where(present, sums / counts.clamp(min=1).unsqueeze(-1), self.means)
        self._update_running(means.detach(), present)
        return means

    @torch.no_grad()
    def fit(self, batches) -> None:
        """Set the means to those over all ``(z, y)`` pairs of mini-batches."""
        sums = torch.zeros(self.means.shape, dtype=torch.float64)
        counts = sums.new_zeros(len(sums))
        for z, y in batches:
            # Double precision, on the CPU: not every accelerator has it.
            batch_sums, batch_counts = self._sums(z.cpu().double(), y.cpu())
            sums, counts = sums + batch_sums, counts + batch_counts
        sums, counts = (over_ranks(total, self.means.device) for total in (sums, counts))
        means = (sums / counts.clamp(min=1).unsqueeze(-1)).to(self.means)
        present = (counts > 0).to(self.seen.device)
        self.means[present] = means[present]
        self.seen |= present

    def _sums(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        one_hot = nn.functional.one_hot(y, len(self.means)).to(z.dtype)  # (n, K)
        return one_hot.T @ z, one_hot.sum(0)

    @torch.no_grad()
    def _update_running(self, batch_means: Tensor, present: Tensor) -> None:
        step = torch.where(self.seen.unsqueeze(-1), self.momentum, 1.0) * present
        self.means += step * (batch_means - self.means)
        self.seen |= present.squeeze(-1)


def over_ranks(total: Tensor, device: torch.device | None = None) -> Tensor:
    """Sum over the processes of a distributed training, with its gradient; as it is where there is one process.

    ``device`` is where the processes exchange it: not every backend reduces on the CPU.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return total
    return SumOverRanks.apply(total.to(device or total.device)).to(total.device)


class SumOverRanks(torch.autograd.Function):
    """The sum of a tensor over all processes; every process's loss hangs on it, so the gradient is their sum, too."""

    @staticmethod
    def forward(ctx, total: Tensor) -> Tensor:
        """Add the other processes' to a copy."""
        total = total.detach().clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        """See :class:`torch.autograd.Function`."""
        return SumOverRanks.apply(gradient)


class ConditionMeanPrior(nn.Module):
    """N(mu_k, I): the paper's prior, for z and w of one size."""

    uses_condition_means = True
    in_space_of_z = True
    can_grow = True

    def __init__(self, n_conditions: int, n_latent_z: int, n_latent_w: int):
        super().__init__()
        if n_latent_z != n_latent_w:
            raise ValueError(
                f"prior='condition-mean' centres w on the condition mean of z and so needs equal sizes, but n_latent_z="
                f"{n_latent_z} and n_latent_w={n_latent_w}; use prior='mapped', or set both to one size."
            )

    def forward(self, condition_means: Tensor) -> Normal:
        """Gaussians of shape ``(K, n_latent_w)`` from the condition means of z, ``(K, n_latent_z)``."""
        return Normal(condition_means, torch.ones_like(condition_means), validate_args=False)


class MappedPrior(nn.Module):
    """A small network of mu_k gives mean and scale: the paper's footnote, for z and w of different sizes."""

    uses_condition_means = True
    in_space_of_z = False
    can_grow = True

    def __init__(self, n_conditions: int, n_latent_z: int, n_latent_w: int, n_hidden: int = 32):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(n_latent_z, n_hidden), nn.ReLU(), nn.Linear(n_hidden, 2 * n_latent_w))

    def forward(self, condition_means: Tensor) -> Normal:
        """Gaussians of shape ``(K, n_latent_w)`` from the condition means of z, ``(K, n_latent_z)``."""
        loc, raw_scale = self.network(condition_means).chunk(2, dim=-1)
        return Normal(loc, softplus(raw_scale) + 1e-4, validate_args=False)


class LearnedPrior(nn.Module):
    """Free mean and scale for every condition."""

    uses_condition_means = False
    in_space_of_z = False
    can_grow = True

    def __init__(self, n_conditions: int, n_latent_z: int, n_latent_w: int):
        super().__init__()
        self.loc = nn.Parameter(torch.randn(n_conditions, n_latent_w))
        self.log_scale = nn.Parameter(torch.zeros(n_conditions, n_latent_w))

    @torch.no_grad()
    def set_apart(self, distance: float) -> None:
        """Start with means that lie that far from their centre, on average."""
        centred = self.loc - self.loc.mean(0)
        self.loc.copy_(distance * centred / centred.norm(dim=-1).mean())

    def forward(self, condition_means: Tensor | None = None) -> Normal:
        """Gaussians of shape ``(K, n_latent_w)``."""
        return Normal(self.loc, self.log_scale.exp(), validate_args=False)


class FixedPrior(nn.Module):
    """Gaussians that training leaves alone."""

    uses_condition_means = False
    in_space_of_z = False
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Tensor, scale: Tensor):
        super().__init__()
        self.register_buffer("loc", loc)
        self.register_buffer("scale", scale)
        # Where every condition has a place of its own, there is none for one more.
        self.can_grow = bool((loc == loc[0]).all())

    def forward(self, condition_means: Tensor | None = None) -> Normal:
        """Gaussians of shape ``(K, n_latent_w)``."""
        return Normal(self.loc, self.scale, validate_args=False)


def standard_prior(n_conditions: int, n_latent_z: int, n_latent_w: int) -> FixedPrior:
    """N(0, I) for every condition: the ablation that lets w collapse."""
    shape = (n_conditions, n_latent_w)
    return FixedPrior(torch.zeros(shape), torch.ones(shape))


def separable_prior(n_conditions: int, n_latent_z: int, n_latent_w: int) -> FixedPrior:
    """One block of w per condition, N(3, 1) where it is on and N(0, 0.1) where off (standard deviations).

    With fewer dimensions than conditions there is no block for each; for two conditions all of w is then
    off in the first and on in the second.
    """
    on = torch.zeros(n_conditions, n_latent_w, dtype=torch.bool)
    if n_latent_w >= n_conditions:
        for k, block in enumerate(torch.tensor_split(torch.arange(n_latent_w), n_conditions)):
            on[k, block] = True
    elif n_conditions == 2:
        on[1] = True
    else:
        raise ValueError(
            f"prior='separable' gives every condition a block of w, but n_latent_w={n_latent_w} is smaller than the "
            f"number of conditions, {n_conditions}; set n_latent_w to at least {n_conditions}."
        )
    return FixedPrior(torch.where(on, 3.0, 0.0), torch.where(on, 1.0, 0.1))


class MixturePrior(nn.Module):
    """p(z | y): Gaussians of unit scale that all conditions share, in shares of each condition's own.

    Kinds of cells need not crowd around one centre, so they lie apart, and conditions may differ in how many cells of
    a kind they have. The scale within a component is fixed: adversary and kernels see z on that scale, which z could
    otherwise escape.

    Parameters
    ----------
    n_components
        Number of Gaussians, C; where cell types are known, at least one for each.
    n_latent
        Size of z.
    n_conditions
        Number of conditions, K.
    n_types
        Number of known cell types, each of which owns some of the components; 0 where none are known.
    """

    type_of: Tensor

    def __init__(self, n_components: int, n_latent: int, n_conditions: int, n_types: int = 0):
        super().__init__()
        n_components = max(n_components, n_types)
        self.loc = nn.Parameter(torch.randn(n_components, n_latent))
        self.logits = nn.Parameter(torch.zeros(n_conditions, n_components))
        self.register_buffer("type_of", torch.arange(n_components) % max(n_types, 1))

    @property
    def log_shares(self) -> Tensor:
        """Log shares of the components in all conditions together, ``(C,)``."""
        return torch.log_softmax(self.logits, dim=-1).exp().mean(0).log()

    def forward(self, y: Tensor, known: Tensor, cell_type: Tensor | None = None) -> Mixture:
        """The mixture of every cell's condition or, where it is unknown, of all; of its type's components, if known."""
        log_shares = torch.log_softmax(self.logits, dim=-1)[y]
        log_shares = torch.where(known.unsqueeze(-1), log_shares, self.log_shares)
        if cell_type is not None:
            of_others = (cell_type.unsqueeze(-1) != self.type_of) & (cell_type >= 0).unsqueeze(-1)
            log_shares = torch.log_softmax(log_shares.masked_fill(of_others, -torch.inf), dim=-1)
        return Mixture(log_shares, self.components)

    @property
    def components(self) -> Normal:
        """The Gaussians, ``(C, n_latent)``."""
        return Normal(self.loc, torch.ones_like(self.loc), validate_args=False)

    @torch.no_grad()
    def start_at(self, z: Tensor, y: Tensor, cell_type: Tensor | None = None) -> None:
        """Put the components where cells are: at the centres of k-means, within types where these are known.

        Where they start by chance, many end in the largest kind, and small kinds have to share one.

        Parameters
        ----------
        z, y
            Posterior means, ``(n, n_latent)``, and indices of the conditions, ``(n,)``.
        cell_type
            Indices of the cell types, ``(n,)``, -1 where unknown; None where the model knows no types.
        """
        for name in self.type_of.unique():
            own = self.type_of == name
            cells = z if cell_type is None else z[cell_type == name]
            if len(cells) > own.sum():
                found = KMeans(int(own.sum()), n_init=1, random_state=0).fit(cells.double().cpu().numpy())
                self.loc[own] = torch.as_tensor(found.cluster_centers_).to(self.loc)
        nearest = torch.cdist(z, self.loc).argmin(-1)
        counts = torch.ones_like(self.logits)
        counts.index_put_((y, nearest), torch.ones_like(z[:, 0]), accumulate=True)
        self.logits.copy_((counts / counts.sum(-1, keepdim=True)).log())
        if distributed.is_available() and distributed.is_initialized():
            for parameter in (self.loc, self.logits):  # every process has found those of its own cells
                distributed.broadcast(parameter.data, src=0)

    def together(self) -> Mixture:
        """The mixture of all conditions together."""
        return Mixture(self.log_shares, self.components)

    def responsibilities(self, z: Tensor) -> Tensor:
        """Probabilities of the components given z, ``(n, C)``."""
        return torch.softmax(self.log_shares + log_components(self.components, z), dim=-1)

    def log_types(self, z: Tensor) -> Tensor:
        """Log probabilities of the cell types given z, ``(n, T)``: those of their components together."""
        of_components = self.log_shares + log_components(self.components, z)
        owned = self.type_of.unsqueeze(-1) == torch.arange(int(self.type_of.max()) + 1, device=z.device)  # (C, T)
        of_types = of_components.unsqueeze(-1).masked_fill(~owned, -torch.inf)
        return torch.log_softmax(torch.logsumexp(of_types, dim=-2), dim=-1)


def means_of_priors(module: nn.Module) -> list[nn.Parameter]:
    """Means of the learned priors of a module: they have the units of latents, not of weights.

    Not their scales: a prior that widens quickly makes room for w to tell what z should.
    """
    return [part.loc for part in module.modules() if isinstance(part, LearnedPrior | MixturePrior)]


PRIORS: dict[str, Callable[[int, int, int], Any]] = {
    "condition-mean": ConditionMeanPrior,
    "mapped": MappedPrior,
    "learned": LearnedPrior,
    "standard": standard_prior,
    "separable": separable_prior,
}
