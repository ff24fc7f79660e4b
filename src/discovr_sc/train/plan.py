"""The one training plan."""

from __future__ import annotations

import math
from contextlib import contextmanager, nullcontext
from copy import copy, deepcopy
from dataclasses import fields
from inspect import signature
from typing import Any

import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import LossOutput
from scvi.train import TrainingPlan

from discovr_sc.module.adversary import adversary_loss
from discovr_sc.module.priors import means_of_priors
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import PlanSettings
from discovr_sc.train.checkpoints import OURS, History, random_state, set_random_state
from discovr_sc.train.divergence import Watch
from discovr_sc.train.health import AdversaryHealth

#: Mini-batches at the end of an epoch in which the adversary's health is looked at.
LOOKED_AT = 2

#: Part of the epochs over which the terms that align the conditions come in.
ALIGNMENT_RAMP = 0.1

#: When kinds of cells are found, in parts of the epochs before the conditions are aligned, and from how many
#: mini-batches at most.
KINDS_AT, KINDS_FROM = (0.4, 1.0), 40

#: What the progress bar shows.
SHOWN = ("train_loss", "validation_loss", "adversary_accuracy_train")


class AdversarialPlan(TrainingPlan):
    """Algorithm 1 of the paper: one forward, then the adversary's update, then the model's against it.

    Parameters
    ----------
    module
        What to train.
    optimizer
        ``"AdamW"`` (the paper) or ``"Adam"``.
    lr
        Learning rate of the model.
    adversary_lr
        Learning rate of the adversary; that of the model by default.
    prior_lr
        Learning rate of the means of learned priors; that of the model by default. Adam moves a parameter by about a
        learning rate a step, so that of the model suits weights, which are small, while latents may lie several units
        away from where their prior starts.
    n_adversary_steps
        Updates of the adversary before each update of the model.
    gradient_clip
        Largest norm of the gradient, for the model and for the adversary; None does not clip.
    weight_decay, eps
        Of both optimisers.
    n_epochs_kl_warmup
        Epochs over which the weights of the KL terms rise from 0 and, in DISCOVR, what z learns from the reconstruction
        from z alone; None starts with all of it.
    final_decay
        Last part of the epochs, from 0 to 1, over which the model's learning rate falls linearly to 0. The adversary's
        does not fall: while the model comes to rest, the adversary keeps up with it, and what it can still read is
        removed.
    alignment_start
        Part of the epochs, from 0 to below 1, before the conditions are aligned: first the components of z find the
        kinds of cells, within which they are. The adversary trains from the start.
    **kwargs
        The settings above, whose defaults are in :class:`~discovr_sc.settings.PlanSettings`, and those of
        :class:`~scvi.train.TrainingPlan`.

    Examples
    --------
    >>> from discovr_sc.module import DISCOVRModule
    >>> from discovr_sc.train import AdversarialPlan
    >>> plan = AdversarialPlan(DISCOVRModule((50,), 2), lr=1e-3, prior_lr=1e-2, adversary_lr=2e-3)
    >>> [[group["lr"] for group in optimizer.param_groups] for optimizer in plan.configure_optimizers()]
    [[0.001, 0.01], [0.002]]
    """

    def __init__(self, module: DisentangledModule, **kwargs):
        ours = [item.name for item in fields(PlanSettings)]
        unknown = set(kwargs) - set(ours) - set(signature(TrainingPlan.__init__).parameters)
        if unknown:
            raise TypeError(f"plan_kwargs has {sorted(unknown)[0]!r}, which the plan does not take; it takes {ours}.")
        for unsupported in ("reduce_lr_on_plateau", "update_only_decoder", "n_steps_kl_warmup"):
            if kwargs.get(unsupported):
                raise ValueError(f"{unsupported} does not work with two players; leave it out.")
        settings = PlanSettings(**{name: kwargs.pop(name) for name in ours if name in kwargs})
        of_scvi = ("optimizer", "lr", "weight_decay", "eps", "n_epochs_kl_warmup")
        super().__init__(module, **{name: getattr(settings, name) for name in of_scvi}, **kwargs)
        self.automatic_optimization = False
        self.settings = settings
        self.adversary_lr = self.lr if settings.adversary_lr is None else settings.adversary_lr
        self.prior_lr = self.lr if settings.prior_lr is None else settings.prior_lr
        #: Epochs before this training, where it goes on from a checkpoint.
        self.earlier_history: History = {}
        self._history: History = {}
        self._to_restore: dict[str, Any] | None = None
        self._n_batches = 0
        self._totals = EpochTotals()
        self._validation_totals = EpochTotals()
        self._latest: list[dict] = []
        self._health, self._validation_health = AdversaryHealth(), AdversaryHealth()

    def _optimizer_creator_fn(self, optimizer_cls):
        """As scvi-tools', but fused: its loop over tensors costs as much as the backward pass of small networks."""
        return lambda params: optimizer_cls(
            params, lr=self.lr, eps=self.eps, weight_decay=self.weight_decay, fused=True
        )

    def configure_optimizers(self):
        """One optimiser for the model and, where there is an adversary, one for it.

        Parameters are told apart by identity: the module's own would otherwise include the adversary's, and
        the model's optimiser would train it backwards.
        """
        adversary = list(self.module.adversary.parameters()) if self.module.adversary is not None else []
        ours = {id(parameter) for parameter in adversary}
        of_priors = {id(parameter) for parameter in means_of_priors(self.module)}
        trained = [p for p in self.module.parameters() if p.requires_grad and id(p) not in ours]
        groups = [
            {"params": [p for p in trained if (id(p) in of_priors) == is_prior], "lr": rate, "initial_lr": rate}
            for is_prior, rate in ((False, self.lr), (True, self.prior_lr))
        ]
        create = self.get_optimizer_creator()
        model_optimizer = create([group for group in groups if group["params"]])
        if not adversary:
            return [model_optimizer]
        return [model_optimizer, create([{"params": adversary, "lr": self.adversary_lr}])]

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> dict[str, torch.Tensor]:
        """One round of the game on one mini-batch."""
        self._n_batches = batch_idx + 1
        if len(batch[REGISTRY_KEYS.X_KEY]) == 1:
            self._find_kinds([], batch_idx)
            return {"loss": torch.zeros(())}  # batch norm has no variance to divide by
        optimizers = self.optimizers()
        model_optimizer, *adversary_optimizer = optimizers if isinstance(optimizers, list) else [optimizers]
        self._set_learning_rate(model_optimizer, batch_idx)
        kl_weight = self.kl_weight
        if "kl_weight" in self.loss_kwargs:
            self.loss_kwargs["kl_weight"] = kl_weight
        q, p = self.module(
            batch,
            compute_loss=False,
            get_inference_input_kwargs={"draw_unknown": False},
            generative_kwargs={"kl_weight": kl_weight if self.n_epochs_kl_warmup else None},
        )
        views = None
        if adversary_optimizer:
            views = self.module.adversary_views(q, p)
            self._train_adversary(adversary_optimizer[0], views, q, p, batch)
        with frozen(self.module.adversary):
            with self._watching(self._health, q, batch_idx, self.trainer.num_training_batches):
                alignment = self._alignment(batch_idx)
                losses = self.module.loss(batch, q, p, views=views, alignment=alignment, **self.loss_kwargs)
            self._step(model_optimizer, losses.loss, losses.extra_metrics, batch)
        self._find_kinds([q], batch_idx)
        self._totals.add(losses)
        return {"loss": losses.loss.detach()}  # for callbacks: nothing is optimised by Lightning

    def _done(self, batch_idx: int) -> float:
        """The part of the training that is done."""
        return (self.current_epoch + batch_idx / self.trainer.num_training_batches) / self.trainer.max_epochs

    def _set_learning_rate(self, optimizer, batch_idx: int) -> None:
        if self.settings.final_decay == 0:
            return
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * min(1.0, (1 - self._done(batch_idx)) / self.settings.final_decay)

    def _find_kinds(self, outputs: list[dict], batch_idx: int) -> None:
        """At the end of some epochs, let the module find kinds of cells: before it aligns the conditions, and then."""
        start = self.settings.alignment_start * self.trainer.max_epochs
        if self.current_epoch + 1 not in {round(part * start) for part in KINDS_AT}:
            return
        for q in outputs:
            cells = {"z": q["qz"].loc.detach()} | {name: q[name] for name in ("y", "known", "cell_type")}
            self._latest = [*self._latest, cells][-KINDS_FROM:]
        if batch_idx == self.trainer.num_training_batches - 1:
            self.module.find_kinds(self._latest)
            self._latest = []

    def _alignment(self, batch_idx: int) -> float:
        """The factor of the terms that align the conditions."""
        start = self.settings.alignment_start
        return 1.0 if start == 0 else min(max((self._done(batch_idx) - start) / ALIGNMENT_RAMP, 0.0), 1.0)

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        """The objective on one mini-batch, nothing updated."""
        q, p = self.module(batch, compute_loss=False, get_inference_input_kwargs={"draw_unknown": False})
        with self._watching(self._validation_health, q, batch_idx, self.trainer.num_val_batches[0]):
            losses = self.module.loss(batch, q, p, **self.loss_kwargs)
        self._validation_totals.add(losses)

    # Checkpoints ---------------------------------------------------------------------------------------------------

    def resume(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint when the training starts."""
        self.earlier_history, self._history = checkpoint[OURS]["history"], deepcopy(checkpoint[OURS]["history"])
        self._to_restore = checkpoint

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning does not save; in the middle of an epoch a training cannot go on."""
        history = {name: {key: list(values) for key, values in part.items()} for name, part in self._history.items()}
        if len(self._totals):  # the checkpoint is written before the epoch's end is told to the plan
            self._note(history, self._values(self._totals, self._health, "train"))
        n_epochs = self.current_epoch + 1 if self._n_batches == self.trainer.num_training_batches else None
        checkpoint[OURS] = {"random": random_state(), "history": history, "n_epochs": n_epochs}

    def on_train_start(self) -> None:
        """Watch for a training that diverges; take the optimisers' state from a checkpoint."""
        self._watch = Watch(self.module)
        if self._to_restore is not None:
            for optimizer, state in zip(self.trainer.optimizers, self._to_restore["optimizer_states"], strict=True):
                optimizer.load_state_dict(state)

    def on_train_epoch_start(self) -> None:
        """Take random numbers from where they were: the order of cells is drawn next."""
        if self._to_restore is not None:
            set_random_state(self._to_restore[OURS]["random"])
            self._to_restore = None

    # History -------------------------------------------------------------------------------------------------------

    def _watching(self, health: AdversaryHealth, q: dict, batch_idx: int, n_batches: int | float):
        """Look at the adversary's health in an epoch's last mini-batches: the very last may have few cells."""
        looks = batch_idx >= n_batches - LOOKED_AT
        return health.watching(self.module.adversary, q["y"], q["known"]) if looks else nullcontext()

    def on_train_epoch_end(self) -> None:
        """Log the epoch's means and the adversary's health, and warn, once, where it is ill."""
        self._watch.keep()
        self._health.warn(self.current_epoch)
        self._log_totals(self._totals, self._health, "train")

    def on_validation_epoch_end(self) -> None:
        """Log the epoch's means and the adversary's health."""
        self._log_totals(self._validation_totals, self._validation_health, "validation")

    def _log_totals(self, totals: EpochTotals, health: AdversaryHealth, mode: str) -> None:
        values, n = self._values(totals, health, mode), len(totals)
        totals.reset()
        health.pop_metrics()
        # One process has nothing to average: multiplied and divided by a weight, a value would be rounded.
        weight = n if self.use_sync_dist else 1
        for name, value in values.items():
            self.log(name, value, prog_bar=name in SHOWN, batch_size=weight, sync_dist=self.use_sync_dist)
        self._note(self._history, values)

    @staticmethod
    def _values(totals: EpochTotals, health: AdversaryHealth, mode: str) -> dict[str, torch.Tensor]:
        """The epoch's means and the adversary's health by their names in the history; nothing is reset."""
        means = totals.means()
        values = {f"{mode}_loss": means.pop("loss")}
        return values | {f"{name}_{mode}": value for name, value in (means | copy(health).pop_metrics()).items()}

    def _note(self, history: History, values: dict[str, torch.Tensor]) -> None:
        for name, value in values.items():
            noted = history.setdefault(name, {"epoch": [], "value": []})
            noted["epoch"].append(self.current_epoch)
            noted["value"].append(float(value))

    def _train_adversary(self, optimizer, views: dict[str, torch.Tensor], q: dict, p: dict, batch: dict) -> None:
        views = {place: view.detach() for place, view in views.items()}
        for _ in range(self.settings.n_adversary_steps):
            loss = adversary_loss(self.module.adversary_logits(views, p), q["y"], q["known"])
            self._step(optimizer, loss, {"adversary_loss": loss}, batch)

    def _step(self, optimizer, loss: torch.Tensor, terms: dict[str, torch.Tensor], batch: dict) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        # Not Lightning's own: it refuses fused optimisers under mixed precision.
        largest = math.inf if self.settings.gradient_clip is None else self.settings.gradient_clip
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if bool(norm > largest):  # most are not clipped, and need no pass over all of them
            torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
        rate = max(group["lr"] for group in optimizer.param_groups)
        self._watch.check(loss.detach(), norm, epoch=self.current_epoch, terms=terms, batch=batch, rate=rate)
        optimizer.step()


class EpochTotals:
    """Sums of an epoch's losses over cells.

    Kept here and logged once per epoch: logging every term at every step costs more than small networks do.
    """

    def __init__(self):
        self._sums: dict[str, torch.Tensor] = {}
        self._n = 0

    @torch.no_grad()
    def add(self, losses: LossOutput) -> None:
        """Add a mini-batch."""
        n = losses.n_obs_minibatch
        self._n += n
        sums = {
            "loss": losses.loss * n,
            "elbo": losses.reconstruction_loss_sum + losses.kl_local_sum,
            "reconstruction_loss": losses.reconstruction_loss_sum,
            "kl_local": losses.kl_local_sum,
        } | {name: value * n for name, value in losses.extra_metrics.items()}
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.detach()

    def means(self) -> dict[str, torch.Tensor]:
        """Means over the cells added since the last reset."""
        return {name: total / self._n for name, total in self._sums.items()}

    def reset(self) -> None:
        """Start anew."""
        self._sums, self._n = {}, 0

    def __len__(self) -> int:
        """Number of cells."""
        return self._n


@contextmanager
def frozen(module: torch.nn.Module | None):
    """Spare the gradients of a module's parameters while others train through it."""
    parameters = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
