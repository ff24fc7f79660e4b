"""What a Study is: an experiment as data."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from anndata import AnnData
from matplotlib.figure import Figure

import discovr_sc

#: Defaults that came after rows were made, at the value that stands for what was done before: rows made without them
#: stay current, until the default changes.
AS_BEFORE = {"adversary_trains": "encoder and decoder"}


class Row(NamedTuple):
    """One training of a study: what one process works on."""

    variant: str
    preset: str
    method: str
    seed: int


@dataclass(frozen=True)
class Preset:
    """How large to run a study.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from discovr_sc.experiments import STUDIES
    >>> replace(STUDIES["colored-mnist"].presets["laptop"], max_epochs=10).batch_size
    64
    """

    #: Observations to train on, a tenth of them for validation; None takes all that there are.
    n_train: int | None
    #: Observations to evaluate on; None takes all that there are.
    n_eval: int | None
    max_epochs: int
    #: Stop when the validation loss has not fallen for so many epochs.
    patience: int
    batch_size: int
    #: Observations behind the marginal likelihood, and importance samples of each.
    n_likelihood: int = 0
    n_mc_samples: int = 0
    #: Arguments of every model's constructor, and of the training plan, that this size needs (narrower networks).
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Data to train on and to score on, no observation in both, and the arguments of ``setup_anndata``."""

    train: AnnData
    evaluation: AnnData
    setup: Mapping[str, Any] = field(default_factory=lambda: {"condition_key": "condition", "tensor_key": "x"})


@dataclass(frozen=True)
class Method:
    """One row of a comparison."""

    #: Name of a model class of the package; None for a row of samples from the analytic posterior.
    model: str | None = None
    #: Row of the paper's loss-weight tables; None takes the model's own defaults.
    row: str | None = None
    #: Arguments of the model's constructor, settings of the training plan, and arguments of ``train`` (beyond the
    #: preset's), where they differ from those. With weights of its own, a row of DISCOVR has the plain adversary.
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments of ``setup_anndata``, beyond the task's.
    setup: Mapping[str, Any] = field(default_factory=dict)
    #: For what is no model of the package, or more than one: gives an object that ``evaluate`` understands.
    fit: Callable[[Task, Preset, int], Any] | None = None
    #: To be raised when the code behind a method changes what it computes: rows are known by their settings, and those
    #: of the old code would pass for done.
    version: int = 0

    @property
    def model_class(self) -> Any:
        """The class of its model."""
        return getattr(discovr_sc, str(self.model))

    @property
    def is_trained(self) -> bool:
        """Whether there is something to train; the analytic posterior has nothing."""
        return self.model is not None or self.fit is not None


@dataclass(frozen=True)
class Variant:
    """One setting of what a study sweeps."""

    #: Arguments of ``make_task``.
    data: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments of every model's constructor, weights of its objective and settings of the training plan, which replace
    #: a method's own.
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    #: Methods to run; all by default.
    methods: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Study:
    """An experiment: which data, methods, seeds and sizes, and how to score them.

    Examples
    --------
    >>> from discovr_sc.experiments import STUDIES
    >>> study = STUDIES["kang"]
    >>> study.file_stem, study.n_seeds, list(study.presets)
    ('kang', 5, ['full', 'laptop'])
    """

    name: str
    #: The paper's experiment, which gives architecture, weights and learning rate.
    experiment: str
    #: ``(Preset, seed, **data_settings) -> Task``.
    make_task: Callable[..., Task]
    #: Rows, by name.
    methods: Mapping[str, Method]
    #: ``(Run) -> {metric: value}``.
    evaluate: Callable[..., dict[str, float]]
    #: Sizes, by name; the first is the default.
    presets: Mapping[str, Preset]
    #: What is swept, by name (``flip=0.3``).
    variants: Mapping[str, Variant] = field(default_factory=lambda: {"": Variant()})
    #: Metrics of the printed table.
    headline: tuple[str, ...] = ()
    #: ``(Run) -> {name: array}``: what the figures of the first seed are drawn from.
    sketch: Callable[..., dict[str, np.ndarray]] | None = None
    #: ``(Results, preset) -> {figure name: Figure}``.
    draw: Callable[..., dict[str, Figure]] | None = None
    #: Whether the figures show data that may not be passed on: the report then names their files only.
    private_figures: bool = False
    #: ``(Results) -> str``: what follows from the results, for the end of the report.
    conclude: Callable[..., str] | None = None
    n_seeds: int = 10
    #: Searches use seeds, and so data, that the reported runs do not.
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
        if defaults := self.plain_settings(method):
            settings["defaults"] = defaults
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=_described).encode()).hexdigest()[:12]

    def all_settings(self) -> dict[str, Any]:
        """Those behind all rows."""
        groups: dict[str, Mapping[str, Any]] = {"presets": self.presets, "methods": self.methods}
        groups["variants"] = self.variants
        changed = {group: {name: changed_fields(item) for name, item in of.items()} for group, of in groups.items()}
        defaults = {name: found for name in self.methods if (found := self.plain_settings(name))}
        return {"experiment": self.experiment, **changed, "defaults": defaults}

    def plain_settings(self, method: str) -> dict[str, Any]:
        """The defaults that a method takes from its model class; none where the paper's table gives its settings."""
        chosen = self.methods[method]
        if chosen.model is None or chosen.row is not None:
            return {}
        defaults = chosen.model_class.default_settings()
        constructor = defaults["constructor"].items()
        return defaults | {"constructor": {k: v for k, v in constructor if k not in AS_BEFORE or v != AS_BEFORE[k]}}


def _described(value: Any) -> str:
    """What stands for a value in a fingerprint; weights that came later are left out while they are 0."""
    return repr(value).replace(", shift=0.0", "").replace(", hsic=0.0", "")


def changed_fields(settings: Preset | Method | Variant) -> dict[str, Any]:
    """Fields that differ from their defaults: a new field leaves the fingerprints of old rows alone."""
    changed = {}
    for item in fields(settings):
        value = getattr(settings, item.name)
        default = item.default if item.default_factory is MISSING else item.default_factory()
        if value != default:
            changed[item.name] = value.__qualname__ if callable(value) else value
    return changed
