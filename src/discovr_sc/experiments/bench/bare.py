"""The limit of the framework: DisCoVR's training on counts written out by hand, over a module's own networks."""

from __future__ import annotations

import torch
from scipy.sparse import csr_matrix
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import cross_entropy

from discovr_sc.module import DISCOVRModule
from discovr_sc.module.alignment import mmd
from discovr_sc.module.gaussians import kl
from discovr_sc.train.plan import frozen


class BareCounts:
    """Algorithm 1 with nothing around it: no trainer, no loader, no logging, no covariates.

    Parameters
    ----------
    module
        Whose networks, likelihoods and weights are trained; its prior of w must be ``"learned"``, that of z a mixture.
    """

    def __init__(self, module: DISCOVRModule):
        self.module = module
        adversary = list(module.adversary.parameters())
        theirs = {id(parameter) for parameter in adversary}
        rest = [parameter for parameter in module.parameters() if id(parameter) not in theirs]
        self.adversary_optimizer, self.model_optimizer = (
            torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-6, fused=True) for parameters in (adversary, rest)
        )

    def train(self, x: csr_matrix, y: torch.Tensor, batch_size: int, n_batches: int | None = None) -> None:
        """One epoch over all cells, or over so many mini-batches."""
        self.module.train()
        for rows in torch.randperm(len(y)).split(batch_size)[:n_batches]:
            self.step(torch.from_numpy(x[rows.numpy()].toarray()), y[rows])

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """The adversary's update, then one of the rest."""
        net, a = self.module, self.module.weights
        h, library, batch = torch.log1p(x), x.sum(-1, keepdim=True), torch.zeros_like(y).unsqueeze(-1)
        qz, qw = net.z_encoder(h), net.w_encoder(h, y.unsqueeze(-1))
        z, w = qz.rsample(), qw.rsample()
        px = net.likelihood(net.decoder(torch.cat([z, w], -1), batch), library, batch)
        px_z = net.likelihood_z(net.decoder_z(z, batch), library, batch)
        views = {"latent": qz.loc, "reconstruction": net.likelihood_z.view(px_z.scale)}

        seen = {place: view.detach() for place, view in views.items()}
        update(self.adversary_optimizer, sum(cross_entropy(logits, y) for logits in net.adversary(seen)))

        with frozen(net.adversary):
            observed, prior = net.likelihood.observe(x), net.prior()
            loss = (
                -a.rec * net.likelihood.score(px, observed)
                - a.rec_z * net.likelihood_z.score(px_z, observed)
                + a.kl_z * kl(qz, net.prior_z())
                + a.kl_w * kl(qw, Normal(prior.loc[y], prior.scale[y]))
            ).mean()
            loss = loss - a.adv * sum(cross_entropy(logits, y) for logits in net.adversary(views))
            update(self.model_optimizer, loss + a.mmd * mmd(qz.loc, y, net.n_conditions))


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of an optimiser, its gradient clipped."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 50.0)
    optimizer.step()
