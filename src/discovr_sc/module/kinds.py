"""Kinds of cells, and how the conditions share them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from discovr_sc.module.priors import MixturePrior, over_ranks

#: Share of the newest mini-batch in the running masses.
MOMENTUM = 0.02
#: Smallest share of a condition in a kind: a kind that a condition lacks says so, and is not aligned.
SMALLEST_SHARE = 1e-4


class Kinds(nn.Module):
    """Each condition's share of the kinds of cells: P(y | kind).

    Conditions may differ in which cells they have. Then z may tell the condition as far as the kind of a cell does, and
    no further. Kinds are the cell types, where they are known, or else the components of the prior of z.

    Parameters
    ----------
    n_conditions
        Number of conditions, K.
    prior
        The prior of z, whose components are the kinds where no types are known.
    n_types
        Number of known cell types; 0 where none are known.
    """

    mass: Tensor

    def __init__(self, n_conditions: int, prior: MixturePrior, n_types: int = 0):
        super().__init__()
        self.n_types = n_types
        # Equal shares before any cell was seen; too little to count after that.
        self.register_buffer("mass", torch.full((n_conditions, n_types or len(prior.loc)), 1e-3))

    @torch.no_grad()
    def forward(self, z: Tensor, y: Tensor, known: Tensor, cell_type: Tensor | None, prior: MixturePrior) -> Tensor:
        """Shares of the conditions among cells of the same kind as each cell, ``(n, K)``, which sum to 1.

        Parameters
        ----------
        z
            Posterior means, ``(n, n_latent_z)``.
        y, known
            Indices of the conditions, and whether they are known, ``(n,)``.
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
        if self.training:
            of_conditions = one_hot(y, len(self.mass)).to(z) * known.unsqueeze(-1)
            batch, n = over_ranks(of_conditions.T @ kinds), over_ranks(known.sum().to(z))
            self.mass += MOMENTUM * (batch / n.clamp(min=1) - self.mass)
        shares = (self.mass / self.mass.sum(0)).clamp(min=SMALLEST_SHARE)
        return kinds @ (shares / shares.sum(0)).T
