"""The limit of the framework: DisCoVR's training written out by hand, over a module's own networks."""

from collections.abc import Iterable

import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import cross_entropy, one_hot

from discovr_sc.module import DISCOVRModule
from discovr_sc.module.alignment import dependence, mmd
from discovr_sc.module.gaussians import kl
from discovr_sc.train.plan import frozen


class BareLoop:
    """Algorithm 1 over a module's networks, nothing around it: no trainer, no loader, no logging, no covariates."""

    def __init__(self, module: DISCOVRModule):
        if module.adversary is None:
            raise ValueError("the module has no adversary; give its weight adv a value above 0.")
        self.module, self.adversary = module, module.adversary
        adversary = list(module.adversary.parameters())
        theirs = {id(parameter) for parameter in adversary}
        rest = [parameter for parameter in module.parameters() if id(parameter) not in theirs]
        self.adversary_optimizer, self.model_optimizer = (
            torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-6, fused=True) for parameters in (adversary, rest)
        )

    def train(self, x: csr_matrix | Tensor, y: Tensor, batch_size: int, n_batches: int | None = None) -> None:
        """One epoch over all observations, or over so many mini-batches."""
        self.module.train()
        for rows in torch.randperm(len(y)).split(batch_size)[:n_batches]:
            self.step(x[rows] if isinstance(x, Tensor) else torch.from_numpy(x[rows.numpy()].toarray()), y[rows])

    def step(self, x: Tensor, y: Tensor) -> None:
        """The adversary's update, then one of the rest."""
        net, a = self.module, self.module.weights
        observed = net.likelihood.observe(x)
        h, library = net.likelihood.encode(x, observed), x.sum(-1, keepdim=True)
        batch = torch.zeros_like(y).unsqueeze(-1)
        qz, qw = net.z_encoder(h), net.w_encoder(h, y.unsqueeze(-1))
        if net.centers_w:
            qw = Normal(net.prior().loc[y] + qw.loc, qw.scale)
        z, w = qz.rsample(), qw.rsample()
        px = net.likelihood(net.decoder(torch.cat([z, w], -1), batch), library, batch)
        px_z = net.likelihood_z(net.decoder_z(z, batch), library, batch)
        views = {"latent": qz.loc, "reconstruction": net.likelihood_z.view(net.likelihood_z.reconstruction(px_z))}

        known = torch.ones_like(y, dtype=torch.bool)
        kinds = shares = None
        if net.kinds is not None and net.prior_z is not None:
            kinds = net.kinds.of(qz.loc, None, net.prior_z)
            shares = net.kinds(kinds, y, known)
        offset = 0.0 if shares is None else shares.log()
        seen = {place: view.detach() for place, view in views.items()}
        update(self.adversary_optimizer, cross_entropies(self.adversary(seen), y, offset))

        with frozen(self.adversary):
            labels = one_hot(y, net.n_conditions).to(z.dtype)
            prior = net.prior((labels.T @ z) / labels.sum(0).unsqueeze(-1).clamp_min(1))
            prior_z = Normal(torch.zeros_like(z), torch.ones_like(z)) if net.prior_z is None else net.prior_z(y, known)
            loss = (
                -a.rec * net.likelihood.score(px, observed)
                - a.rec_z * net.likelihood_z.score(px_z, observed)
                + a.kl_z * kl(qz, prior_z)
                + a.kl_w * kl(qw, Normal(prior.loc[y], prior.scale[y]))
            ).mean()
            loss = loss - a.adv * cross_entropies(self.adversary(views), y, offset)
            if a.mmd > 0:
                loss = loss + a.mmd * mmd(qz.loc, y, net.n_conditions, shares=shares)
            if a.shift > 0 and net.kinds is not None and kinds is not None:
                loss = loss + a.shift * net.kinds.displacement(qz.loc, kinds, y, known)
            if a.hsic > 0:
                loss = loss + a.hsic * dependence(qw.loc, qz.loc.detach(), y, net.n_conditions)
            update(self.model_optimizer, loss)


def cross_entropies(logits: Iterable[Tensor], y: Tensor, offset: Tensor | float) -> Tensor:
    """Of the adversary, told what the kind of a cell tells, summed over the places at which it looks."""
    return torch.stack([cross_entropy(place + offset, y) for place in logits]).sum()


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of an optimiser, its gradient clipped."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 50.0)
    optimizer.step()
