"""Cells in a condition that they were not measured in: ways to choose what is decoded."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.distributions import Distribution, Normal

from discovr_sc.module.evidence import Given
from discovr_sc.module.gaussians import draw, rows
from discovr_sc.module.noise import CellNoise

#: Numbers between 0 and 1 to choose a like cell and its counterpart by, or None for each.
Choosing = Sequence[np.ndarray | None] | np.ndarray
#: Analogies that a prediction rests on at least, over all its samples: a single pair of cells is noisy.
N_ANALOGIES = 5


class Pair(NamedTuple):
    """A sample of both latents, ``([s,] n, n_latent)`` each."""

    z: Tensor
    w: Tensor


class Decodable(NamedTuple):
    """What a cell in some condition is decoded from."""

    own: Pair
    given: Given  #: Size factors and covariates.
    #: Each the latents of a cell of the target condition and of its counterpart in the cell's own. The cell is moved by
    #: their mean difference.
    analogies: Sequence[tuple[Pair, Pair]] = ()

    def decode(self, module) -> Distribution:
        """p(x | .)."""
        outputs = module.decoder_outputs(*self.own, self.given)
        if self.analogies:
            outputs = self._move(module, outputs)
        return module.likelihood(outputs, self.given.size_factor, self.given.cats[-1])

    def _move(self, module, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The mean of two ways to move the cell, in the latents before they are decoded and in what is decoded.

        Each errs where the other does not: moved latents may lie where the decoder has seen no data, and what is
        decoded from other cells may be theirs and not this cell's.
        """
        n, scale = len(self.analogies), module.likelihood
        moved = scale.to_additive(
            module.decoder_outputs(
                *(own + sum(pair[0][i] - pair[1][i] for pair in self.analogies) / n for i, own in enumerate(self.own)),
                self.given,
            )
        )
        outputs = scale.to_additive(outputs)
        for target_like, source_like in self.analogies:
            there, here = (
                scale.to_additive(module.decoder_outputs(*pair, self.given)) for pair in (target_like, source_like)
            )
            outputs = {head: value + (there[head] - here[head]) / n for head, value in outputs.items()}
        return scale.from_additive({head: (value + moved[head]) / 2 for head, value in outputs.items()})


class AtSameQuantile:
    """w of the target condition, at the quantile that the cell's own w has in its condition's prior.

    The prior p(w | y) is Gaussian with a mean and a scale for every condition, so the cell keeps its distance from the
    mean in units of the scale: its own place in its condition's response. It needs no other cells.
    """

    def __call__(
        self, module, x: Tensor, given: Given, q: dict, target: Tensor, noise: CellNoise | None = None
    ) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        priors = module.prior(module.condition_means.means)
        here, there = (rows(priors, y) for y in (q["y"], target))
        return Decodable(Pair(q["z"], there.loc + (q["w"] - here.loc) / here.scale * there.scale), given)


class FromPosterior:
    """w ~ q(w | x, target): the encoder is told that the cell was measured in the target condition."""

    def __call__(
        self, module, x: Tensor, given: Given, q: dict, target: Tensor, noise: CellNoise | None = None
    ) -> Decodable:
        """For data x ``(n, *shape)``, outputs q of inference in the cells' own conditions, and targets ``(n,)``.

        ``noise`` is the cells' own; torch's by default.
        """
        w = module.inference(x, target, given, n_samples=_n_samples(q["z"]), generator=noise)["w"]
        return Decodable(Pair(q["z"], w), given)


class FromPrior:
    """w ~ p(w | target): the same distribution for all cells."""

    def __call__(
        self, module, x: Tensor, given: Given, q: dict, target: Tensor, noise: CellNoise | None = None
    ) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        w = draw(rows(module.prior(module.condition_means.means), target), _n_samples(q["z"]), generator=noise)
        return Decodable(Pair(q["z"], w), given)


class Neighborhood:
    """Draws cells, of points ``(n, d)``, that are near to others: of a tenth of all at most, or few would all be alike.

    Where points bring no numbers of their own to choose by, its generator is its own, seeded by torch's: how many cells
    are drawn, which differs between conditions, does not change what is drawn elsewhere.
    """

    def __init__(self, points: np.ndarray, n_neighbors: int):
        self._search = NearestNeighbors(n_neighbors=min(n_neighbors, max(1, len(points) // 10))).fit(points)
        self._generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))

    def draw(self, points: np.ndarray, choosing: np.ndarray | None = None) -> np.ndarray:
        """One of each point's neighbours, ``(n,)`` rows: at random, or chosen by numbers between 0 and 1, ``(n,)``."""
        near = self._search.kneighbors(points, return_distance=False)
        if choosing is None:
            choice = torch.randint(near.shape[1], (len(near),), generator=self._generator).numpy()
        else:
            choice = (choosing * near.shape[1]).astype(int)
        return near[np.arange(len(near)), choice]


class FromNeighbors:
    """w of a cell of the target condition that is near in z, drawn anew for every sample.

    The moments are, for every condition, posterior means of z, and means and variances of w, of its cells.
    """

    def __init__(self, moments: Mapping[int, tuple[np.ndarray, ...]], target: int, n_neighbors: int):
        z, mean, variance = moments[target]
        self._near = Neighborhood(z, n_neighbors)
        self._w = torch.as_tensor(mean), torch.as_tensor(np.sqrt(variance))

    def __call__(
        self, module, x: Tensor, given: Given, q: dict, target: Tensor, noise: CellNoise | None = None
    ) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        z = q["z"]
        choosing = None if noise is None else noise.uniform((*z.shape[:-1], 1)).ravel()
        cells = self._near.draw(z.reshape(-1, z.shape[-1]).cpu().numpy(), choosing)
        loc, scale = (moment[cells].to(z.device).reshape(*z.shape[:-1], -1) for moment in self._w)
        return Decodable(Pair(z, draw(Normal(loc, scale, validate_args=False), 1, generator=noise)), given)


class ByNeighborShift:
    """The cell as it is, plus the difference between a like cell of the target condition and its counterpart.

    w tells more than the condition: cells of one condition differ in it, and an invariant z may leave it to w to tell
    some types apart. So the cell keeps its own w. Alike are cells that are near in z and w, once w is moved by the
    conditions' mean difference. The difference is added half in the latents, half in what is decoded (for counts:
    log(1 + counts per 10,000)).

    With cell types, given for the cells of every condition, counterparts are of the like cell's type, where there are
    any. Where a type is missing from the target condition, an invariant z has to put its cells beside others, and they
    would be taken for the others' counterparts. Like cells may be of the wrong type then. So half of the analogies
    start in the cell's own condition, which tells what it is like without a match between conditions: a cell near to
    it there, of a type that the target condition has, and that one's counterpart in the target condition.
    """

    def __init__(
        self,
        moments: Mapping[int, tuple[np.ndarray, ...]],
        target: int,
        n_neighbors: int,
        names: Sequence[str],
        cell_types: Mapping[int, np.ndarray] | None = None,
    ):
        self._target = target
        self._names = names
        self._latents = {condition: np.hstack([z, w]) for condition, (z, w, _) in moments.items()}
        self._cell_types = cell_types or {k: np.zeros(len(latents)) for k, latents in self._latents.items()}
        self._like = Neighborhood(self._latents[target], n_neighbors)
        self._counterparts = {
            condition: Counterparts(latents, self._cell_types[condition], n_neighbors)
            for condition, latents in self._latents.items()
            if condition != target
        }
        #: For other conditions, the cells of types that the target condition has; and the counterparts there.
        self._shared: dict[int, tuple[np.ndarray, Neighborhood]] = {}
        if cell_types is not None:
            # Cells of one condition need no match to be compared: the nearest are like it, and fewer will do.
            n_neighbors = max(1, n_neighbors // 4)
            self._in_target = Counterparts(self._latents[target], self._cell_types[target], n_neighbors)
            for condition in self._counterparts:
                rows = np.flatnonzero(np.isin(self._cell_types[condition], self._cell_types[target]))
                if len(rows):
                    self._shared[condition] = rows, Neighborhood(self._latents[condition][rows], n_neighbors)
        is_w = np.arange(self._latents[target].shape[1]) >= moments[target][0].shape[1]
        centre = {condition: latents.mean(0) * is_w for condition, latents in self._latents.items()}
        self._shifts = {condition: centre[target] - centre[condition] for condition in centre}

    def __call__(
        self, module, x: Tensor, given: Given, q: dict, target: Tensor, noise: CellNoise | None = None
    ) -> Decodable:
        """See :meth:`FromPosterior.__call__`."""
        own = Pair(q["z"], q["w"])
        latents = torch.cat(own, dim=-1)
        flat = latents.reshape(-1, latents.shape[-1]).cpu().numpy()
        source = q["y"].repeat(len(flat) // len(q["y"])).cpu().numpy()
        sizes = [own.z.shape[-1], own.w.shape[-1]]
        analogies: list[tuple[Pair, Pair]] = []
        ways = (self._from_target, self._from_own) if self._shared else (self._from_target,)
        for _ in range(math.ceil(N_ANALOGIES / (_n_samples(own.z) * len(ways)))):
            for way in ways:
                choosing = None if noise is None else noise.uniform((*latents.shape[:-1], 2)).reshape(-1, 2)
                target_like, source_like = (
                    Pair(*torch.as_tensor(part).to(latents).reshape(latents.shape).split(sizes, dim=-1))
                    for part in self._draw(flat, source, way, choosing)
                )
                analogies.append((target_like, source_like))
        return Decodable(own, given, analogies)

    def _draw(
        self, points: np.ndarray, source: np.ndarray, way: Callable, choosing: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """A like cell of the target condition and its counterpart, for points ``(n, d)`` of cells of conditions."""
        target_like, source_like = points.copy(), points.copy()
        for condition in np.unique(source):
            # A cell that is in the target condition stays as it is.
            if condition == self._target:
                continue
            if condition not in self._counterparts:
                raise ValueError(
                    f"by='neighbor-shift' looks for cells of condition {self._names[condition]!r}, but the model's "
                    "AnnData has none; load the model with the cells it was trained on, or use by='quantile'."
                )
            cells = source == condition
            target_like[cells], source_like[cells] = way(
                condition, points[cells], (None, None) if choosing is None else choosing[cells].T
            )
        return target_like, source_like

    def _from_target(self, condition: int, points: np.ndarray, choosing: Choosing) -> tuple[np.ndarray, np.ndarray]:
        """Cells of the target condition that are like these of another, and their counterparts in the other."""
        shift = self._shifts[condition]
        drawn = self._like.draw(points + shift, choosing[0])
        like = self._latents[self._target][drawn]
        of_types = self._cell_types[self._target][drawn]
        return like, self._counterparts[condition].draw(like - shift, of_types, choosing[1])

    def _from_own(self, condition: int, points: np.ndarray, choosing: Choosing) -> tuple[np.ndarray, np.ndarray]:
        """Counterparts in the target condition of cells that are near in the cells' own, and the near cells."""
        if condition not in self._shared:
            return self._from_target(condition, points, choosing)
        rows, near = self._shared[condition]
        drawn = rows[near.draw(points, choosing[0])]
        like = self._latents[condition][drawn]
        of_types = self._cell_types[condition][drawn]
        return self._in_target.draw(like + self._shifts[condition], of_types, choosing[1]), like


class Counterparts:
    """Cells of a condition, of points ``(n, d)`` and cell types ``(n,)``, to draw from those of one type."""

    def __init__(self, points: np.ndarray, cell_types: np.ndarray, n_neighbors: int):
        self._points = {cell_type: points[cell_types == cell_type] for cell_type in np.unique(cell_types)}
        self._near = {cell_type: Neighborhood(of_type, n_neighbors) for cell_type, of_type in self._points.items()}
        self._all = points, Neighborhood(points, n_neighbors)

    def draw(self, points: np.ndarray, cell_types: np.ndarray, choosing: np.ndarray | None = None) -> np.ndarray:
        """A cell near to each point, of its cell type where there are any: ``(n, d)``; see :class:`Neighborhood`."""
        drawn = np.empty_like(points)
        for cell_type in np.unique(cell_types):
            cells, near = (self._points[cell_type], self._near[cell_type]) if cell_type in self._near else self._all
            of_type = cell_types == cell_type
            drawn[of_type] = cells[near.draw(points[of_type], None if choosing is None else choosing[of_type])]
        return drawn


def _n_samples(z: Tensor) -> int:
    return 1 if z.ndim == 2 else len(z)
