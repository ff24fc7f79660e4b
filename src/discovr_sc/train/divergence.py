"""A training that diverges is stopped, and the weights of its last good epoch are kept."""

from __future__ import annotations

import torch
from scvi import REGISTRY_KEYS
from torch import Tensor, nn

from discovr_sc.errors import DivergenceError

#: Learning rates above this are rarely meant, and data beyond this are rarely raw counts.
HIGH_RATE, LARGE_VALUE = 0.1, 1e6


class Watch:
    """Keeps the state of a module, for the case that it diverges.

    Parameters
    ----------
    module
        That is trained.
    """

    def __init__(self, module: nn.Module):
        self._module = module
        self._state: dict[str, Tensor] = {}
        self.keep()

    def keep(self) -> None:
        """The state is good."""
        self._state = {name: value.detach().clone() for name, value in self._module.state_dict().items()}

    def check(
        self,
        loss: Tensor,
        gradient: Tensor,
        *,
        epoch: int,
        terms: dict[str, Tensor],
        batch: dict[str, Tensor],
        rate: float,
    ) -> None:
        """Raise where a loss or the norm of its gradient is not finite, and go back to the state that was kept.

        Parameters
        ----------
        loss, gradient
            Of a step that has not been taken.
        epoch
            Number of the epoch, from 0.
        terms
            Of the loss, by name.
        batch
            The mini-batch.
        rate
            Learning rate.
        """
        if bool(torch.isfinite(loss)) and bool(torch.isfinite(gradient)):
            return
        self._module.load_state_dict(self._state)
        bad = [name for name, value in terms.items() if not bool(torch.isfinite(value).all())]
        where = f"the term {bad[0]!r}" if bad else "the loss" if not bool(torch.isfinite(loss)) else "the gradient"
        x = batch[REGISTRY_KEYS.X_KEY]
        largest = float((x.values() if x.layout == torch.sparse_csr else x).abs().max())
        if rate > HIGH_RATE:
            cause = f"the learning rate, {rate:g}, is too high: give plan_kwargs={{'lr': 1e-3}} or less"
        elif not largest < LARGE_VALUE:
            cause = f"the data have values up to {largest:.3g}: give raw counts, or standardise the data"
        else:
            cause = f"a learning rate (here {rate:g}) or a weight of the objective is too high: lower it"
        kept = f"the model keeps the weights of epoch {epoch}" if epoch else "the model keeps the weights it had before"
        raise DivergenceError(
            f"Training diverged in epoch {epoch + 1}: {where} is not finite. Likely {cause}; {kept}.", epoch
        )


def check_finite_state(module: nn.Module) -> None:
    """Raise where a module has weights that are not finite."""
    for name, value in module.state_dict().items():
        if not bool(torch.isfinite(value).all()):
            raise DivergenceError(
                f"The model's weights {name!r} are not finite, so its answers would not be either; train it anew with "
                "a lower learning rate (plan_kwargs={'lr': ...}), or load another model."
            )
