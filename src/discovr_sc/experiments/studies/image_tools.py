"""What the image studies measure with: a classifier of an attribute, and a stopwatch for training steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from discovr_sc.experiments.engine.clock import Clock, TrainingClock
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method


class AttributeClassifier:
    """A small convolutional classifier of real images; both classes weigh the same, and images are mirrored at random.

    Parameters
    ----------
    seed
        Of its start and of the order of images.
    n_epochs, batch_size
        Passes over the images, and images per step.
    """

    def __init__(self, seed: int = 0, *, n_epochs: int = 10, batch_size: int = 64):
        self.seed = seed
        self.n_epochs = n_epochs
        self.batch_size = batch_size

    def fit(self, images: np.ndarray, has: np.ndarray) -> AttributeClassifier:
        """Train on images as bytes, (n, 3, height, width), and whether they have the attribute."""
        x, y = torch.as_tensor(images), torch.as_tensor(np.asarray(has, dtype=int))
        share = y.float().mean()
        class_weights = torch.stack([0.5 / (1 - share), 0.5 / share])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network_ = _small_classifier(x.shape[1])
            optimizer = torch.optim.AdamW(self.network_.parameters(), lr=2e-3, weight_decay=0.01)
            for _ in range(self.n_epochs):
                for rows in torch.randperm(len(x)).split(self.batch_size):
                    batch = x[rows] / 255
                    if torch.rand(()) < 0.5:
                        batch = batch.flip(-1)
                    loss = cross_entropy(self.network_(batch), y[rows], weight=class_weights)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        self.network_.eval()
        return self

    @torch.inference_mode()
    def scores(self, images: np.ndarray) -> np.ndarray:
        """Probability of the attribute, (n,), of images in [0, 1]."""
        x = torch.as_tensor(np.asarray(images, dtype=np.float32))
        return torch.cat([self.network_(part).softmax(-1)[:, 1] for part in x.split(256)]).numpy()


def _small_classifier(n_channels: int) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in ((n_channels, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, 2))


def step_ratio(run: Run, experiment: str, methods: Mapping[str, Method], n_steps: int = 8) -> float:
    """Time of a training step of a run's method relative to one of CSVAE without adversary, side by side."""
    ours, reference = (
        _seconds_per_step(run, experiment, methods[name], n_steps) for name in (run.method, "csvae-noadv")
    )
    return ours / reference


def _seconds_per_step(run: Run, experiment: str, method: Method, n_steps: int) -> float:
    preset = run.preset
    adata = run.train[: n_steps * preset.batch_size].copy()
    method.model_class.setup_anndata(adata, "condition", tensor_key="x")
    settings = dict(preset.settings) | dict(method.settings)
    model = method.model_class.paper(adata, experiment, method=method.row, **settings)
    clock = Clock()
    model.train(
        2,
        batch_size=preset.batch_size,
        train_size=1.0,
        plan_kwargs=dict(preset.plan) | dict(method.plan),
        enable_progress_bar=False,
        callbacks=[TrainingClock(clock, each="batch")],
    )
    # Of this process where it computes itself, else of the clock on the wall.
    return float(np.median(clock.cpu if model.device.type == "cpu" else clock.wall))
