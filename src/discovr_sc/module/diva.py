"""DIVA's objective (Ilse, Tomczak, Louizos and Welling 2020)."""

from typing import ClassVar

from torch.nn.functional import cross_entropy

from discovr_sc.module.gaussians import kl
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import DIVASettings, Settings


class DIVAModule(DisentangledModule):
    """Domain-invariant VAE: w is inferred from the data alone, and a classifier reads the condition from it.

    The original has three latents (domain, class and the rest); the DisCoVR paper, and this, has two: w for the
    condition and z for the rest.
    """

    settings_cls: ClassVar[type[Settings]] = DIVASettings
    sees_condition = ()
    adversary_places = ()

    def build_networks(self) -> None:
        """Add the classifier q(y | w), which trains with the rest."""
        super().build_networks()
        self.classifier = self.networks.latent_classifier(self.n_latent_w, self.n_conditions)

    def objective(self, x, q, p, logits):
        """E log p(x|z,w) + E log q(y|w) - KL(q_z||p_z) - KL(q_w||p_w), negated."""
        a = self.weights
        return {
            "rec": (a.rec, -self.likelihood.log_prob(p["px"], x)),
            "kl_z": (a.kl_z, kl(q["qz"], p["pz"])),
            "kl_w": (a.kl_w, kl(q["qw"], p["pw"])),
            "classify": (a.classify, cross_entropy(self.classifier(q["w"]), q["y"], reduction="none")),
        }
