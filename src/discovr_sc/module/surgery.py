"""Growing a trained module: new categories get entries of their own, all others keep theirs."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from scvi.nn import FCLayers
from torch import Tensor, nn

#: What is trained: by name of the parameter its entries that are (True), or None for all of them.
Trainable = Mapping[str, Tensor | None]


class Block(NamedTuple):
    """Rows or columns that belong together, such as one column for each batch."""

    n_before: int
    n_after: int


@torch.no_grad()
def grow(old: nn.Module, new: nn.Module) -> dict[str, Tensor]:
    """Carry a trained module's state over to one with more conditions, batches or categories of covariates.

    What the new categories add starts at the mean of what the old ones have. The state of ``new``, a module of the same
    settings, is overwritten. Returned are, by name of every tensor that has grown, its entries that are new: True, of
    the tensor's shape.
    """
    old_modules = dict(old.named_modules())
    layers = {name: layer for name, layer in new.named_modules() if isinstance(layer, FCLayers)}
    old_state, state, is_new = old.state_dict(), {}, {}
    for name, fresh in new.state_dict().items():
        before = old_state[name].to(fresh.device)
        if before.shape == fresh.shape:
            state[name] = before.clone()
            continue
        prefix = name.split(".fc_layers.")[0]
        if prefix in layers:
            blocks = _column_blocks(before, fresh, old_modules[prefix], layers[prefix])
            columns, new_columns = _place(before.T, fresh.T, blocks)
            state[name], is_new[name] = columns.T, new_columns.T
        else:  # one row for each condition, or batch
            state[name], is_new[name] = _place(before, fresh, [Block(len(before), len(fresh))])
    new.load_state_dict(state)
    return is_new


def _column_blocks(before: Tensor, fresh: Tensor, old: FCLayers, new: FCLayers) -> list[Block]:
    """Columns of a fully connected layer: inputs, continuous covariates, then every categorical covariate."""
    inputs = Block(before.shape[1] - old.n_cov, fresh.shape[1] - new.n_cov)
    continuous = Block(old.n_cov - sum(old.n_cat_list), new.n_cov - sum(new.n_cat_list))
    return [inputs, continuous, *(Block(*sizes) for sizes in zip(old.n_cat_list, new.n_cat_list, strict=True))]


def _place(before: Tensor, fresh: Tensor, blocks: list[Block]) -> tuple[Tensor, Tensor]:
    """The grown tensor and which of its entries are new, for blocks of rows."""
    sizes_before, sizes_after = zip(*blocks, strict=True)
    parts, new_parts = [], []
    for old_rows, fresh_rows in zip(before.split(sizes_before), fresh.split(sizes_after), strict=True):
        if len(old_rows) == 0 and len(fresh_rows):
            # A covariate of one category has no row: what it added was 0, and stays so.
            old_rows = torch.zeros_like(fresh_rows[:1])
        more = fresh_rows[len(old_rows) :]
        if len(more):
            more = old_rows.double().mean(0).to(more.dtype).expand_as(more)
        parts += [old_rows, more]
        new_parts += [torch.zeros_like(old_rows, dtype=torch.bool), torch.ones_like(more, dtype=torch.bool)]
    return torch.cat(parts), torch.cat(new_parts)


@contextmanager
def training_only(module: nn.Module, trainable: Trainable | None) -> Iterator[None]:
    """Let a training change only some entries of a module's parameters; None lets it change all."""
    if trainable is None:
        yield
        return
    hooks = []
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in trainable)
        mask = trainable.get(name)
        if mask is not None:
            hooks.append(parameter.register_hook(lambda gradient, mask=mask: gradient * mask.to(gradient)))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found .* in eval mode at the start of training")  # that is meant
            yield
    finally:
        for hook in hooks:
            hook.remove()
        module.requires_grad_(True)


def set_training_mode(module: nn.Module, trainable: Trainable | None) -> None:
    """Set a module to training, but keep what is not trained at its statistics of evaluation.

    Batch normalisation would otherwise forget the cells that it was trained on, and so would the condition means.
    """
    module.train()
    if trainable is None:
        return
    for name, part in module.named_modules():
        keeps_statistics = isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) and f"{name}.weight" not in trainable
        if keeps_statistics or name in ("condition_means", "kinds"):
            part.eval()
