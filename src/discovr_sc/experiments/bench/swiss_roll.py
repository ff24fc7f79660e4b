"""What the framework costs: an epoch of DISCOVR on the Swiss roll against a bare loop over the same networks."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, one_hot, softplus

from discovr_sc.data import anndata_to_tensors, noisy_swiss_roll
from discovr_sc.model import DISCOVR

N_HIDDEN, NOISE_SCALE, BATCH_SIZE = 128, 0.2, 128


def swiss_roll_epoch(n: int = 20_000, n_epochs: int = 3) -> dict[str, float]:
    """Seconds per epoch of the model and of a bare loop, measured in turn, and their ratio.

    Parameters
    ----------
    n
        Points; all of them are trained on.
    n_epochs
        Epochs of each, after one to warm up.
    """
    adata = noisy_swiss_roll(n)
    x, y = anndata_to_tensors(adata)
    DISCOVR.setup_anndata(adata, "condition", tensor_key="x")
    model = DISCOVR.paper(adata, "swiss-roll", noise_scale=NOISE_SCALE)

    def train(epochs: int) -> None:
        model.train(epochs, batch_size=BATCH_SIZE, train_size=1.0, enable_progress_bar=False)

    bare = BareLoop()
    seconds = {}
    for name, run in (("model", train), ("bare", lambda epochs: bare.train(x, y, epochs))):
        run(1)
        started = time.perf_counter()
        run(n_epochs)
        seconds[name] = (time.perf_counter() - started) / n_epochs
    return seconds | {"ratio": seconds["model"] / seconds["bare"]}


class BareLoop:
    """DisCoVR's training written out by hand: no framework, no logging, nothing that is not in Algorithm 1."""

    def __init__(self):
        self.z_encoder, self.w_encoder = mlp(3, 4), mlp(5, 4)
        self.decoder, self.decoder_z = mlp(4, 3), mlp(2, 3)
        self.adversary = mlp(3, 2)
        players = (self.z_encoder, self.w_encoder, self.decoder, self.decoder_z)
        self.model_optimizer = torch.optim.AdamW([p for net in players for p in net.parameters()], lr=1e-3)
        self.adversary_optimizer = torch.optim.AdamW(self.adversary.parameters(), lr=1e-3)

    def train(self, x: torch.Tensor, y: torch.Tensor, n_epochs: int) -> None:
        """Some epochs over all points."""
        for _ in range(n_epochs):
            for rows in torch.randperm(len(x)).split(BATCH_SIZE):
                self.step(x[rows], y[rows])

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One update of the adversary, then one of the rest."""
        labels = one_hot(y, 2).to(x.dtype)
        qz = gaussian(self.z_encoder(x))
        qw = gaussian(self.w_encoder(torch.cat([x, labels], -1)))
        z, w = qz.rsample(), qw.rsample()
        reconstruction, from_z = self.decoder(torch.cat([z, w], -1)), self.decoder_z(z)

        self.adversary_optimizer.zero_grad()
        cross_entropy(self.adversary(from_z.detach()), y).backward()
        nn.utils.clip_grad_norm_(self.adversary.parameters(), 50.0)
        self.adversary_optimizer.step()

        condition_means = (labels.T @ z) / labels.sum(0).unsqueeze(-1)
        loss = (
            -0.9 * Normal(reconstruction, NOISE_SCALE).log_prob(x).sum(-1)
            - 0.1 * Normal(from_z, NOISE_SCALE).log_prob(x).sum(-1)
            + 0.2 * kl_divergence(qz, Normal(0.0, 1.0)).sum(-1)
            + 0.2 * kl_divergence(qw, Normal(condition_means[y], 1.0)).sum(-1)
        ).mean() - 8.0 * cross_entropy(self.adversary(from_z), y)
        self.model_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model_optimizer.param_groups[0]["params"], 50.0)
        self.model_optimizer.step()


def mlp(n_in: int, n_out: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(n_in, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, n_out)
    )


def gaussian(outputs: torch.Tensor) -> Normal:
    """Mean and scale from a network's outputs."""
    loc, raw_scale = outputs.chunk(2, dim=-1)
    return Normal(loc, softplus(raw_scale) + 1e-4)
