"""DisCoVR's objective."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from scvi.module.base import auto_move_data
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.nn.functional import nll_loss

from discovr_sc.module.adversary import OnlyTo, log_losses
from discovr_sc.module.alignment import dependence, mmd
from discovr_sc.module.evidence import Given, log_mixture, shares
from discovr_sc.module.gaussians import draw, kl, log_prob, standard_normal_like
from discovr_sc.module.kinds import Kinds
from discovr_sc.module.networks import choose
from discovr_sc.module.priors import LearnedPrior, MixturePrior
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.settings import DISCOVRSettings

#: What takes the place of a zero-inflated likelihood where zero inflation would mislead.
NOT_INFLATED = {"zinb": "nb"}

#: Whether the adversary's gradient leaves the decoder of z alone as it is, by the name of the setting.
SPARES_DECODER = {"encoder": True, "encoder and decoder": False}

#: How far from their centre the means of a learned prior of w start, where q(w | x, y) is centred on them.
START_DISTANCE = 3.0
#: Weight of -log p(cell type | z), where types are known.
TYPES_WEIGHT = 10.0


class DISCOVRModule(DisentangledModule):
    """Reconstructs the data twice, from z and from (z, w), and plays against an adversary.

    The likelihood of the data given z alone has no zero inflation by default: a gene that is silent in one condition
    and not in another would pass for one with extra zeros, and the expression decoded from z would be that of the
    second condition and not the average.

    Examples
    --------
    >>> import torch
    >>> from discovr_sc.module import DISCOVRModule
    >>> from discovr_sc.settings import DISCOVRSettings
    >>> module = DISCOVRModule((50,), 2, DISCOVRSettings(n_latent_z=5, n_components_z=4))
    >>> module.prior_z.loc.shape
    torch.Size([4, 5])
    >>> type(module.likelihood).__name__, type(module.likelihood_z).__name__
    ('ZeroInflatedNegativeBinomialLikelihood', 'NegativeBinomialLikelihood')
    """

    settings_cls = DISCOVRSettings
    settings: DISCOVRSettings
    has_z_likelihood = True
    adversary_places = ("latent", "reconstruction")

    def build_networks(self) -> None:
        """Add the decoder of z alone, and the prior of z where it is a mixture."""
        super().build_networks()
        settings = self.settings
        n_components = self.n_cell_types if self.n_cell_types > 1 else settings.n_components_z or 1
        self.spares_decoder = choose(SPARES_DECODER, "adversary_trains", settings.adversary_trains)
        sizes = n_components, self.n_latent_z, self.n_conditions, self.n_cell_types
        self.prior_z = MixturePrior(*sizes) if n_components > 1 else None
        self.kinds = None if self.prior_z is None else Kinds(self.n_conditions, self.prior_z, self.n_cell_types)
        self.centers_w = bool(settings.center_w) and isinstance(self.prior, LearnedPrior)
        if self.centers_w:
            self.prior.set_apart(START_DISTANCE)
            if self.weights.hsic == 0:
                # Nothing else keeps cell types out of w: it starts as the condition alone, and z has time to take them.
                for parameter in self.w_encoder.loc.parameters():
                    torch.nn.init.zeros_(parameter)
        name = settings.likelihood_z or NOT_INFLATED.get(settings.likelihood, settings.likelihood)
        noise_scale = settings.noise_scale if settings.noise_scale_z is None else settings.noise_scale_z
        of_z = replace(settings, noise_scale=noise_scale)
        self.likelihood_z = self.build_likelihood("likelihood_z", name, of_z)
        if self.likelihood_z.counts != self.likelihood.counts:
            raise ValueError(
                f"likelihood_z is a {type(self.likelihood_z).__name__} and likelihood a "
                f"{type(self.likelihood).__name__}; choose two for counts, or two for other data."
            )
        self.decoder_z = self.networks.narrowed(settings.narrow_z).decoder(
            self.n_latent_z, self.likelihood_z.heads, self.n_cats, self.n_cont
        )

    @torch.no_grad()
    def start_alike(self) -> None:
        """See :meth:`DisentangledModule.start_alike`; the decoder of z alone starts as the other one's part for z."""
        super().start_alike()
        if self.settings.narrow_z > 1:
            return
        of_both = dict(self.decoder.named_parameters())
        for name, parameter in self.decoder_z.named_parameters():
            if name in of_both and parameter.shape == of_both[name].shape:
                parameter.copy_(of_both[name])
        first = next(self.decoder_z.parameters())
        first[:, : self.n_latent_z] = next(self.decoder.parameters())[:, : self.n_latent_z]

    def encode(self, encoder, latent, h, y, given):
        """See :meth:`DisentangledModule.encode`; that of w may give what a cell's w adds to its condition's mean.

        So the decoder of both sees the condition from the first step. Else z, which learns sooner, takes it.
        """
        q = super().encode(encoder, latent, h, y, given)
        if latent == "w" and self.centers_w:
            return Normal(self.prior().loc[y] + q.loc, q.scale, validate_args=False)
        return q

    def find_kinds(self, cells):
        """See :meth:`DisentangledModule.find_kinds`; the components of the prior of z start anew.

        Not where a trained model learns a new condition or batch, and the prior is to stay as it is.
        """
        if self.prior_z is None or not self.prior_z.loc.requires_grad:
            return
        known, y, z = (torch.cat([part[name] for part in cells]) for name in ("known", "y", "z"))
        types = None if self.n_cell_types == 0 else torch.cat([part["cell_type"] for part in cells])[known]
        self.prior_z.start_at(z[known], y[known], types)

    def posteriors(self, x, y, given, latents):
        """See :meth:`EvidenceMixin.posteriors`; runs the encoders of these latents only."""
        h = self.likelihood.encode(x)
        encoders = {"z": self.z_encoder, "w": self.w_encoder}
        return {latent: self.encode(encoders[latent], latent, h, y, given) for latent in latents}

    def reads_sparse(self, latents):
        """See :meth:`EvidenceMixin.reads_sparse`; an encoder that has genes alone as its input does."""
        cats_and_cont = [self.encoder_covariates(latent) for latent in latents]
        return self.likelihood.counts and not any(cats or n_cont for cats, n_cont in cats_and_cont)

    @property
    def floats_per_sample(self) -> int:
        """See :attr:`EvidenceMixin.floats_per_sample`; a mixture's densities may be more than a few genes."""
        data = super().floats_per_sample
        return data if self.prior_z is None else max(data, self.prior_z.loc.numel())

    def latent_priors(self, q):
        """See :meth:`DisentangledModule.latent_priors`; p(z | y) may be a mixture."""
        priors = super().latent_priors(q)
        if self.prior_z is None:
            return priors
        return priors | {"pz": self.prior_z(q["y"], q["known"], q["cell_type"])}

    def objective_inputs(self, q, given, kl_weight=None):
        """See :meth:`DisentangledModule.objective_inputs`; adds p(x | z).

        The data given z alone pull all of the data into z. During a warm-up z heeds that as little as it does the KL
        terms, while the decoder learns, so that w has time to take what the condition adds.
        """
        z = q["z"] if kl_weight is None else torch.lerp(q["z"].detach(), q["z"], kl_weight)
        p = super().objective_inputs(q, given) | {"px_z": self.decode_marginal(z, given)}
        if self.kinds is not None and self.prior_z is not None:
            p["kinds"] = self.kinds.of(q["qz"].loc, q["cell_type"], self.prior_z)
            p["shares"] = self.kinds(p["kinds"], q["y"], known=q["known"])
        return p

    def decode_marginal(self, z: Tensor, given: Given) -> Distribution:
        """p(x | z), from the decoder of z alone."""
        outputs = self.decoder_z(z, *given.cats, cont=given.cont)
        return self.likelihood_z(outputs, given.size_factor, given.cats[-1])

    def likelihood_of(self, kind):
        """See :meth:`DisentangledModule.likelihood_of`."""
        return self.likelihood_z if kind == "marginal" else self.likelihood

    def objective(self, x, q, p, logits):
        """The paper's weighted objective L_alpha, negated.

        max over q, p and min over g of
        rec E log p(x|z,w) + rec_z E log p(x|z) - kl_z KL(q_z||p_z) - kl_w KL(q_w||p_w) - adv E log g(y|xhat).

        Beyond the paper, a weight ``mmd`` pulls the conditions' distributions of z (its means) together, within kinds
        of cells, a weight ``shift`` their means within each kind, and a weight ``hsic`` keeps what z tells of a cell
        out of w. Known cell types are told by z.
        """
        a, known = self.weights, q["known"]
        observed = q["observed"]
        terms = {
            "rec": (a.rec, -self.likelihood.score(p["px"], observed)),
            "rec_z": (a.rec_z, -self.likelihood_z.score(p["px_z"], observed)),
            "kl_z": (a.kl_z, kl(q["qz"], p["pz"])),
            "kl_w": (a.kl_w, kl(q["qw"], p["pw"])),
        }
        if logits is not None:
            terms["adv"] = (a.adv, -log_losses(logits, q["y"], known))
        if a.mmd > 0:
            shares = p["shares"][known] if "shares" in p else None
            bandwidths = self.settings.mmd_bandwidths
            distance = mmd(q["qz"].loc[known], q["y"][known], self.n_conditions, bandwidths, shares)
            terms["mmd"] = (a.mmd, distance.expand(len(x)))
        if a.shift > 0 and self.kinds is not None:
            shift = self.kinds.displacement(q["qz"].loc, p["kinds"], q["y"], q["known"])
            terms["shift"] = (a.shift, shift.expand(len(x)))
        if q["cell_type"] is not None and self.prior_z is not None:
            of_types = self.prior_z.log_types(q["z"])
            terms["types"] = (TYPES_WEIGHT, nll_loss(of_types, q["cell_type"], ignore_index=-1, reduction="none"))
        if a.hsic > 0:
            w, z = q["qw"].loc[known], q["qz"].loc[known].detach()
            terms["hsic"] = (a.hsic, dependence(w, z, q["y"][known], self.n_conditions).expand(len(x)))
        return terms

    def adversary_logits(self, views, p):
        """See :meth:`DisentangledModule.adversary_logits`; the adversary is told what the kind of a cell tells.

        What is left for it to find is the condition within kinds. So composition is no reason to change z.
        """
        logits = super().adversary_logits(views, p)
        return [place + p["shares"].log() for place in logits] if "shares" in p else logits

    def adversary_views(self, q, p):
        """The posterior mean of z, and the reconstruction from a sample of it.

        Users look at the mean. In a sample the posterior's noise hides what the mean still tells: an adversary that
        sees samples is content while a classifier reads the condition from the means.
        """
        reconstruction = self.likelihood_z.view(self.likelihood_z.reconstruction(p["px_z"]))
        if self.spares_decoder:
            reconstruction = OnlyTo.apply(q["z"], reconstruction)
        return {"latent": q["qz"].loc, "reconstruction": reconstruction}

    @torch.inference_mode()
    @auto_move_data
    def log_marginal_z(self, tensors: dict[str, Tensor], n_mc_samples: int) -> Tensor:
        """Log p(x) of the model of z alone, ``(n,)``, by importance sampling."""
        x, given = self.data(tensors), self.given(tensors)
        y = torch.zeros(len(x), dtype=torch.long, device=x.device)  # z does not depend on it
        qz = self.inference(x, y, given, use_mean=True)["qz"]
        pz = standard_normal_like(qz) if self.prior_z is None else self.prior_z.together()
        generator = torch.Generator(x.device).manual_seed(0)
        log_weights = []
        for spread, size in self._passes(len(x), n_mc_samples):
            z = draw(qz, size, generator=generator, spread=spread)
            log_joint = self.likelihood_z.log_prob(self.decode_marginal(z, given), x) + log_prob(pz, z)
            weight = log_joint - log_mixture([(qz, z)], shares(n_mc_samples))
            log_weights.append(weight.reshape(size, len(x)))
        return torch.logsumexp(torch.cat(log_weights), dim=0) - math.log(n_mc_samples)
