"""Likelihoods p(x | .): from a decoder's outputs to a distribution of the data, and back to what one looks at."""

from abc import abstractmethod
from typing import ClassVar, cast

import torch
from scvi.distributions import NegativeBinomial, ZeroInflatedNegativeBinomial
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Normal

from discovr_sc.module.counts import LogCounts, NonZero, nb_log_prob, zinb_log_prob
from discovr_sc.module.sparse import SparseRows
from discovr_sc.settings import Settings

#: Counts per cell to which normalised expression is scaled before its logarithm is taken.
COUNTS_PER_CELL = 1e4

#: Normalised expression of a gene that falls by more than there is of it.
LEAST_EXPRESSION = 1e-9

#: Log-odds against an extra zero at the start of a training. Started at even odds, rare genes keep them, and their rho,
#: which the data then do not hold, wanders from cell to cell.
FEW_EXTRA_ZEROS = 4.0


class Averaged(Distribution):
    """A reconstruction averaged over conditions: it has a mean (for counts normalised expression), and no density."""

    def __init__(self, mean: Tensor):
        super().__init__(mean.shape, validate_args=False)
        self.scale = mean

    @property
    def mean(self) -> Tensor:
        """The average."""
        return self.scale

    def get_normalized(self, key: str) -> Tensor:
        """What scvi-tools' methods ask for."""
        return self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        """Not there."""
        raise ValueError(
            "This method has no likelihood of x given z alone; use kind='full', or compare "
            "get_reconstruction(kind='marginal') with the data."
        )

    def sample(self, sample_shape=()) -> Tensor:
        """Not there."""
        return self.log_prob(self.scale)


class Likelihood(nn.Module):
    """What all likelihoods share.

    Observations are of ``shape``, ``(n_genes,)`` or ``(channels, height, width)``. The settings have the noise scale of
    a Gaussian, and dispersion and zero inflation of counts; the number of batches is for ``dispersion="gene-batch"``.
    """

    #: Names of the decoder's outputs, each of the data's shape.
    heads: tuple[str, ...]
    #: Whether the data are counts with a library size.
    counts: ClassVar[bool] = False
    #: Whether the data lie in [0, 1].
    unit_interval: ClassVar[bool] = False

    def __init__(self, shape: tuple[int, ...], settings: Settings, n_batch: int = 1):
        super().__init__()
        self.feature_dims = tuple(range(-len(shape), 0))

    def encode(self, x: Tensor, observed: Tensor | NonZero | None = None) -> Tensor | SparseRows:
        """The data as the encoders see it; ``observed`` where :meth:`observe` has told it already."""
        return x

    @abstractmethod
    def forward(self, outputs: dict[str, Tensor], size_factor: Tensor | None, batch_index: Tensor) -> Distribution:
        """Distribution of the data from the decoder's outputs, each ``(..., n, *shape)``."""

    def log_prob(self, px: Distribution, x: Tensor) -> Tensor:
        """Log p(x | .), summed over features: ``(..., n)``."""
        return self.score(px, self.observe(x))

    def observe(self, x: Tensor) -> Tensor | NonZero:
        """What :meth:`score` needs of the data, ``(n, *shape)``: computed once where several decoders score them."""
        return x

    def score(self, px: Distribution, observed: Tensor | NonZero) -> Tensor:
        """Log p(x | .), summed over features: ``(..., n)``, for data that were observed."""
        return px.log_prob(cast(Tensor, observed)).sum(self.feature_dims)

    def to_additive(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The decoder's outputs on a scale on which a difference between two cells can be added to a third."""
        return outputs

    def from_additive(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of :meth:`to_additive`."""
        return outputs

    def reconstruction(self, px: Distribution) -> Tensor:
        """The reconstruction a user asks for: the mean, or for counts the normalised expression rho."""
        return px.mean

    def view(self, reconstruction: Tensor) -> Tensor:
        """The reconstruction as the adversary sees it."""
        return reconstruction


class GaussianLikelihood(Likelihood):
    """N(x; decoded mean, noise_scale^2), the scale fixed: a learned one lets z collapse."""

    heads = ("loc",)

    def __init__(self, shape, settings, n_batch=1):
        super().__init__(shape, settings, n_batch)
        if not settings.noise_scale > 0:
            raise ValueError(f"noise_scale is {settings.noise_scale!r}; give a standard deviation above 0.")
        self.noise_scale = settings.noise_scale

    def forward(self, outputs, size_factor, batch_index):
        """See :meth:`Likelihood.forward`."""
        loc = outputs["loc"]
        return Normal(loc, torch.full_like(loc, self.noise_scale), validate_args=False)


class ImageGaussianLikelihood(GaussianLikelihood):
    """Gaussian whose mean a sigmoid keeps in [0, 1], as that of an image is."""

    unit_interval = True

    def forward(self, outputs, size_factor, batch_index):
        """See :meth:`Likelihood.forward`."""
        return super().forward({"loc": outputs["loc"].sigmoid()}, size_factor, batch_index)


class BernoulliLikelihood(Likelihood):
    """Bernoulli with decoded logits, for values in [0, 1]."""

    heads = ("logits",)
    unit_interval = True

    def forward(self, outputs, size_factor, batch_index):
        """See :meth:`Likelihood.forward`."""
        return Bernoulli(logits=outputs["logits"], validate_args=False)


class NegativeBinomialLikelihood(Likelihood):
    """Negative binomial of mean size_factor * rho, with rho a softmax over genes as in scVI."""

    heads: tuple[str, ...] = ("rho_logits",)
    counts = True

    def __init__(self, shape, settings, n_batch=1):
        super().__init__(shape, settings, n_batch)
        self.dispersion = dispersion = settings.dispersion
        # All start at 1, near the median of what real cells teach. From random starts, as in scVI, some genes fall to a
        # theta near 0, where their rho may grow a thousandfold at no cost.
        if dispersion == "gene":
            self.log_theta = nn.Parameter(torch.zeros(1, *shape))
        elif dispersion == "gene-batch":
            self.log_theta = nn.Parameter(torch.zeros(n_batch, *shape))
        elif dispersion == "gene-cell":
            self.heads = (*type(self).heads, "log_theta")
        else:
            raise ValueError(f"dispersion is {dispersion!r}; choose 'gene', 'gene-batch' or 'gene-cell'.")

    def encode(self, x, observed=None):
        """Logarithms: counts span orders of magnitude. On a processor, of the counts that are not zero."""
        if not x.is_cpu or x.dim() != 2:
            return torch.log1p(x)
        nonzero = self.observe(x) if observed is None else observed
        return SparseRows.of(torch.log1p(nonzero.counts), nonzero.cells, nonzero.genes, x.shape)

    def forward(self, outputs, size_factor, batch_index):
        """See :meth:`Likelihood.forward`."""
        rho = torch.softmax(outputs["rho_logits"], dim=-1)
        return NegativeBinomial(mu=size_factor * rho, theta=self._theta(outputs, batch_index), scale=rho)

    def observe(self, x):
        """See :meth:`Likelihood.observe`: the counts that are not zero."""
        return NonZero.of(x)

    def score(self, px, observed):
        """See :meth:`Likelihood.score`."""
        return nb_log_prob(observed, px.mu, px.theta)

    def to_additive(self, outputs):
        """See :meth:`Likelihood.to_additive`: log counts per ten thousand, see :meth:`view`.

        On the scale of log rho, a gene that falls from next to nothing to less in two cells would fall as many times in
        a third, where it is plentiful.
        """
        rho = torch.softmax(outputs["rho_logits"], dim=-1)
        return outputs | {"rho_logits": self.view(rho)}

    def from_additive(self, outputs):
        """See :meth:`Likelihood.from_additive`."""
        rho = torch.expm1(outputs["rho_logits"]) / COUNTS_PER_CELL
        return outputs | {"rho_logits": rho.clamp(min=LEAST_EXPRESSION).log()}

    def reconstruction(self, px):
        """Normalised expression rho: fractions that sum to 1 over genes."""
        return px.scale

    def view(self, reconstruction):
        """Log counts per ten thousand: on raw rho, with values near 1e-4, an adversary is nearly blind."""
        return LogCounts.apply(reconstruction, COUNTS_PER_CELL)

    def _theta(self, outputs: dict[str, Tensor], batch_index: Tensor) -> Tensor:
        if self.dispersion == "gene-cell":
            return outputs["log_theta"].exp()
        if self.dispersion == "gene-batch":
            return self.log_theta.exp()[batch_index.squeeze(-1)]
        return self.log_theta.exp()


class ZeroInflatedNegativeBinomialLikelihood(NegativeBinomialLikelihood):
    """Negative binomial with extra zeros: a share for each gene, or decoded for each gene and cell as in scVI.

    Decoded shares can explain any zero, so that rho is free where a gene is silent.
    """

    def __init__(self, shape, settings, n_batch=1):
        super().__init__(shape, settings, n_batch)
        self.zero_inflation = zero_inflation = settings.zero_inflation
        if zero_inflation == "gene":
            self.zero_logits = nn.Parameter(torch.zeros(1, *shape))
        elif zero_inflation == "gene-cell":
            self.heads = (*self.heads, "zero_logits")
        else:
            raise ValueError(f"zero_inflation is {zero_inflation!r}; choose 'gene' or 'gene-cell'.")

    def forward(self, outputs, size_factor, batch_index):
        """See :meth:`Likelihood.forward`."""
        rho = torch.softmax(outputs["rho_logits"], dim=-1)
        zero_logits = self.zero_logits.expand_as(rho) if self.zero_inflation == "gene" else outputs["zero_logits"]
        return ZeroInflatedNegativeBinomial(
            mu=size_factor * rho,
            theta=self._theta(outputs, batch_index),
            zi_logits=zero_logits - FEW_EXTRA_ZEROS,
            scale=rho,
        )

    def score(self, px, observed):
        """See :meth:`Likelihood.score`."""
        return zinb_log_prob(observed, px.mu, px.theta, px.zi_logits)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": GaussianLikelihood,
    "image-gaussian": ImageGaussianLikelihood,
    "bernoulli": BernoulliLikelihood,
    "nb": NegativeBinomialLikelihood,
    "zinb": ZeroInflatedNegativeBinomialLikelihood,
}
