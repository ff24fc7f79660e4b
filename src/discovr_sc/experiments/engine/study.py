"""What a Study is: an experiment as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np
from anndata import AnnData
from matplotlib.figure import Figure

import discovr_sc


@dataclass(frozen=True)
class Preset:
    """How large to run a study.

    Parameters
    ----------
    n_train, n_eval
        Observations to train on (a tenth of them for validation) and to evaluate on; None takes all that there are.
    max_epochs, patience
        Stop when the validation loss has not fallen for ``patience`` epochs, and at the latest after ``max_epochs``.
    batch_size
        Observations per step.
    n_likelihood, n_mc_samples
        Observations, and importance samples of each, behind the marginal likelihood.
    settings, plan
        Arguments of every model's constructor, and of the training plan, that this size needs (narrower networks).

    Examples
    --------
    >>> from dataclasses import replace
    >>> from discovr_sc.experiments import STUDIES
    >>> replace(STUDIES["colored-mnist"].presets["laptop"], max_epochs=10).batch_size
    64
    """

    n_train: int | None
    n_eval: int | None
    max_epochs: int
    patience: int
    batch_size: int
    n_likelihood: int = 0
    n_mc_samples: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Data to train on and to score on.

    Parameters
    ----------
    train, evaluation
        No observation is in both.
    setup
        Arguments of ``setup_anndata``.
    """

    train: AnnData
    evaluation: AnnData
    setup: Mapping[str, Any] = field(default_factory=lambda: {"condition_key": "condition", "tensor_key": "x"})


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Parameters
    ----------
    model
        Name of a model class of the package; None for a row of samples from the analytic posterior.
    row
        Row of the paper's loss-weight tables; None takes the model's own defaults.
    settings
        Arguments of the model's constructor that differ from those.
    plan
        Settings of the training plan that differ from those.
    train
        Arguments of ``train`` that differ from the preset's.
    fit
        For what is no model of the package, or more than one: ``(Task, Preset, seed) -> `` an object that ``evaluate``
        understands.
    version
        To be raised when the code behind a method changes what it computes: rows are known by their settings, and those
        of the old code would pass for done.

    Examples
    --------
    >>> from discovr_sc.experiments import Method
    >>> Method("CSVAE", "csvae", settings={"n_latent_w": 4}).settings
    {'n_latent_w': 4}
    """

    model: str | None = None
    row: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    fit: Callable[[Task, Preset, int], Any] | None = None
    version: int = 0

    @property
    def is_trained(self) -> bool:
        """Whether there is something to train; the analytic posterior has nothing."""
        return self.model is not None or self.fit is not None


@dataclass(frozen=True)
class Study:
    """An experiment: which data, methods, seeds and sizes, and how to score them.

    Parameters
    ----------
    name
        Of the study, and of its files (with underscores).
    experiment
        The paper's experiment, which gives architecture, weights and learning rate.
    make_task
        ``(Preset, seed, **data_settings) -> Task``.
    methods
        Rows, by name.
    evaluate
        ``(Run) -> {metric: value}``.
    presets
        Sizes, by name; the first is the default.
    variants
        What is swept: settings of the data and of the methods, by name (``flip=0.3``); the empty name where nothing is.
    headline
        Metrics of the printed table.
    sketch
        ``(Run) -> {name: array}``: what the figures of the first seed are drawn from.
    draw
        ``(Results, preset) -> {figure name: Figure}``.
    private_figures
        Whether the figures show data that may not be passed on: the report then names their files, and does not show
        them.
    conclude
        ``(Results) -> str``: what follows from the results, for the end of the report.
    n_seeds
        Default number of seeds.
    first_seed
        Searches use seeds, and so data, that the reported runs do not.

    Examples
    --------
    >>> from discovr_sc.experiments import STUDIES
    >>> study = STUDIES["kang"]
    >>> study.file_stem, study.n_seeds, list(study.presets)
    ('kang', 5, ['full', 'laptop'])
    """

    name: str
    experiment: str
    make_task: Callable[..., Task]
    methods: Mapping[str, Method]
    evaluate: Callable[..., dict[str, float]]
    presets: Mapping[str, Preset]
    variants: Mapping[str, Variant]
    headline: tuple[str, ...]
    sketch: Callable[..., dict[str, np.ndarray]] | None = None
    draw: Callable[..., dict[str, Figure]] | None = None
    private_figures: bool = False
    conclude: Callable[..., str] | None = None
    n_seeds: int = 10
    first_seed: int = 0

    @property
    def file_stem(self) -> str:
        """Name of the study's files."""
        return self.name.replace("-", "_")

    def fingerprint(self, method: str, variant: str, preset: str) -> str:
        """A short hash of all settings behind a row: rows of other settings are not taken for done."""
        settings = {
            "experiment": self.experiment,
            "method": changed_fields(self.methods[method]),
            "variant": changed_fields(self.variants[variant]),
            "preset": changed_fields(self.presets[preset]),
        }
        defaults = self.plain_settings(method)
        if defaults:
            settings["defaults"] = defaults
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()[:12]

    def plain_settings(self, method: str) -> dict[str, Any]:
        """The defaults that a method takes from its model class; none where the paper's table gives its settings."""
        model, row = self.methods[method].model, self.methods[method].row
        return {} if model is None or row is not None else getattr(discovr_sc, model)._plain_settings()


@dataclass(frozen=True)
class Variant:
    """One setting of what a study sweeps.

    Parameters
    ----------
    data
        Arguments of ``make_task``.
    settings
        Arguments of every model's constructor.
    weights
        Weights of the objective that replace a method's own.
    plan
        Settings of the training plan that replace a method's own.
    methods
        Methods to run; all by default.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] | None = None


def changed_fields(settings: Preset | Method | Variant) -> dict[str, Any]:
    """Fields that differ from their defaults: a new field leaves the fingerprints of old rows alone."""
    changed = {}
    for item in fields(settings):
        value = getattr(settings, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if value != default:
            changed[item.name] = value.__qualname__ if callable(value) else value
    return changed
