"""Cells in a condition that they were not measured in: ways to choose what is decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.distributions import Distribution, Normal

from discovr_sc.module.evidence import Given
from discovr_sc.module.gaussians import draw, rows


class Pair(NamedTuple):
    """A sample of both latents, ``([s,] n, n_latent)`` each."""

    z: Tensor
    w: Tensor


class Decodable(NamedTuple):
    """What a cell in some condition is decoded from.

    Attributes
    ----------
    own
        z and w.
    given
        Size factors and covariates.
    analogy
        Latents of a cell of the target condition and of its counterpart in the cell's own; the difference of what
        they decode to is added to the decoder's outputs. None where there is nothing to add.
    """

    own: Pair
    given: Given
    analogy: tuple[Pair, Pair] | None = None

    def decode(self, module) -> Distribution:
        """p(x | .)."""
        outputs = module.decoder_outputs(*self.own, self.given)
        if self.analogy is not None:
            there, here = (module.decoder_outputs(*pair, self.given) for pair in self.analogy)
            outputs = {head: value + there[head] - here[head] for head, value in outputs.items()}
        return module.likelihood(outputs, self.given.size_factor, self.given.cats[-1])


class FromPosterior:
    """w ~ q(w | x, target): the encoder is told that the cell was measured in the target condition."""

    def __call__(self, module, x: Tensor, given: Given, q: dict, target: Tensor) -> Decodable:
        """For data x ``(n, *shape)``, outputs q of inference in the cells' own conditions, and codes ``(n,)``."""
        w = module.inference(x, target, given, n_samples=_n_samples(q["z"]))["w"]
        return Decodable(Pair(q["z"], w), given)


class FromPrior:
    """w ~ p(w | target): the same distribution for all cells."""

    def __call__(self, module, x: Tensor, given: Given, q: dict, target: Tensor) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        w = draw(rows(module.prior(module.class_means.means), target), _n_samples(q["z"]))
        return Decodable(Pair(q["z"], w), given)


class FromNeighbors:
    """w of a cell of the target condition that is near in z, drawn anew for every sample.

    Parameters
    ----------
    moments
        For every condition, posterior means of z, and means and variances of w, of its cells.
    target
        Code of the target condition.
    n_neighbors
        How many of them to draw from.
    """

    def __init__(self, moments: Mapping[int, tuple[np.ndarray, ...]], target: int, n_neighbors: int):
        z, mean, variance = moments[target]
        self._search = NearestNeighbors(n_neighbors=min(n_neighbors, len(z))).fit(z)
        self._w = torch.as_tensor(mean), torch.as_tensor(np.sqrt(variance))

    def __call__(self, module, x: Tensor, given: Given, q: dict, target: Tensor) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        z = q["z"]
        cells = _pick(self._search, z.reshape(-1, z.shape[-1]).cpu().numpy())
        loc, scale = (moment[cells].to(z.device).reshape(*z.shape[:-1], -1) for moment in self._w)
        return Decodable(Pair(z, draw(Normal(loc, scale, validate_args=False), 1)), given)


class ByAnalogy:
    """The cell as it is, plus the difference between a like cell of the target condition and its counterpart.

    w tells more than the condition: cells of one condition differ in it, and an invariant z may leave it to w to tell
    some types apart. So the cell keeps its own w. Alike are cells that are near in z and w, once w is moved by the
    conditions' mean difference. What is added is the difference of two cells' decoder outputs (for counts: log
    expression), each decoded where the decoder has seen data; z of one cell beside w of another may lie where it has
    not.

    Parameters
    ----------
    moments, target
        See :class:`FromNeighbors`.
    n_neighbors
        How many like cells, and counterparts of each, to draw from.
    names
        Of the conditions, for messages.
    """

    def __init__(
        self, moments: Mapping[int, tuple[np.ndarray, ...]], target: int, n_neighbors: int, names: Sequence[str]
    ):
        self._target = target
        self._names = names
        self._latents = {code: np.hstack([z, w]) for code, (z, w, _) in moments.items()}
        self._search = {
            code: NearestNeighbors(n_neighbors=min(n_neighbors, len(latents))).fit(latents)
            for code, latents in self._latents.items()
        }
        n_latent_z = moments[target][0].shape[1]
        centre = {
            code: latents.mean(0) * (np.arange(latents.shape[1]) >= n_latent_z)
            for code, latents in self._latents.items()
        }
        self._shifts = {code: centre[target] - centre[code] for code in centre}

    def __call__(self, module, x: Tensor, given: Given, q: dict, target: Tensor) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        own = Pair(q["z"], q["w"])
        latents = torch.cat(own, dim=-1)
        flat = latents.reshape(-1, latents.shape[-1]).cpu().numpy()
        there, here = flat.copy(), flat.copy()
        source = q["y"].repeat(len(flat) // len(q["y"])).cpu().numpy()
        for code in np.unique(source):
            # A cell that is in the target condition stays as it is.
            if code == self._target:
                continue
            if code not in self._search:
                raise ValueError(
                    f"by='analogy' looks for counterparts among cells of condition {self._names[code]!r}, but the "
                    "model's AnnData has none; load the model with the cells it was trained on, or use by='neighbors'."
                )
            cells, shift = source == code, self._shifts[code]
            there[cells] = self._latents[self._target][_pick(self._search[self._target], flat[cells] + shift)]
            here[cells] = self._latents[code][_pick(self._search[code], there[cells] - shift)]
        sizes = [own.z.shape[-1], own.w.shape[-1]]
        pairs = (
            torch.as_tensor(part).to(latents).reshape(latents.shape).split(sizes, dim=-1) for part in (there, here)
        )
        return Decodable(own, given, tuple(Pair(*pair) for pair in pairs))


def _n_samples(z: Tensor) -> int:
    return 1 if z.ndim == 2 else len(z)


def _pick(search: NearestNeighbors, points: np.ndarray) -> np.ndarray:
    """One of each point's neighbours at random, by torch's generator: ``(n,)``."""
    near = search.kneighbors(points, return_distance=False)
    choice = torch.randint(near.shape[1], (len(near),)).numpy()
    return near[np.arange(len(near)), choice]
