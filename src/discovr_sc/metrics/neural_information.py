"""Mutual information from a neural critic (MINE, Belghazi et al. 2018), in nats.

A network T(x, y) is trained to raise the Donsker-Varadhan bound

    I(x; y) >= E_joint[T] - log E_product[exp T],

where the product distribution is sampled by pairing each x with the y of another row. The bound is read on rows the
critic was neither trained nor selected on, so that overfitting lowers the estimate instead of raising it.
"""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from .checks import as_codes, as_matrix, check_same_length, is_discrete

_TRAIN, _VALIDATION = 0.5, 0.15  # shares of the rows; the rest is held out for the estimate
_BATCH, _MIN_BATCHES = 1000, 10  # rows in a step at most, and steps in an epoch at least
_SHUFFLES, _EVALUATION_SHUFFLES = 2, 5  # product samples per joint sample, while training and in an estimate
_LEARNING_RATE, _LATE_LEARNING_RATE, _PATIENCE = 3e-3, 6e-4, 10
_MOVING_AVERAGE, _MIN_ROWS = 0.99, 50


def mine(
    x: ArrayLike,
    y: ArrayLike,
    *,
    given: ArrayLike | None = None,
    discrete: bool | None = None,
    hidden: int = 64,
    max_epochs: int = 150,
    seed: int = 0,
) -> float:
    """Estimate I(x; y), or I(x; y | given) for labels ``given``, with a neural critic, in nats and at least 0.

    The rows are split 50/15/35. The critic is trained on the first part with the bias-corrected gradient (a moving
    average of the denominator), stopped by the second, and read on the third. Continuous columns are standardised,
    labels one-hot encoded.

    Conditioning uses one critic T(x, y, given) and pairs each x with the y of another row *of the same label*: the
    bound then belongs to KL(p(x, y, given) || p(given) p(x | given) p(y | given)), which is the conditional mutual
    information.

    Parameters
    ----------
    x, y, discrete
        As for :func:`knn_mutual_information`.
    given
        Labels to condition on, shape (n,), each on at least 50 rows.
    hidden, max_epochs
        Width of the critic's two hidden layers, and most passes over the training rows, if not stopped early.
    seed
        Seed of the split, the critic and the pairing. Torch's global generator is left as it was.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000)
    >>> mine(x, x + 0.1 * rng.normal(size=2000), max_epochs=20) > 1
    True
    >>> mine(x, rng.normal(size=2000), max_epochs=20) < 0.02
    True
    """
    if hidden < 1 or max_epochs < 1:
        raise ValueError(f"hidden is {hidden} and max_epochs is {max_epochs}; both must be at least 1")
    x = as_matrix("x", x)
    if given is not None and not is_discrete(given):
        raise ValueError("given is continuous; cut it into labels, or use knn_conditional_mutual_information")
    groups = np.zeros(len(x), dtype=np.intp) if given is None else as_codes("given", given)
    if discrete is None:
        discrete = is_discrete(y)
    target = _one_hot(as_codes("y", y, at_least=2)) if discrete else _standardise(as_matrix("y", y))
    check_same_length(x=x, y=target, given=groups)
    smallest = int(np.bincount(groups).min())
    if smallest < _MIN_ROWS:
        raise ValueError(f"x, or a label of given, has {smallest} rows; mine needs at least {_MIN_ROWS}")

    context = np.hstack([_standardise(x), _one_hot(groups)])
    rng = np.random.default_rng(seed)
    cuts = [int(_TRAIN * len(x)), int((_TRAIN + _VALIDATION) * len(x))]
    inputs, outputs = (torch.from_numpy(part.astype(np.float32)) for part in (context, target))
    parts = np.split(rng.permutation(len(x)), cuts)
    train, validation, held_out = (_Rows(inputs[rows], outputs[rows], groups[rows]) for rows in parts)
    critic = _critic(context.shape[1] + target.shape[1], hidden, seed)
    _fit(critic, train, validation, max_epochs, rng)
    return max(0.0, _bound(critic, *_samples(held_out, rng)))


class _Rows(NamedTuple):
    """One part of the data: what the critic sees of x and given, what of y, and the codes of given."""

    context: Tensor  # (n, d + number of groups)
    target: Tensor  # (n, d')
    groups: NDArray[np.intp]  # (n,)

    def pair(self, rows: NDArray[np.intp], partners: NDArray[np.intp]) -> Tensor:
        """Critic inputs that join x of ``rows`` with y of ``partners``."""
        return torch.cat([self.context[rows], self.target[partners]], dim=1)


def _fit(critic: nn.Module, train: _Rows, validation: _Rows, max_epochs: int, rng: Generator) -> None:
    """Train the critic in place and leave it at its best state on the validation rows."""
    optimiser = torch.optim.Adam(critic.parameters(), lr=_LEARNING_RATE)
    validation_samples = _samples(validation, rng)
    best, best_state, waited = 0.0, copy.deepcopy(critic.state_dict()), 0
    log_average = torch.tensor(0.0)
    n = len(train.groups)
    n_batches = max(_MIN_BATCHES, math.ceil(n / _BATCH))
    for _ in range(max_epochs):
        partners = [_partners(train.groups, rng) for _ in range(_SHUFFLES)]
        for batch in np.array_split(rng.permutation(n), n_batches):
            joint = critic(train.pair(batch, batch))
            product = critic(torch.cat([train.pair(batch, other[batch]) for other in partners]))
            log_mean = _log_mean_exp(product)
            # A batch's own denominator would bias the gradient of the logarithm; its moving average does not.
            log_average = torch.logaddexp(
                log_average + math.log(_MOVING_AVERAGE), log_mean.detach() + math.log(1 - _MOVING_AVERAGE)
            )
            optimiser.zero_grad()
            (torch.exp(log_mean - log_average) - joint.mean()).backward()
            optimiser.step()

        score = _bound(critic, *validation_samples)
        if score > best:
            best, best_state, waited = score, copy.deepcopy(critic.state_dict()), 0
            continue
        waited += 1
        if waited == _PATIENCE:
            if optimiser.param_groups[0]["lr"] == _LATE_LEARNING_RATE:
                break
            # The last hundredths of a nat need smaller steps: go back to the best state and try once more.
            critic.load_state_dict(best_state)
            optimiser.param_groups[0]["lr"] = _LATE_LEARNING_RATE
            waited = 0
    critic.load_state_dict(best_state)


def _critic(width: int, hidden: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        critic = nn.Sequential(
            nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )
    # Starting at T = 0, whose bound is 0, makes "no dependence found" the state to beat.
    for parameter in critic[-1].parameters():
        nn.init.zeros_(parameter)
    return critic


def _samples(rows: _Rows, rng: Generator) -> tuple[Tensor, Tensor]:
    """Critic inputs from the joint and from the product distribution."""
    everyone = np.arange(len(rows.groups))
    shuffles = [_partners(rows.groups, rng) for _ in range(_EVALUATION_SHUFFLES)]
    return rows.pair(everyone, everyone), torch.cat([rows.pair(everyone, other) for other in shuffles])


@torch.no_grad()
def _bound(critic: nn.Module, joint: Tensor, product: Tensor) -> float:
    return float(critic(joint).mean() - _log_mean_exp(critic(product)))


def _partners(groups: NDArray[np.intp], rng: Generator) -> NDArray[np.intp]:
    """Give each row a random other row of its group: a row paired with itself would be a joint sample."""
    order = np.argsort(groups + rng.random(len(groups)))
    ends = np.cumsum(np.bincount(groups))
    following = np.arange(1, len(groups) + 1)
    starts = np.concatenate([[0], ends[:-1]])
    occupied = ends > starts
    following[ends[occupied] - 1] = starts[occupied]
    partners = np.empty_like(order)
    partners[order] = order[following]
    return partners


def _log_mean_exp(values: Tensor) -> Tensor:
    return torch.logsumexp(values.flatten(), dim=0) - math.log(values.numel())


def _standardise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    scale = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1.0)


def _one_hot(codes: NDArray[np.intp]) -> NDArray[np.float64]:
    return np.eye(codes.max() + 1)[codes]
