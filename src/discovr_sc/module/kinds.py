"""Kinds of cells, how the conditions share them, and how far they lie apart within them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from discovr_sc.module.priors import MixturePrior, over_ranks

#: Share of the newest mini-batch in the running masses and means.
MOMENTUM = 0.02
#: Smallest share of a condition in a kind: a kind that a condition lacks says so, and is not aligned.
SMALLEST_SHARE = 1e-4


class Kinds(nn.Module):
    """Each condition's share of the kinds of cells, P(y | kind), and its mean of z in each.

    Conditions may differ in which cells they have. Then z may tell the condition as far as the kind of a cell does, and
    no further. Kinds are the cell types, where they are known, or else the components of the prior of z.

    Parameters
    ----------
    n_conditions
        Number of conditions, K.
    prior
        The prior of z, whose C components are the kinds where no types are known.
    n_types
        Number of known cell types; 0 where none are known.
    """

    mass: Tensor
    sums: Tensor

    def __init__(self, n_conditions: int, prior: MixturePrior, n_types: int = 0):
        super().__init__()
        self.n_types = n_types
        n_kinds, n_latent = n_types or len(prior.loc), prior.loc.shape[-1]
        # Equal shares before any cell was seen; too little to count after that.
        self.register_buffer("mass", torch.full((n_conditions, n_kinds), 1e-3))
        self.register_buffer("sums", torch.zeros(n_conditions, n_kinds, n_latent))

    @torch.no_grad()
    def of(self, z: Tensor, cell_type: Tensor | None, prior: MixturePrior) -> Tensor:
        """Probabilities of the kinds of each cell, ``(n, C)``.

        Parameters
        ----------
        z
            Posterior means, ``(n, n_latent_z)``.
        cell_type
            Indices of the cell types, ``(n,)``, -1 where unknown; None where the model knows no types.
        prior
            The prior of z.
        """
        kinds = prior.responsibilities(z)
        if self.n_types:
            kinds = kinds @ one_hot(prior.type_of, self.n_types).to(z)
        if cell_type is not None:
            own = one_hot(cell_type.clamp(min=0), self.n_types).to(z)
            kinds = torch.where((cell_type >= 0).unsqueeze(-1), own, kinds)
        return kinds

    @torch.no_grad()
    def forward(self, kinds: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """Shares of the conditions among cells of the same kind as each cell, ``(n, K)``, which sum to 1.

        Parameters
        ----------
        kinds
            Probabilities of the kinds, ``(n, C)``.
        y, known
            Indices of the conditions, and whether they are known, ``(n,)``.
        """
        if self.training:
            batch, n = over_ranks(self._members(y, known).to(kinds).T @ kinds), over_ranks(known.sum().to(kinds))
            self.mass += MOMENTUM * (batch / n.clamp(min=1) - self.mass)
        shares = (self.mass / self.mass.sum(0)).clamp(min=SMALLEST_SHARE)
        return kinds @ (shares / shares.sum(0)).T

    def displacement(self, z: Tensor, kinds: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """Squared distance of each condition's mean of z from the others' within a kind, averaged over cells: a scalar.

        Means run over many mini-batches, so that small kinds have them, too: a kernel distance hardly sees a small
        shift of a few cells. The gradient is that of means over all cells, as this mini-batch stands for them. A kind
        weighs as many cells as its conditions have in common (half their masses' harmonic mean), and none where only
        one has it.

        Parameters
        ----------
        z
            Posterior means, ``(n, n_latent_z)``.
        kinds, y, known
            See :meth:`forward`, which has counted these cells before.
        """
        sums = self.sums
        if self.training:
            members = self._members(y, known).to(z)
            batch = over_ranks(torch.einsum("nk,nc,nd->kcd", members, kinds, z)) / over_ranks(known.sum().to(z)).clamp(
                1
            )
            self.sums.lerp_(batch.detach(), MOMENTUM)
            sums = self.sums + (batch - batch.detach())
        mass, others = self.mass, self.mass.sum(0) - self.mass  # (K, C)
        means, of_others = sums / mass.unsqueeze(-1), (sums.sum(0) - sums) / others.clamp(min=1e-12).unsqueeze(-1)
        in_common = mass * others / (mass + others)
        has_both = torch.minimum(mass, others) > SMALLEST_SHARE * (mass + others)
        return (in_common * has_both * (means - of_others).square().sum(-1)).sum()

    def _members(self, y: Tensor, known: Tensor) -> Tensor:
        """1 where a cell is of a condition, ``(n, K)``; 0 everywhere where that is unknown."""
        return one_hot(y, len(self.mass)) * known.unsqueeze(-1)
