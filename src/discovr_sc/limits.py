"""Which values the settings of modules and of the training plan may have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, NamedTuple

from discovr_sc.errors import InputError


class Limit(NamedTuple):
    """A whole number, or any, within limits."""

    low: float
    high: float = math.inf
    whole: bool = False
    #: Whether the limits themselves are allowed.
    with_low: bool = True
    with_high: bool = False

    def allows(self, value: Any) -> bool:
        """Whether this is such a number."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        number = float(value)
        above = number >= self.low if self.with_low else number > self.low
        return above and (number < self.high or (self.with_high and number == self.high))

    def __str__(self) -> str:
        """In words."""
        if self.whole:
            return f"a whole number of at least {self.low:g}"
        low = f"{'at least' if self.with_low else 'above'} {self.low:g}"
        if self.high == math.inf:
            return f"a finite number {low}"
        return f"a number {low} and {'at most' if self.with_high else 'below'} {self.high:g}"


SIZE, POSITIVE = Limit(1, whole=True), Limit(0, with_low=False)
#: By the name of a setting. Where its default is None, None is allowed, too.
LIMITS = (
    dict.fromkeys(
        ("n_latent_z", "n_latent_w", "n_latent_u", "n_hidden", "n_layers", "narrow_z", "n_components_z"), SIZE
    )
    | dict.fromkeys(("n_hidden_adversary", "n_layers_adversary", "n_classifier_samples", "n_adversary_steps"), SIZE)
    | dict.fromkeys(("noise_scale", "noise_scale_z", "lr", "eps", "gradient_clip"), POSITIVE)
    | dict.fromkeys(("adversary_lr", "prior_lr", "weight_decay"), Limit(0))  # 0 leaves a player at rest
    | {"dropout_rate": Limit(0, 1), "final_decay": Limit(0, 1, with_high=True)}
    | {"n_epochs_kl_warmup": Limit(0, whole=True), "alignment_start": Limit(0, 1)}
)
#: Settings that are lists of numbers.
LISTS = {"channels": SIZE, "channels_adversary": SIZE, "mmd_bandwidths": POSITIVE}
#: Settings that may be None though their default is not.
OPTIONAL = ("gradient_clip", "n_hidden_adversary", "n_layers_adversary")
#: Settings that are True or False though their default, which hangs on the data, is None.
SWITCHES = ("center_w",)
#: What else to do, where a value is refused.
HINTS = {"n_adversary_steps": " (adv=0 for no adversary)", "gradient_clip": ", or None not to clip"} | {
    "final_decay": ", the part of the epochs",
    "alignment_start": ", the part of the epochs",
}


def check_limits(settings: Any) -> None:
    """Raise where a number among the settings, a dataclass, is not within its limits."""
    for item in fields(settings):
        value, limit = getattr(settings, item.name), LIMITS.get(item.name)
        if limit is not None and not (value is None and (item.default is None or item.name in OPTIONAL)):
            if not limit.allows(value):
                raise InputError(f"{item.name} is {value!r}; give {limit}{HINTS.get(item.name, '')}.")
        elif item.name in LISTS:
            if value is not None and (not isinstance(value, Iterable) or not all(map(LISTS[item.name].allows, value))):
                raise InputError(f"{item.name} is {value!r}; give a list, each {LISTS[item.name]}.")
        elif (isinstance(item.default, bool) or (item.name in SWITCHES and value is not None)) and not isinstance(
            value, bool
        ):
            raise InputError(f"{item.name} is {value!r}; give True or False.")
