"""The health of an adversary: whether its hidden units live, whether its answers differ, whether it beats a guess."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from scvi import settings
from torch import Tensor, nn

from discovr_sc.module.adversary import Adversary

#: Logits that differ by less from cell to cell are an adversary that says the same of every cell.
LEAST_SPREAD = 1e-3


class PlaceHealth:
    """What one of the adversary's classifiers did on the mini-batches that were looked at."""

    def __init__(self):
        self.alive: dict[nn.Module, Tensor] = {}
        self.logits: list[Tensor] = []

    def see_units(self, layer: nn.Module, inputs: tuple, output: Tensor) -> None:
        """Note which units of a layer (columns, or channels of images) were active on any cell."""
        active = (output > 0).movedim(1, 0).flatten(start_dim=1).any(1)
        self.alive[layer] = self.alive[layer] | active if layer in self.alive else active

    def see_logits(self, classifier: nn.Module, inputs: tuple, output: Tensor) -> None:
        """Note the answers."""
        self.logits.append(output.detach())

    @property
    def living_units(self) -> Tensor | None:
        """Share of the hidden units that were active on any cell; None where there are no hidden units."""
        return torch.cat(list(self.alive.values())).float().mean() if self.alive else None

    @property
    def logit_sd(self) -> Tensor:
        """Standard deviation over cells of the logits, which count up to a constant per cell; mean over conditions."""
        logits = torch.cat(self.logits)
        return (logits - logits.mean(1, keepdim=True)).std(0, correction=0).mean()

    def gain(self, y: Tensor, known: Tensor) -> Tensor:
        """Accuracy, less that of always naming the most frequent condition of the same cells."""
        right = torch.cat(self.logits).argmax(-1) == y
        return (right[known].sum() - y[known].bincount().max()) / known.sum()

    @property
    def complaint(self) -> str | None:
        """What is wrong with it, in words."""
        if self.living_units == 0:
            return "is dead: no hidden unit is active on any cell"
        if self.logit_sd < LEAST_SPREAD:
            return "is constant: it says the same of every cell"
        return None


class AdversaryHealth:
    """Health of all places at which an adversary looks, over the mini-batches of an epoch that are looked at.

    Examples
    --------
    >>> import torch
    >>> from discovr_sc.module import DISCOVRModule
    >>> from discovr_sc.train.health import AdversaryHealth
    >>> adversary, health = DISCOVRModule((50,), 2).adversary, AdversaryHealth()
    >>> y, known = torch.tensor([0, 1, 1]), torch.tensor([True, True, True])
    >>> with health.watching(adversary, y, known):
    ...     _ = adversary({"latent": torch.zeros(3, 10), "reconstruction": torch.zeros(3, 50)})
    >>> health.complaints()["latent"]
    'is constant: it says the same of every cell'
    """

    def __init__(self):
        self._ill: dict[str, str] = {}
        self._has_warned = False
        self._clear()

    def _clear(self) -> None:
        self._places: dict[str, PlaceHealth] = {}
        self._y: list[Tensor] = []
        self._known: list[Tensor] = []

    @contextmanager
    def watching(self, adversary: Adversary | None, y: Tensor, known: Tensor) -> Iterator[None]:
        """Look at what the adversary does meanwhile, once, with cells of these conditions ``(n,)``.

        It costs a comparison per hidden unit, so only some mini-batches are looked at.
        """
        if adversary is None or not known.any():
            yield
            return
        self._y.append(y)
        self._known.append(known)
        with ExitStack() as hooks:
            for name, classifier in adversary.classifiers.items():
                place = self._places.setdefault(name, PlaceHealth())
                hooks.enter_context(classifier.register_forward_hook(place.see_logits))
                for layer in classifier.modules():
                    if isinstance(layer, nn.ReLU):
                        hooks.enter_context(layer.register_forward_hook(place.see_units))
            yield

    def pop_metrics(self) -> dict[str, Tensor]:
        """To be logged: of several places the worst health, and the best gain over a constant guess. Starts anew."""
        if not self._places:
            return {}
        places = self._places.values()
        y, known = torch.cat(self._y), torch.cat(self._known)
        found = {
            "adversary_logit_sd": torch.stack([place.logit_sd for place in places]).min(),
            "adversary_gain": torch.stack([place.gain(y, known) for place in places]).max(),
        }
        living = [place.living_units for place in places if place.living_units is not None]
        self._clear()
        return found | ({"adversary_living_units": torch.stack(living).min()} if living else {})

    def complaints(self) -> dict[str, str]:
        """What is wrong, by place; nothing where all is well."""
        return {name: found for name, place in self._places.items() if (found := place.complaint) is not None}

    def warn(self, epoch: int) -> None:
        """At the end of an epoch (from 0), tell the user of a place that was ill a whole epoch ago, too; once."""
        ill = self.complaints()
        still = {place: complaint for place, complaint in ill.items() if place in self._ill}
        self._ill = ill
        if not still or self._has_warned:
            return
        self._has_warned = True
        told = " and ".join(f"that on the {place} {complaint}" for place, complaint in still.items())
        warnings.warn(
            f"The adversary has not worked since epoch {epoch}: {told}. Nothing then removes the condition from z. Use "
            "batch norm (classifier_batch_norm=True), a lower learning rate (plan_kwargs={'adversary_lr': ...}) or, "
            "in DISCOVR, let it train the encoder only (adversary_trains='encoder').",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )
