"""CSVAE's objective (Klys, Snell and Zemel 2018)."""

import torch

from discovr_sc.module.gaussians import kl
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import CSVAESettings


class CSVAEModule(DisentangledModule):
    """Conditional subspace VAE: a separable prior of w, and an adversary on z whose entropy the encoder raises.

    The DisCoVR paper writes the reconstruction term as log p(x | w, y); the original, and this, is log p(x | z, w).
    The adversary g minimises its cross-entropy, as in DisCoVR, but the encoder maximises the entropy of g rather than
    its cross-entropy. A weight ``adv`` of 0 is the paper's "No Adv.".
    """

    settings_cls = CSVAESettings

    def objective(self, x, q, p, logits):
        """E log p(x|z,w) - KL(q_z||p_z) - KL(q_w||p_w) + H(g(.|z)), negated."""
        a = self.weights
        terms = {
            "rec": (a.rec, -self.likelihood.log_prob(p["px"], x)),
            "kl_z": (a.kl_z, kl(q["qz"], p["pz"])),
            "kl_w": (a.kl_w, kl(q["qw"], p["pw"])),
        }
        if logits is not None:
            terms["adv"] = (a.adv, -torch.stack([entropy(place) for place in logits]).sum(0))
        return terms


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of the categorical distributions of logits ``(n, K)``: ``(n,)``."""
    log_probs = torch.log_softmax(logits, dim=-1)
    return -(log_probs.exp() * log_probs).sum(-1)
