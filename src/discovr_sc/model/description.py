"""A model in a few lines: what was set, what it was trained on, how well it separates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from discovr_sc.tools.report import FRESH_PROBE

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Settings that are always named; others are where the user gave them.
NAMED = ("likelihood", "network", "n_latent_z")
#: Conditions that are named before "and so many more".
N_CONDITIONS = 6


def describe(model: ModelInterface) -> str:
    """What ``repr(model)`` shows.

    Examples
    --------
    >>> print(describe(model))
    DISCOVR of 200 cells and 50 genes
      conditions: control, treated_1 (obs['condition'])
      settings: likelihood='zinb', network='mlp', n_latent_z=10, n_latent_w=2
      trained: 1 epoch on 160 cells, training loss ..., validation loss ...
      separation: a new classifier reads the condition at ... from z, ... from the reconstruction (chance 0.50)
    """
    return "\n  ".join([f"{type(model).__name__} of {_data(model)}", *_lines(model)])


def _data(model: ModelInterface) -> str:
    shape = model.module.shape
    of = f"{shape[0]:,} {'genes' if model.get_setup_arg('tensor_key') is None else 'values'}"
    cells = "no cells" if model.adata is None else f"{model.adata.n_obs:,} cells"
    return f"{cells} and {of if len(shape) == 1 else 'images ' + ' x '.join(map(str, shape))}"


def _lines(model: ModelInterface) -> Iterator[str]:
    names = [str(name) for name in model.conditions]
    more = f" and {len(names) - N_CONDITIONS} more" if len(names) > N_CONDITIONS else ""
    keys = ", ".join(f"obs[{key!r}]" for key in model.condition_keys)
    yield f"conditions: {', '.join(names[:N_CONDITIONS])}{more} ({keys})"
    chosen = {name: getattr(model.module.settings, name) for name in NAMED}
    chosen |= model.init_params_["kwargs"]["settings"]
    yield "settings: " + ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    if model.minified_data_type is not None:
        yield "data: minified, latents without counts"
    if not model.is_trained:
        yield "not trained: call model.train()"
        return
    yield f"trained: {_training(model)}"
    if separation := _separation(model):
        yield f"separation: {separation}"


def _training(model: ModelInterface) -> str:
    history, cells = model.history_ or {}, getattr(model, "train_indices", None)
    found = []
    if "train_loss" in history:
        n_epochs = int(np.asarray(history["train_loss"].index)[-1]) + 1
        found.append(f"{n_epochs} epoch{'s' if n_epochs > 1 else ''}")
    on = [] if cells is None else [f"on {len(cells):,} cells"]
    found = [" ".join([*found, *on]) or "yes"]
    for split, key in (("training", "train_loss"), ("validation", "validation_loss")):
        if key in history:
            found.append(f"{split} loss {float(history[key].iloc[-1, 0]):.1f}")
    return ", ".join(found)


def _separation(model: ModelInterface) -> str:
    history = model.history_ or {}
    found = {
        name.removeprefix(FRESH_PROBE).replace("latent", "z"): float(values.iloc[-1, 0])
        for name, values in history.items()
        if name.startswith(FRESH_PROBE)
    }
    read = ", ".join(f"{value:.2f} from {'the ' * (place != 'z')}{place}" for place, value in found.items())
    return f"a new classifier reads the condition at {read} (chance {1 / len(model.conditions):.2f})" if found else ""
