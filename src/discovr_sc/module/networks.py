"""Networks: families that build encoders, decoders and classifiers for one kind of data.

Every network takes ``(inputs, *cats, cont=None)``: category codes ``(n, 1)`` and continuous covariates
``(n, n_cont)`` enter each fully connected layer, as in scvi-tools.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from scvi.nn import FCLayers
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import one_hot, softplus

from discovr_sc.module.image_layers import (
    ImageBody,
    ImageFeatures,
    ImageHead,
    activated,
    convolution,
    image_convolutions,
)
from discovr_sc.module.sparse import SparseLinear, SparseRows
from discovr_sc.settings import Settings

T = TypeVar("T")


class Dense(FCLayers):
    """scvi-tools' fully connected layers, whose input may be sparse rows, and is copied only to join covariates."""

    def forward(self, x: Tensor | SparseRows, *cats: Tensor, cont: Tensor | None = None) -> Tensor:
        """Features ``(..., n, n_out)``."""
        if isinstance(x, Tensor) and x.dim() > 2:
            return super().forward(x, *cats, cont=cont)
        covariates = [] if cont is None else [cont]
        covariates += [one_hot(cat.squeeze(-1), n) for n, cat in zip(self.n_cat_list, cats, strict=False) if n > 1]
        h: Any = x
        for i, layers in enumerate(self.fc_layers):
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    h = self._linear(layer, h, covariates if self.inject_into_layer(i) else [])
                elif layer is not None:
                    h = layer(h)
        return h

    def _linear(self, layer: nn.Linear, x: Tensor | SparseRows, covariates: list[Tensor]) -> Tensor:
        if isinstance(x, SparseRows):
            none = layer.weight.new_zeros(x.shape[0], 0)
            return SparseLinear.apply(layer.weight, layer.bias, x, torch.cat([none, *covariates], dim=-1))
        return layer(torch.cat([x, *covariates], dim=-1) if covariates else x)


class GaussianEncoder(nn.Module):
    """Features of the input, then mean and scale of a diagonal Gaussian."""

    def __init__(self, features: nn.Module, n_features: int, n_latent: int):
        super().__init__()
        self.features = features
        self.loc = nn.Linear(n_features, n_latent)
        self.raw_scale = nn.Linear(n_features, n_latent)

    def forward(self, x: Tensor | SparseRows, *cats: Tensor, cont: Tensor | None = None) -> Normal:
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


class FlatClassifier(Classifier):
    """Logits of the condition, from arrays of any shape."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, n_classes)``."""
        return super().forward(x.flatten(start_dim=1))


class MLP:
    """The fully connected family, for vectors.

    Parameters
    ----------
    shape
        Shape of one observation.
    settings
        Sizes, dropout (in encoders; decoders and classifiers have none) and normalisation. ``channels`` are the widths
        of the convolutions, where the family has some; its own by default.
    """

    #: Widths of the convolutions by default.
    default_channels: ClassVar[tuple[int, ...]] = ()

    def __init__(self, shape: tuple[int, ...], settings: Settings):
        self.shape = shape
        self.n_hidden = settings.n_hidden
        self.n_layers = settings.n_layers
        self.dropout_rate = settings.dropout_rate
        self.use_batch_norm = settings.use_batch_norm
        self.classifier_batch_norm = settings.classifier_batch_norm
        channels = settings.channels
        self.channels = self.default_channels if channels is None else tuple(channels)
        if len(self.channels) != len(self.default_channels) or min(self.channels, default=1) < 1:
            raise ValueError(
                f"channels is {channels!r}, but this network has {len(self.default_channels)} convolutions; give as "
                f"many widths of at least 1, or None for {self.default_channels}."
            )
        self.check_shape()

    def narrowed(self, factor: int) -> MLP:
        """The same family with convolutions that many times narrower."""
        other = copy.copy(self)
        other.channels = tuple(max(width // factor, 1) for width in self.channels)
        return other

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
        """Data (a reconstruction) to logits."""
        return self.latent_classifier(self.shape[0], n_classes)

    def latent_classifier(self, n_in: int, n_classes: int) -> Classifier:
        """Latent to logits."""
        return Classifier(self._plain_dense(n_in), self.n_hidden, n_classes)

    def _plain_dense(self, n_in: int) -> Dense:
        # What a classifier says of a cell should not hang on the batch it happens to be in: no dropout, and batch norm
        # only where asked for, as in the paper's latent classifier for coloured MNIST.
        return self._dense(n_in, (), 0, dropout_rate=0.0, use_batch_norm=self.classifier_batch_norm)

    def _data_features(self, n_cats: Sequence[int], n_cont: int) -> nn.Module:
        return self._dense(self.shape[0], n_cats, n_cont, self.dropout_rate)

    def _dense(
        self, n_in: int, n_cats: Sequence[int], n_cont: int, dropout_rate: float, use_batch_norm: bool | None = None
    ) -> Dense:
        return Dense(
            n_in,
            self.n_hidden,
            n_cat_list=n_cats,
            n_cont=n_cont,
            n_layers=self.n_layers,
            n_hidden=self.n_hidden,
            dropout_rate=dropout_rate,
            use_batch_norm=self.use_batch_norm if use_batch_norm is None else use_batch_norm,
        )


class FlatMLP(MLP):
    """The fully connected family on flattened arrays: for an image adversary that costs little."""

    def check_shape(self) -> None:
        """Take any shape."""

    def data_classifier(self, n_classes: int) -> Classifier:
        """Data (a reconstruction) to logits."""
        return FlatClassifier(self._plain_dense(math.prod(self.shape)), self.n_hidden, n_classes)


class ImageFamily(MLP):
    """What the convolutional families share: convolutions down to ``smallest``, then the fully connected layers."""

    @property
    def smallest(self) -> tuple[int, int, int]:
        """Shape of the feature maps after three halvings."""
        return self.channels[-1], self.shape[1] // 8, self.shape[2] // 8

    @abstractmethod
    def convolutions(self, use_batch_norm: bool) -> nn.Sequential:
        """From images to the smallest feature maps, flattened."""

    def data_classifier(self, n_classes: int) -> Classifier:
        """Data (a reconstruction) to logits."""
        features = ImageFeatures(self.convolutions(use_batch_norm=False), self._plain_dense(math.prod(self.smallest)))
        return Classifier(features, self.n_hidden, n_classes)

    def _data_features(self, n_cats: Sequence[int], n_cont: int) -> nn.Module:
        dense = self._dense(math.prod(self.smallest), n_cats, n_cont, self.dropout_rate)
        return ImageFeatures(self.convolutions(self.use_batch_norm), dense)


class CNN(ImageFamily):
    """The convolutional family, for images: the paper's networks for coloured MNIST, widths settable.

    Four 3 x 3 convolutions, three of them followed by a halving (28 -> 14 -> 7 -> 3), then the fully connected
    layers; the decoder runs the same sizes upwards.
    """

    default_channels = (32, 32, 64, 128)

    def check_shape(self) -> None:
        """Raise where the family cannot take the data's shape."""
        if len(self.shape) != 3 or min(self.shape[1:]) < 8:
            raise ValueError(
                f"network='cnn' takes images (channels, height, width) of at least 8 x 8, but one observation has "
                f"shape {self.shape}; use network='mlp' for vectors, or reshape the array."
            )

    def convolutions(self, use_batch_norm: bool) -> nn.Sequential:
        """See :meth:`ImageFamily.convolutions`."""
        return image_convolutions(self.shape[0], self.channels, use_batch_norm)

    def decoder(self, n_latent: int, heads: Sequence[str], n_cats: Sequence[int] = (), n_cont: int = 0) -> Decoder:
        """Latent to the parameters of a likelihood of the data."""
        dense = self._dense(n_latent, n_cats, n_cont, dropout_rate=0.0)
        to_image = nn.Linear(self.n_hidden, math.prod(self.smallest))
        sizes = [(self.shape[1] // 2**i, self.shape[2] // 2**i) for i in (2, 1, 0)]  # after so many halvings
        layers: list[nn.Module] = []
        for n_in, n_out, size in zip(self.channels[:0:-1], self.channels[-2::-1], sizes, strict=True):
            layers += [nn.Upsample(size), *convolution(n_in, n_out, self.use_batch_norm)]
        body = ImageBody(dense, self.smallest, layers, to_image)
        return Decoder(body, {name: ImageHead(self.channels[0], self.shape[0]) for name in heads})


class LarsenCNN(ImageFamily):
    """The convolutional family of Larsen et al. 2016 for 64 x 64 faces, widths settable.

    Three 5 x 5 convolutions of stride 2 (64 -> 32 -> 16 -> 8), then the fully connected layers; the decoder goes from
    the latent to 8 x 8 feature maps in one layer, and up by transposed convolutions of stride 2.
    """

    default_channels = (64, 128, 256)

    def check_shape(self) -> None:
        """Raise where the family cannot take the data's shape."""
        if len(self.shape) != 3 or any(length % 8 or length == 0 for length in self.shape[1:]):
            raise ValueError(
                "network='larsen' takes images (channels, height, width) whose height and width are multiples of 8, "
                f"but one observation has shape {self.shape}; resize the images, or use network='cnn'."
            )

    def convolutions(self, use_batch_norm: bool) -> nn.Sequential:
        """See :meth:`ImageFamily.convolutions`."""
        layers: list[nn.Module] = []
        for n_in, n_out in zip((self.shape[0], *self.channels), self.channels, strict=False):
            layers += activated(nn.Conv2d(n_in, n_out, 5, stride=2, padding=2), use_batch_norm)
        return nn.Sequential(*layers, nn.Flatten())

    def decoder(self, n_latent: int, heads: Sequence[str], n_cats: Sequence[int] = (), n_cont: int = 0) -> Decoder:
        """Latent to the parameters of a likelihood of the data."""
        first, second, third = self.channels
        last = max(first // 2, 1)
        n_flat = math.prod(self.smallest)
        dense = FCLayers(
            n_latent,
            n_flat,
            n_cat_list=n_cats,
            n_cont=n_cont,
            n_layers=1,
            n_hidden=n_flat,
            dropout_rate=0.0,
            use_batch_norm=self.use_batch_norm,
        )
        layers: list[nn.Module] = []
        for n_in, n_out in zip((third, third, second), (third, second, last), strict=True):
            up = nn.ConvTranspose2d(n_in, n_out, 5, stride=2, padding=2, output_padding=1)
            layers += activated(up, self.use_batch_norm)
        body = ImageBody(dense, self.smallest, layers)
        return Decoder(body, {name: ImageHead(last, self.shape[0], kernel=5) for name in heads})


NETWORKS: dict[str, type[MLP]] = {"mlp": MLP, "cnn": CNN, "larsen": LarsenCNN}

#: An adversary may be fully connected whatever the data are.
ADVERSARY_NETWORKS: dict[str, type[MLP]] = NETWORKS | {"mlp": FlatMLP}


@torch.no_grad()
def copy_shared_weights(source: nn.Module, target: nn.Module) -> None:
    """Let a network of the same layers start as another that sees fewer covariates, which come last in its inputs."""
    for of_source, of_target in zip(source.parameters(), target.parameters(), strict=True):
        shared = tuple(slice(size) for size in of_source.shape)
        of_target[shared] = of_source


def choose(options: Mapping[str, T], argument: str, value: str) -> T:
    """The option of that name, or an error that lists the names."""
    if value not in options:
        raise ValueError(f"{argument}={value!r} is not known; choose from {list(options)}.")
    return options[value]


def family(settings: Settings, shape: tuple[int, ...]) -> MLP:
    """The family of the encoders and decoders."""
    return choose(NETWORKS, "network", settings.network)(shape, settings)


def adversary_family(settings: Settings, shape: tuple[int, ...]) -> MLP:
    """The family of the adversary; what is not set for it is as for the encoders."""
    name = settings.network_adversary or settings.network
    channels = settings.channels_adversary
    if name == settings.network and name != "mlp":
        channels = channels or settings.channels
    of_adversary = replace(
        settings,
        n_hidden=settings.n_hidden_adversary or settings.n_hidden,
        n_layers=settings.n_layers_adversary or settings.n_layers,
        channels=channels,
    )
    return choose(ADVERSARY_NETWORKS, "network_adversary", name)(shape, of_adversary)
