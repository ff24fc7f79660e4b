"""The adversary: where it looks, what it minimises, how well it does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy

from discovr_sc.module.networks import Classifier, adversary_family, choose
from discovr_sc.settings import Settings, Weights

#: Where the adversary looks, by the name of the setting.
ADVERSARIES: dict[str, tuple[str, ...]] = {
    "reconstruction": ("reconstruction",),
    "latent": ("latent",),
    "both": ("latent", "reconstruction"),
}

#: What torch's cross-entropy leaves out.
IGNORED = -100


class Adversary(nn.Module):
    """g(y | .): one classifier for each place at which the adversary looks."""

    def __init__(self, classifiers: dict[str, Classifier]):
        super().__init__()
        self.classifiers = nn.ModuleDict(classifiers)

    def forward(self, views: dict[str, Tensor]) -> list[Tensor]:
        """Logits ``(n, K)`` of every classifier that has a view of its name."""
        return [classifier(views[name]) for name, classifier in self.classifiers.items() if name in views]


class OnlyTo(Function):
    """A tensor whose gradient reaches what it was computed from, and no parameter on the way.

    ``OnlyTo.apply(z, view)`` has the values of ``view``. Going backwards it takes the gradient from ``view`` to ``z``,
    which is all that flows on: no second pass of a decoder, whose batch norm would count every mini-batch twice.
    """

    @staticmethod
    def forward(ctx, source: Tensor, view: Tensor) -> Tensor:
        """The values of ``view``."""
        ctx.save_for_backward(source, view)
        return view.view_as(view)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, None]:
        """The gradient of ``source``; layers between it and ``view`` come later in the pass, which must find them."""
        source, view = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None
        with torch.enable_grad():
            return torch.autograd.grad(view, source, gradient, retain_graph=True)[0], None


def build_adversary(
    settings: Settings, shape: tuple[int, ...], n_conditions: int, available: Sequence[str], method: str
) -> Adversary | None:
    """The adversary that the settings ask for; None where its weight is 0, or where the method has none.

    Parameters
    ----------
    settings
        Complete settings of a module.
    shape
        Shape of one observation.
    n_conditions
        Number of conditions.
    available
        Where the method's adversary can look.
    method
        Its name, for messages.
    """
    name = settings.adversary
    networks = adversary_family(settings, shape)
    places = choose(ADVERSARIES, "adversary", name)
    if not available:
        if name != "latent":
            raise ValueError(f"adversary={name!r}: {method} has no adversary; leave it out.")
        return None
    if set(places) - set(available):
        possible = [option for option, p in ADVERSARIES.items() if set(p) <= set(available)]
        raise ValueError(
            f"adversary={name!r} looks at the {(set(places) - set(available)).pop()}, which {method} does not "
            f"have; choose from {possible}."
        )
    if isinstance(settings.weights, Weights) and settings.weights.adv == 0:
        return None
    builders = {
        "latent": lambda: networks.latent_classifier(settings.n_latent_z, n_conditions),
        "reconstruction": lambda: networks.data_classifier(n_conditions),
    }
    return Adversary({place: builders[place]() for place in places})


def log_losses(logits: Sequence[Tensor], y: Tensor, known: Tensor, reduction: str = "none") -> Tensor:
    """Cross-entropies summed over the places; cells of unknown condition have none.

    Parameters
    ----------
    logits
        One ``(n, K)`` for each place.
    y, known
        Indices of the conditions, and whether they are known, ``(n,)``.
    reduction
        ``"none"`` or ``"sum"``.
    """
    y = y.masked_fill(~known, IGNORED)
    return torch.stack([cross_entropy(place, y, reduction=reduction) for place in logits]).sum(0)


def adversary_loss(logits: Sequence[Tensor], y: Tensor, known: Tensor) -> Tensor:
    """What the adversary minimises: its mean cross-entropy, summed over the places it looks at."""
    return log_losses(logits, y, known, reduction="sum") / known.sum().clamp(min=1)


def adversary_accuracy(logits: Sequence[Tensor], y: Tensor, known: Tensor) -> Tensor:
    """Accuracy of the best of the adversary's classifiers, over cells of known condition."""
    n_known = known.sum().clamp(min=1)
    return torch.stack([((place.argmax(-1) == y) & known).sum() / n_known for place in logits]).max()
