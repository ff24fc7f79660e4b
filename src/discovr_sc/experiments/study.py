"""What a Study is: an experiment as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from anndata import AnnData
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Preset:
    """How large to run a study.

    Parameters
    ----------
    n_train, n_eval
        Observations to train on (a tenth of them for validation) and to evaluate on, drawn independently.
    max_epochs, patience
        Stop when the validation loss has not fallen for ``patience`` epochs, and at the latest after ``max_epochs``.
    batch_size
        Observations per step.
    n_likelihood, n_mc_samples
        Observations, and importance samples of each, behind the marginal likelihood.
    """

    n_train: int
    n_eval: int
    max_epochs: int
    patience: int
    batch_size: int
    n_likelihood: int
    n_mc_samples: int


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Parameters
    ----------
    model
        Name of a model class of the package; None for a row of samples from the analytic posterior.
    row
        Row of the paper's loss-weight tables.
    settings
        Arguments of the model's constructor that differ from the paper's.
    plan
        Settings of the training plan that differ from the paper's.
    """

    model: str | None
    row: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """An experiment: which data, methods, seeds and sizes, and how to score them.

    Parameters
    ----------
    name
        Of the study, and of its files (with underscores).
    experiment
        The paper's experiment, which gives architecture, weights and learning rate.
    make_data
        ``(n, seed, **data_settings) -> AnnData`` with the tensor ``x`` and the column ``condition``.
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
        ``({(variant, method): arrays}) -> {figure name: Figure}``.
    conclude
        ``(Results) -> str``: what follows from the results, for the end of the report.
    n_seeds
        Default number of seeds.
    first_seed
        Searches use seeds, and so data, that the reported runs do not.
    """

    name: str
    experiment: str
    make_data: Callable[..., AnnData]
    methods: Mapping[str, Method]
    evaluate: Callable[..., dict[str, float]]
    presets: Mapping[str, Preset]
    variants: Mapping[str, Variant]
    headline: tuple[str, ...]
    sketch: Callable[..., dict[str, np.ndarray]] | None = None
    draw: Callable[..., dict[str, Figure]] | None = None
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
            "method": asdict(self.methods[method]),
            "variant": asdict(self.variants[variant]),
            "preset": asdict(self.presets[preset]),
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Variant:
    """One setting of what a study sweeps.

    Parameters
    ----------
    data
        Arguments of ``make_data``.
    settings
        Arguments of every model's constructor.
    weights
        Weights of the objective that replace a method's own.
    methods
        Methods to run; all by default.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    methods: tuple[str, ...] | None = None
