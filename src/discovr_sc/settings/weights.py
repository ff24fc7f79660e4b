"""Weights of an objective's terms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real


@dataclass(frozen=True)
class Weights:
    """Weights of the terms of an objective, named as in the paper's loss-weight tables.

    Parameters
    ----------
    rec
        Of the log-likelihood given both latents, log p(x | z, w).
    rec_z
        Of the log-likelihood given z alone, log p(x | z).
    kl_z
        Of KL(q(z | x) || p(z)).
    kl_w
        Of KL(q(w | x, y) || p(w | y)).
    adv
        Of the adversarial term; 0 removes the adversary.
    mmd
        Of the kernel distance between the conditions' z (DISCOVR only, not in the paper); 0 by default.
    shift
        Of the distance between the conditions' means of z within kinds of cells, where the prior of z is a mixture
        (DISCOVR only, not in the paper); 0 by default.
    hsic
        Of the dependence of w on z within conditions (DISCOVR only, not in the paper); 0 by default.
    classify
        Of log q(y | w), in the methods that classify from w (DIVA, CCVAE).
    """

    rec: float = 1.0
    rec_z: float = 1.0
    kl_z: float = 1.0
    kl_w: float = 1.0
    adv: float = 1.0
    mmd: float = 0.0
    shift: float = 0.0
    hsic: float = 0.0
    classify: float = 1.0

    def __post_init__(self):
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
                raise ValueError(f"weights.{name} is {value!r}; give a finite number of at least 0 (0 drops the term).")


def complete(weights: Weights | Mapping[str, float] | None, default: Weights) -> Weights:
    """The weights that a user means: all of them, some that differ from the default, or the default."""
    if weights is None or isinstance(weights, Weights):
        return weights or default
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights is a {type(weights).__name__}; give a dictionary of some weights, or Weights(...).")
    names = [field.name for field in fields(Weights)]
    if unknown := set(weights) - set(names):
        raise ValueError(f"weights has {sorted(unknown)[0]!r}, which is no term of the objective; choose from {names}.")
    return replace(default, **weights)
