"""Networks: families that build encoders, decoders and classifiers for one kind of data.

Every network takes ``(inputs, *cats, cont=None)``: category codes ``(n, 1)`` and continuous covariates
``(n, n_cont)`` enter each fully connected layer, as in scvi-tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scvi.nn import FCLayers
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import softplus


class Dense(FCLayers):
    """scvi-tools' fully connected layers, which copy their input even where no covariates join it; these do not."""

    def forward(self, x: Tensor, *cats: Tensor, cont: Tensor | None = None) -> Tensor:
        """Features ``(..., n, n_out)``."""
        if self.n_cov > 0 or x.dim() > 2:
            return super().forward(x, *cats, cont=cont)
        for layers in self.fc_layers:
            for layer in layers:
                x = x if layer is None else layer(x)
        return x


class GaussianEncoder(nn.Module):
    """Features of the input, then mean and scale of a diagonal Gaussian."""

    def __init__(self, features: nn.Module, n_features: int, n_latent: int):
        super().__init__()
        self.features = features
        self.loc = nn.Linear(n_features, n_latent)
        self.raw_scale = nn.Linear(n_features, n_latent)

    def forward(self, x: Tensor, *cats: Tensor, cont: Tensor | None = None) -> Normal:
        """q(. | x), of shape ``(n, n_latent)``."""
        h = self.features(x, *cats, cont=cont)
        return Normal(self.loc(h), softplus(self.raw_scale(h)) + 1e-4, validate_args=False)


class Decoder(nn.Module):
    """A body shared by heads, one for each parameter of the likelihood."""

    def __init__(self, body: nn.Module, heads: dict[str, nn.Module]):
        super().__init__()
        self.body = body
        self.heads = nn.ModuleDict(heads)

    def forward(self, latent: Tensor, *cats: Tensor, cont: Tensor | None = None) -> dict[str, Tensor]:
        """Outputs by head, each ``(..., n, *shape)``, for latents ``(..., n, n_latent)``."""
        h = self.body(latent, *cats, cont=cont)
        return {name: head(h) for name, head in self.heads.items()}


class Classifier(nn.Module):
    """Logits of the condition."""

    def __init__(self, features: nn.Module, n_features: int, n_classes: int):
        super().__init__()
        self.features = features
        self.logits = nn.Linear(n_features, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, n_classes)``."""
        return self.logits(self.features(x))


class MLP:
    """The fully connected family, for vectors.

    Parameters
    ----------
    shape
        Shape of one observation.
    n_hidden
        Width of the hidden layers.
    n_layers
        Number of hidden layers.
    dropout_rate
        Dropout in encoders; decoders and classifiers have none.
    use_batch_norm
        Batch normalisation in encoders and decoders; classifiers have none.
    """

    def __init__(
        self, shape: tuple[int, ...], *, n_hidden: int, n_layers: int, dropout_rate: float, use_batch_norm: bool
    ):
        self.shape = shape
        self.n_hidden = n_hidden
        self.n_layers = n_layers
        self.dropout_rate = dropout_rate
        self.use_batch_norm = use_batch_norm
        self.check_shape()

    def check_shape(self) -> None:
        """Raise where the family cannot take the data's shape."""
        if len(self.shape) != 1:
            raise ValueError(
                f"network='mlp' takes vectors, but one observation has shape {self.shape}; "
                "use network='cnn' for images (channels, height, width), or flatten the array."
            )

    def encoder(self, n_latent: int, n_cats: Sequence[int] = (), n_cont: int = 0) -> GaussianEncoder:
        """Data to latent."""
        return GaussianEncoder(self._data_features(n_cats, n_cont), self.n_hidden, n_latent)

    def latent_encoder(self, n_in: int, n_latent: int, n_cats: Sequence[int] = (), n_cont: int = 0) -> GaussianEncoder:
        """Latent to latent."""
        return GaussianEncoder(self._dense(n_in, n_cats, n_cont, self.dropout_rate), self.n_hidden, n_latent)

    def latent_decoder(self, n_latent: int, n_out: int) -> GaussianEncoder:
        """Latent to the Gaussian of another latent that hangs on it."""
        return GaussianEncoder(self._dense(n_latent, (), 0, dropout_rate=0.0), self.n_hidden, n_out)

    def decoder(self, n_latent: int, heads: Sequence[str], n_cats: Sequence[int] = (), n_cont: int = 0) -> Decoder:
        """Latent to the parameters of a likelihood of the data."""
        body = self._dense(n_latent, n_cats, n_cont, dropout_rate=0.0)
        return Decoder(body, {name: nn.Linear(self.n_hidden, self.shape[0]) for name in heads})

    def data_classifier(self, n_classes: int) -> Classifier:
        """Data (a reconstruction) to class logits."""
        return self._plain_classifier(self.shape[0], n_classes)

    def latent_classifier(self, n_in: int, n_classes: int) -> Classifier:
        """Latent to class logits."""
        return self._plain_classifier(n_in, n_classes)

    def _plain_classifier(self, n_in: int, n_classes: int) -> Classifier:
        return Classifier(self._plain_dense(n_in), self.n_hidden, n_classes)

    def _plain_dense(self, n_in: int) -> Dense:
        # A classifier must not depend on the batch it happens to see: no batch norm, no dropout. (The paper's latent
        # classifier for coloured MNIST has batch norm.)
        return Dense(
            n_in,
            self.n_hidden,
            n_layers=self.n_layers,
            n_hidden=self.n_hidden,
            dropout_rate=0.0,
            use_batch_norm=False,
        )

    def _data_features(self, n_cats: Sequence[int], n_cont: int) -> nn.Module:
        return self._dense(self.shape[0], n_cats, n_cont, self.dropout_rate)

    def _dense(self, n_in: int, n_cats: Sequence[int], n_cont: int, dropout_rate: float) -> Dense:
        return Dense(
            n_in,
            self.n_hidden,
            n_cat_list=n_cats,
            n_cont=n_cont,
            n_layers=self.n_layers,
            n_hidden=self.n_hidden,
            dropout_rate=dropout_rate,
            use_batch_norm=self.use_batch_norm,
        )


class CNN(MLP):
    """The convolutional family, for images: the paper's networks for coloured MNIST, widths settable.

    Four 3 x 3 convolutions, three of them followed by a halving (28 -> 14 -> 7 -> 3), then the fully connected
    layers; the decoder runs the same sizes upwards.
    """

    channels = (32, 32, 64, 128)

    def check_shape(self) -> None:
        """Raise where the family cannot take the data's shape."""
        if len(self.shape) != 3 or min(self.shape[1:]) < 8:
            raise ValueError(
                f"network='cnn' takes images (channels, height, width) of at least 8 x 8, but one observation has "
                f"shape {self.shape}; use network='mlp' for vectors, or reshape the array."
            )

    def decoder(self, n_latent: int, heads: Sequence[str], n_cats: Sequence[int] = (), n_cont: int = 0) -> Decoder:
        """Latent to the parameters of a likelihood of the data."""
        body = ImageBody(
            self._dense(n_latent, n_cats, n_cont, dropout_rate=0.0),
            self.n_hidden,
            self._sizes(),
            self.channels,
            self.use_batch_norm,
        )
        return Decoder(body, {name: ImageHead(self.channels[0], self.shape[0]) for name in heads})

    def data_classifier(self, n_classes: int) -> Classifier:
        """Data (a reconstruction) to class logits."""
        convolutions = image_convolutions(self.shape[0], self.channels, use_batch_norm=False)
        features = ImageFeatures(convolutions, self._plain_dense(self._n_flat()))
        return Classifier(features, self.n_hidden, n_classes)

    def _data_features(self, n_cats: Sequence[int], n_cont: int) -> nn.Module:
        dense = self._dense(self._n_flat(), n_cats, n_cont, self.dropout_rate)
        return ImageFeatures(image_convolutions(self.shape[0], self.channels, self.use_batch_norm), dense)

    def _sizes(self) -> list[tuple[int, int]]:
        """Heights and widths after 0, 1, 2 and 3 halvings."""
        return [(self.shape[1] // 2**i, self.shape[2] // 2**i) for i in range(4)]

    def _n_flat(self) -> int:
        return self.channels[-1] * math.prod(self._sizes()[-1])


def convolution(n_in: int, n_out: int, use_batch_norm: bool) -> list[nn.Module]:
    """A 3 x 3 convolution that keeps the image's size, normalised and activated."""
    return [
        nn.Conv2d(n_in, n_out, 3, padding=1),
        *([nn.BatchNorm2d(n_out)] if use_batch_norm else []),
        nn.ReLU(),
    ]


def image_convolutions(n_channels: int, channels: Sequence[int], use_batch_norm: bool) -> nn.Sequential:
    """Convolutions that halve the image three times, flattened."""
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(zip((n_channels, *channels), channels, strict=False)):
        layers += convolution(n_in, n_out, use_batch_norm)
        if i > 0:
            layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, nn.Flatten())


class ImageFeatures(nn.Module):
    """Convolutions, then fully connected layers where the covariates enter."""

    def __init__(self, convolutions: nn.Module, dense: nn.Module):
        super().__init__()
        self.convolutions = convolutions
        self.dense = dense

    def forward(self, x: Tensor, *cats: Tensor, cont: Tensor | None = None) -> Tensor:
        """Features ``(n, n_hidden)`` of images ``(n, channels, height, width)``."""
        return self.dense(self.convolutions(x), *cats, cont=cont)


class ImageBody(nn.Module):
    """Fully connected layers where the covariates enter, then convolutions that grow to the image's size."""

    def __init__(
        self,
        dense: nn.Module,
        n_hidden: int,
        sizes: list[tuple[int, int]],
        channels: Sequence[int],
        use_batch_norm: bool,
    ):
        super().__init__()
        self.dense = dense
        self.start = (channels[-1], *sizes[-1])
        self.to_image = nn.Linear(n_hidden, math.prod(self.start))
        layers: list[nn.Module] = []
        for n_in, n_out, size in zip(channels[:0:-1], channels[-2::-1], sizes[-2::-1], strict=True):
            layers += [nn.Upsample(size), *convolution(n_in, n_out, use_batch_norm)]
        self.convolutions = nn.Sequential(*layers)

    def forward(self, latent: Tensor, *cats: Tensor, cont: Tensor | None = None) -> Tensor:
        """Feature maps ``(..., n, channels, height, width)`` for latents ``(..., n, n_latent)``."""
        h = self.to_image(self.dense(latent, *cats, cont=cont))
        images = self.convolutions(h.reshape(-1, *self.start))
        return images.reshape(*latent.shape[:-1], *images.shape[1:])


class ImageHead(nn.Module):
    """Feature maps to one parameter per pixel and channel."""

    def __init__(self, n_in: int, n_channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        """``(..., n, n_channels, height, width)``."""
        images = self.convolution(h.flatten(end_dim=-4))
        return images.reshape(*h.shape[:-3], *images.shape[1:])


class Adversary(nn.Module):
    """g(y | .): one classifier for each place at which the adversary looks."""

    def __init__(self, classifiers: dict[str, Classifier]):
        super().__init__()
        self.classifiers = nn.ModuleDict(classifiers)

    def forward(self, views: dict[str, Tensor]) -> list[Tensor]:
        """Logits ``(n, K)`` of every classifier, from the view of the same name."""
        return [classifier(views[name]) for name, classifier in self.classifiers.items()]


NETWORKS: dict[str, type[MLP]] = {"mlp": MLP, "cnn": CNN}

#: Where the adversary looks, by the name of the setting.
ADVERSARIES: dict[str, tuple[str, ...]] = {
    "reconstruction": ("reconstruction",),
    "latent": ("latent",),
    "both": ("latent", "reconstruction"),
}
