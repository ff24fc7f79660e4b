"""CVAE's objective (Sohn, Lee and Yan 2015)."""

import torch
from torch.nn.functional import one_hot

from discovr_sc.module.gaussians import draw, kl, standard_normal_like
from discovr_sc.module.likelihoods import Averaged
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import CVAESettings


class CVAEModule(DisentangledModule):
    """Conditional VAE: encoder and decoder see the condition itself, which stands in the place of w."""

    settings_cls = CVAESettings
    sees_condition = ("z",)
    adversary_places = ()

    def build_networks(self) -> None:
        """Build the encoder of z and the decoder of z and the condition."""
        self.z_encoder = self.networks.encoder(self.n_latent_z, *self.encoder_covariates("z"))
        self.decoder = self.networks.decoder(
            self.n_latent_z + self.n_conditions, self.likelihood.heads, self.n_cats, self.n_cont
        )

    def _regular_inference(self, x, y, given, n_samples=1, use_mean=False, generator=None, spread=1.0):
        """See :meth:`DisentangledModule._regular_inference`; w is the condition, one-hot."""
        qz = self.encode(self.z_encoder, "z", self.likelihood.encode(x), y, given)
        z = draw(qz, n_samples, use_mean, generator, spread)
        w = one_hot(y, self.n_conditions).to(z.dtype).expand(*z.shape[:-1], -1)
        return {"qz": qz, "z": z, "w": w, "y": y}

    def latent_priors(self, q):
        """p(z)."""
        return {"pz": standard_normal_like(q["qz"])}

    def decode_marginal(self, z, given):
        """The reconstruction averaged over y ~ p(y)."""
        total = torch.zeros(())
        for probability, w in zip(self.condition_probs, torch.eye(self.n_conditions, device=z.device), strict=True):
            px = self.decode(z, w.expand(*z.shape[:-1], -1), given)
            total = total + probability * self.likelihood.reconstruction(px)
        return Averaged(total)

    def objective(self, x, q, p, logits):
        """E log p(x|z,y) - KL(q(z|x,y)||p_z), negated."""
        a = self.weights
        return {
            "rec": (a.rec, -self.likelihood.log_prob(p["px"], x)),
            "kl_z": (a.kl_z, kl(q["qz"], p["pz"])),
        }
