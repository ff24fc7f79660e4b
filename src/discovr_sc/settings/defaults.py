"""What modules and the training plan take, and the defaults.

What each setting means is told by :class:`~discovr_sc.DISCOVR` and :class:`~discovr_sc.train.AdversarialPlan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NamedTuple, Self

from discovr_sc.limits import check_limits
from discovr_sc.settings.paper import paper_weights
from discovr_sc.settings.weights import Weights, complete

LikelihoodName = Literal["zinb", "nb", "gaussian", "image-gaussian", "bernoulli"]
NetworkName = Literal["mlp", "cnn", "larsen"]
PriorName = Literal["condition-mean", "mapped", "learned", "standard", "separable"]

#: Squared bandwidths of the weight ``mmd``, relative to the mean squared distance of two draws from N(0, I).
BANDWIDTHS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

#: Most dimensions that w has by default, however many conditions there are.
MOST_LATENT_W = 10

#: Cells that a training shows the model by default, counted again in every epoch.
CELLS_TO_SEE = 500_000


def default_epochs(n_cells: int) -> int:
    """Passes over the cells that a training takes by default, from 10 to 400."""
    return min(max(round(CELLS_TO_SEE / n_cells), 10), 400)


@dataclass(frozen=True)
class Settings:
    """What every module is built from. A method with other defaults, or with more settings, has a subclass."""

    n_latent_z: int = 10
    n_latent_w: int | None = 2
    likelihood: LikelihoodName = "zinb"
    network: NetworkName = "mlp"
    n_hidden: int = 128
    n_layers: int = 1
    dropout_rate: float = 0.0
    use_batch_norm: bool = True
    classifier_batch_norm: bool = False
    channels: Sequence[int] | None = None
    dispersion: Literal["gene", "gene-batch", "gene-cell"] = "gene"
    zero_inflation: Literal["gene", "gene-cell"] = "gene-cell"
    noise_scale: float = 1.0
    prior: PriorName = "learned"
    adversary: Literal["reconstruction", "latent", "both"] = "latent"
    network_adversary: NetworkName | None = None
    n_hidden_adversary: int | None = None
    n_layers_adversary: int | None = None
    channels_adversary: Sequence[int] | None = None
    weights: Weights | Mapping[str, float] | None = None
    encode_covariates: bool = False

    #: Row of the paper's tables with the method's weights, which are the default; None where it has none.
    paper_row: ClassVar[str | None] = None
    #: Defaults that depend on the kind of data.
    data_defaults: ClassVar[dict[str, dict[str, Any]]] = {}

    def __post_init__(self):
        check_limits(self)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Settings by name; an unknown name is refused."""
        names = [field.name for field in fields(cls)]
        for name in (name for name in settings if name not in names):
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {names}."
            raise TypeError(f"{name!r} is not a setting of this model; {hint}")
        return cls(**settings)

    @property
    def of_counts(self) -> bool:
        """Whether the likelihood is one of counts; an unknown name is not, and the module refuses it."""
        return self.likelihood in ("zinb", "nb")

    def completed(self, n_conditions: int) -> Self:
        """The settings for a number of conditions, with all weights; the user may have given all, some or none.

        The default is the paper's: for counts that of its single-cell experiment, otherwise of its parametric model.
        """
        return replace(self, weights=complete(self.weights, self.default_weights()))

    def default_weights(self) -> Weights:
        """Weights where the user gives none."""
        experiment = "kang" if self.of_counts else "parametric"
        return Weights() if self.paper_row is None else paper_weights(self.paper_row, experiment)


class ByData(NamedTuple):
    """Defaults of DISCOVR that depend on the kind of data."""

    weights: Weights
    n_components_z: int
    center_w: bool


#: Counts have other defaults than vectors and images: their objective has hundreds of nats; cells are of many types.
COUNTS = ByData(
    Weights(rec=1.0, rec_z=0.1, kl_z=0.4, kl_w=0.5, adv=40.0, mmd=1000.0, shift=5.0, hsic=200.0),
    n_components_z=50,
    center_w=True,
)
VECTORS = IMAGES = ByData(Weights(rec=1.0, rec_z=0.5, kl_z=1.0, kl_w=1.0, adv=1.0), n_components_z=1, center_w=False)


@dataclass(frozen=True)
class DISCOVRSettings(Settings):
    """DISCOVR's."""

    n_latent_w: int | None = None
    zero_inflation: Literal["gene", "gene-cell"] = "gene"
    likelihood_z: LikelihoodName | None = None
    noise_scale_z: float | None = None
    narrow_z: int = 1
    mmd_bandwidths: Sequence[float] = BANDWIDTHS
    n_components_z: int | None = None
    center_w: bool | None = None
    adversary: Literal["reconstruction", "latent", "both"] = "both"
    adversary_trains: Literal["encoder", "encoder and decoder"] = "encoder and decoder"
    n_hidden_adversary: int | None = 128
    n_layers_adversary: int | None = 2
    data_defaults = {"counts": COUNTS._asdict(), "vectors": VECTORS._asdict()}

    def __post_init__(self):
        super().__post_init__()
        if len(self.mmd_bandwidths) == 0 or min(self.mmd_bandwidths) <= 0:
            raise ValueError(f"mmd_bandwidths={self.mmd_bandwidths}; give numbers above 0, such as {BANDWIDTHS}.")

    @property
    def by_data(self) -> ByData:
        """The defaults for the kind of data that the likelihood is of."""
        return COUNTS if self.of_counts else VECTORS

    def default_weights(self) -> Weights:
        """See :meth:`Settings.default_weights`."""
        return self.by_data.weights

    def completed(self, n_conditions: int) -> Self:
        """See :meth:`Settings.completed`; with sizes that suit the data and the number of conditions, too."""
        names = ("n_components_z", "center_w")
        left_out = {name: getattr(self.by_data, name) for name in names if getattr(self, name) is None}
        if self.n_latent_w is None:
            by_conditions = min(max(n_conditions, 2), MOST_LATENT_W) if self.of_counts else 2
            left_out["n_latent_w"] = self.n_latent_z if self.prior == "condition-mean" else by_conditions
        return replace(super().completed(n_conditions), **left_out)


@dataclass(frozen=True)
class CSVAESettings(Settings):
    """CSVAE's."""

    prior: PriorName = "separable"
    paper_row = "csvae"


@dataclass(frozen=True)
class HCSVAESettings(CSVAESettings):
    """HCSVAE's; ``n_latent_u`` is the size of its upper latent, by default that of z and w together."""

    n_latent_u: int | None = None
    paper_row = "hcsvae"


@dataclass(frozen=True)
class DIVASettings(Settings):
    """DIVA's."""

    paper_row = "diva"


@dataclass(frozen=True)
class CCVAESettings(Settings):
    """CCVAE's."""

    prior_z: Literal["learned", "standard"] = "learned"
    n_classifier_samples: int = 100
    paper_row = "ccvae"

    def __post_init__(self):
        super().__post_init__()
        if self.prior_z not in ("learned", "standard"):
            raise ValueError(f"prior_z={self.prior_z!r} is not known; choose 'learned' or 'standard'.")


@dataclass(frozen=True)
class CVAESettings(Settings):
    """CVAE's."""

    prior: PriorName = "standard"


@dataclass(frozen=True)
class PlanSettings:
    """What the training plan takes; :class:`~discovr_sc.train.AdversarialPlan` tells what each means."""

    optimizer: Literal["AdamW", "Adam"] = "AdamW"
    lr: float = 1e-3
    adversary_lr: float | None = None
    prior_lr: float | None = None
    n_adversary_steps: int = 1
    gradient_clip: float | None = 50.0
    weight_decay: float = 1e-6
    eps: float = 1e-8
    n_epochs_kl_warmup: int | None = None
    final_decay: float = 0.0
    alignment_start: float = 0.0

    def __post_init__(self):
        check_limits(self)
        if self.optimizer not in ("AdamW", "Adam"):
            raise ValueError(f"optimizer is {self.optimizer!r}; choose 'AdamW' or 'Adam'.")


#: What DISCOVR changes in the plan, for counts, and for vectors and images. The baselines change nothing.
COUNT_PLAN: dict[str, Any] = {"adversary_lr": 2e-3, "prior_lr": 1e-2, "final_decay": 0.8, "alignment_start": 0.25}
VECTOR_PLAN: dict[str, Any] = {"n_adversary_steps": 5, "adversary_lr": 2e-3, "final_decay": 0.5}
