"""Parts of networks for images: convolutions down to features, and up from latents."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def channels_last(images: Tensor) -> Tensor:
    """Images ``(n, channels, height, width)``, laid out so that narrow convolutions run faster on a CPU."""
    return images.contiguous(memory_format=torch.channels_last)


def activated(layer: nn.Conv2d | nn.ConvTranspose2d, use_batch_norm: bool) -> list[nn.Module]:
    """A convolution, normalised and activated."""
    return [layer, *([nn.BatchNorm2d(layer.out_channels)] if use_batch_norm else []), nn.ReLU(inplace=True)]


def convolution(n_in: int, n_out: int, use_batch_norm: bool) -> list[nn.Module]:
    """A 3 x 3 convolution that keeps the image's size, normalised and activated."""
    return activated(nn.Conv2d(n_in, n_out, 3, padding=1), use_batch_norm)


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
        return self.dense(self.convolutions(channels_last(x)), *cats, cont=cont)


class ImageBody(nn.Module):
    """Fully connected layers where the covariates enter, then convolutions that grow to the image's size.

    The smallest feature maps are of shape ``start``; ``to_image`` gives them where ``dense`` does not.
    """

    def __init__(
        self, dense: nn.Module, start: tuple[int, ...], layers: list[nn.Module], to_image: nn.Module | None = None
    ):
        super().__init__()
        self.dense = dense
        self.start = start
        self.to_image = nn.Identity() if to_image is None else to_image
        self.convolutions = nn.Sequential(*layers)

    def forward(self, latent: Tensor, *cats: Tensor, cont: Tensor | None = None) -> Tensor:
        """Feature maps ``(..., n, channels, height, width)`` for latents ``(..., n, n_latent)``."""
        h = self.to_image(self.dense(latent, *cats, cont=cont))
        images = self.convolutions(channels_last(h.reshape(-1, *self.start)))
        return images.reshape(*latent.shape[:-1], *images.shape[1:])


class ImageHead(nn.Module):
    """Feature maps to one parameter per pixel and channel."""

    def __init__(self, n_in: int, n_channels: int, kernel: int = 3):
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_channels, kernel, padding=kernel // 2)

    def forward(self, h: Tensor) -> Tensor:
        """``(..., n, n_channels, height, width)``."""
        images = self.convolution(h.flatten(end_dim=-4))
        return images.reshape(*h.shape[:-3], *images.shape[1:])
