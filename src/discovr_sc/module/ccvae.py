"""CCVAE's objective (Joy, Schmon, Torr, Siddharth and Rainforth 2021)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from discovr_sc.module.diva import DIVAModule
from discovr_sc.module.gaussians import kl, rows
from discovr_sc.module.priors import PRIORS
from discovr_sc.settings import CCVAESettings


class CCVAEModule(DIVAModule):
    """Characteristic-capturing VAE: DIVA's graph, with a bound on log p(x, y) by importance weights.

    As in the original, the weight q(y|w)/q(y|x) multiplies the KL terms, too (the DisCoVR paper writes them outside);
    q(y|x) = E q(y|w) is estimated with ``n_classifier_samples`` samples of w, that of the weight's numerator among them
    (this bounds the weight by their number: a flipped label could else blow it up); and the gradient of the weight's
    numerator reaches the classifier but not the encoder. The DisCoVR paper lets the prior of z depend on the condition,
    p(z|y), which the original does not: ``prior_z="standard"`` gives the original's N(0, I).
    """

    settings_cls = CCVAESettings
    settings: CCVAESettings

    def build_networks(self) -> None:
        """Add the prior of z."""
        super().build_networks()
        self.prior_z = PRIORS[self.settings.prior_z](self.n_conditions, self.n_latent_z, self.n_latent_z)

    def latent_priors(self, q):
        """p(z | y) and p(w | y), for every cell."""
        return super().latent_priors(q) | {"pz": rows(self.prior_z(None), q["y"])}

    def objective(self, x, q, p, logits):
        """E[r (log p(x|z,w) - log q(y|w) - KL_z - KL_w)] + log q(y|x), with r = q(y|w)/q(y|x), negated."""
        a = self.weights
        log_qy_w = self._log_qy(q["w"], q["y"])
        log_qy_x = self._log_qy_given_x(q)
        r = (self._log_qy(q["w"].detach(), q["y"]) - log_qy_x).exp()
        return {
            "rec": (a.rec * r, -self.likelihood.log_prob(p["px"], x)),
            "kl_z": (a.kl_z * r, kl(q["qz"], p["pz"])),
            "kl_w": (a.kl_w * r, kl(q["qw"], p["pw"])),
            "classify": (a.classify, r * log_qy_w - log_qy_x),
        }

    def _log_qy(self, w: Tensor, y: Tensor) -> Tensor:
        """Log q(y | w), ``(n,)``."""
        return -cross_entropy(self.classifier(w), y, reduction="none")

    def _log_qy_given_x(self, q: dict) -> Tensor:
        """Log q(y | x) = log E q(y | w), ``(n,)``."""
        s = self.settings.n_classifier_samples
        w = torch.cat([q["w"].detach().unsqueeze(0), q["qw"].rsample((s - 1,))]).flatten(end_dim=1)  # (s n, n_latent_w)
        log_qy = self._log_qy(w, q["y"].repeat(s)).reshape(s, -1)
        return torch.logsumexp(log_qy, dim=0) - math.log(s)
