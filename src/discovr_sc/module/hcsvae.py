"""HCSVAE's objective: the hierarchical extension of CSVAE (Beker et al. 2024, PATCHES)."""

import torch

from discovr_sc.module.csvae import CSVAEModule
from discovr_sc.module.gaussians import draw, log_prob
from discovr_sc.settings import HCSVAESettings


class HCSVAEModule(CSVAEModule):
    """CSVAE with a latent u between the data and (z, w).

    Inference runs x -> u -> (z, w), generation (z, w) -> u -> x. The weight of log p(x | z, w) in the paper's tables is
    here that of the bound on it, E[log p(x|u) + log p(u|z,w) - log q(u|x)], at one joint sample as in PATCHES (z and w
    are drawn given that u). The adversary is CSVAE's: the DisCoVR paper describes this method as CSVAE with one more
    level, while PATCHES' own code has the encoder lower g's likelihood of the condition.
    """

    settings_cls = HCSVAESettings
    settings: HCSVAESettings

    def build_networks(self) -> None:
        """Build the encoders and decoders of both levels."""
        n_zw = self.n_latent_z + self.n_latent_w
        n_u = self.settings.n_latent_u or n_zw
        self.u_encoder = self.networks.encoder(n_u, *self.encoder_covariates("u"))
        self.z_encoder = self.networks.latent_encoder(n_u, self.n_latent_z, *self.encoder_covariates("z"))
        self.w_encoder = self.networks.latent_encoder(n_u, self.n_latent_w, *self.encoder_covariates("w"))
        self.u_decoder = self.networks.latent_decoder(n_zw, n_u)
        self.decoder = self.networks.decoder(n_u, self.likelihood.heads, self.n_cats, self.n_cont)

    def _regular_inference(self, x, y, given, n_samples=1, use_mean=False, generator=None, spread=1.0):
        """See :meth:`DisentangledModule._regular_inference`; adds u, from which z and w are inferred."""
        qu = self.encode(self.u_encoder, "u", self.likelihood.encode(x), y, given)
        u = draw(qu, n_samples, use_mean, generator, spread)
        outputs = {"qu": qu, "u": u, "y": y}
        for latent, encoder in (("z", self.z_encoder), ("w", self.w_encoder)):
            q = self.encode(encoder, latent, u, y, given)
            # u has the samples' axis already
            outputs |= {f"q{latent}": q, latent: draw(q, 1, use_mean, generator, spread)}
        return outputs

    def joint(self, q, given):
        """See :meth:`DisentangledModule.joint`; the data hang on u, and u on z and w."""
        pu = self.u_decoder(torch.cat([q["z"], q["w"]], dim=-1))
        return {"px": self.decode_u(q["u"], given), "pu": pu} | self.latent_priors(q)

    def decoder_outputs(self, z, w, given):
        """Those of p(x | u) at the mean of p(u | z, w)."""
        return self.decoder(self.u_decoder(torch.cat([z, w], dim=-1)).loc, *given.cats, cont=given.cont)

    def decode_u(self, u, given):
        """p(x | u)."""
        return self.likelihood(self.decoder(u, *given.cats, cont=given.cont), given.size_factor, given.cats[-1])

    def objective(self, x, q, p, logits):
        """CSVAE's, with log p(x|z,w) bounded by E[log p(x|u) + log p(u|z,w) - log q(u|x)]."""
        kl_u = log_prob(q["qu"], q["u"]) - log_prob(p["pu"], q["u"])
        return super().objective(x, q, p, logits) | {"kl_u": (self.weights.rec, kl_u)}
