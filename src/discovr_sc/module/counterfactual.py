"""Ways to choose w for a condition that a cell was not measured in."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.distributions import Normal

from discovr_sc.module.evidence import Given
from discovr_sc.module.gaussians import draw, rows


class FromPosterior:
    """w ~ q(w | x, target): the encoder is told that the cell was measured in the target condition."""

    def __call__(self, module, x: Tensor, given: Given, z: Tensor, target: Tensor) -> Tensor:
        """Draw w for data x ``(n, *shape)``, samples z ``([s,] n, n_latent_z)`` and codes ``(n,)``; shaped as z."""
        return module.inference(x, target, given, n_samples=1 if z.ndim == 2 else len(z))["w"]


class FromPrior:
    """w ~ p(w | target): the same distribution for all cells."""

    def __call__(self, module, x: Tensor, given: Given, z: Tensor, target: Tensor) -> Tensor:
        """See :meth:`FromPosterior.__call__`."""
        return draw(rows(module.prior(module.class_means.means), target), 1 if z.ndim == 2 else len(z))


class FromNeighbors:
    """w of a cell of the target condition that is near in z, drawn anew for every sample.

    Parameters
    ----------
    z
        Posterior means of cells of the target condition, ``(m, n_latent_z)``.
    w_mean, w_variance
        Of their posteriors, ``(m, n_latent_w)``.
    n_neighbors
        How many of them to draw from.
    """

    def __init__(self, z: np.ndarray, w_mean: np.ndarray, w_variance: np.ndarray, n_neighbors: int):
        self._search = NearestNeighbors(n_neighbors=min(n_neighbors, len(z))).fit(z)
        self._w = torch.as_tensor(w_mean), torch.as_tensor(np.sqrt(w_variance))

    def __call__(self, module, x: Tensor, given: Given, z: Tensor, target: Tensor) -> Tensor:
        """See :meth:`FromPosterior.__call__`."""
        near = torch.as_tensor(self._search.kneighbors(z.reshape(-1, z.shape[-1]).cpu(), return_distance=False))
        pick = torch.randint(near.shape[1], (len(near), 1))
        cells = near.gather(1, pick).squeeze(1)
        loc, scale = (moment[cells].to(z.device).reshape(*z.shape[:-1], -1) for moment in self._w)
        return draw(Normal(loc, scale, validate_args=False), 1)
