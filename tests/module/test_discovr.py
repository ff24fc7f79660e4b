"""The objective against hand computations and the paper's Proposition 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import norm
from scvi import REGISTRY_KEYS
from torch import nn
from torch.distributions import Normal

from discovr_sc import Weights
from discovr_sc.module import DISCOVRModule, evidence
from discovr_sc.module.adversary import adversary_loss
from discovr_sc.module.alignment import dependence, mmd
from discovr_sc.module.evidence import Given, shares
from discovr_sc.module.noise import KEY
from discovr_sc.settings import DISCOVRSettings


def batch_of(x, y):
    return {
        REGISTRY_KEYS.X_KEY: torch.as_tensor(x, dtype=torch.float32),
        REGISTRY_KEYS.LABELS_KEY: torch.as_tensor(y).reshape(-1, 1),
        REGISTRY_KEYS.BATCH_KEY: torch.zeros(len(x), 1, dtype=torch.long),
    }


class FixedEncoder(nn.Module):
    """q(latent | x) = N(slope x + offset, scale^2)."""

    def __init__(self, slope, offset, scale):
        super().__init__()
        self.slope, self.offset, self.scale = slope, offset, scale

    def forward(self, x, *cats, cont=None):
        loc = self.slope * x + self.offset
        return Normal(loc, torch.full_like(loc, self.scale))


class FixedDecoder(nn.Module):
    """Mean of x = latent @ weights."""

    def __init__(self, *weights):
        super().__init__()
        self.weights = torch.tensor(weights).reshape(-1, 1)

    def forward(self, latent, *cats, cont=None):
        return {"loc": latent @ self.weights}


def linear_gaussian(*, a=0.8, b=1.3, noise=0.6, condition_means=(0.5, -0.4)):
    """x = a z + b w + noise, z ~ N(0, 1), w ~ N(mu_y, 1), with deliberately wrong posteriors."""
    module = DISCOVRModule(
        (1,),
        len(condition_means),
        DISCOVRSettings(
            n_latent_z=1, n_latent_w=1, likelihood="gaussian", noise_scale=noise, prior="condition-mean", n_hidden=4
        ),
    )
    module.z_encoder = FixedEncoder(0.3, 0.1, 0.7)
    module.w_encoder = FixedEncoder(0.4, -0.2, 0.5)
    module.decoder = FixedDecoder(a, b)
    module.condition_means.means[:, 0] = torch.tensor(condition_means)
    return module.eval()


@pytest.mark.parametrize("adversary", ["reconstruction", "latent", "both"])
@pytest.mark.parametrize("mmd_weight", [0.0, 30.0])
def test_objective_equals_hand_computation(adversary, mmd_weight):
    torch.manual_seed(0)
    weights = Weights(rec=0.75, rec_z=0.25, kl_z=0.9, kl_w=0.2, adv=0.8, mmd=mmd_weight)
    sizes = {"n_latent_z": 2, "n_latent_w": 2, "n_hidden": 8, "noise_scale": 0.5, "noise_scale_z": 0.7}
    settings = DISCOVRSettings(
        likelihood="gaussian", prior="condition-mean", adversary=adversary, weights=weights, **sizes
    )
    module = DISCOVRModule((3,), 2, settings)
    x, y = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 1, 1, 0, 1])
    tensors = batch_of(x, y)
    module.train()
    q, p, losses = module(tensors)

    def array(t):
        return t.detach().double().numpy()

    z, w = array(q["z"]), array(q["w"])
    condition_means = np.stack([z[y == k].mean(0) for k in range(2)])

    def kl(loc, scale, prior_loc):
        return (0.5 * (scale**2 + (loc - prior_loc) ** 2 - 1) - np.log(scale)).sum(-1)

    rec = -norm.logpdf(x, array(p["px"].loc), 0.5).sum(-1)
    rec_z = -norm.logpdf(x, array(p["px_z"].loc), 0.7).sum(-1)
    kl_z = kl(array(q["qz"].loc), array(q["qz"].scale), 0.0)
    kl_w = kl(array(q["qw"].loc), array(q["qw"].scale), condition_means[y])
    log_g = 0.0
    for place, view in {"reconstruction": p["px_z"].loc, "latent": q["qz"].loc}.items():
        if adversary in (place, "both"):
            log_g = log_g + log_softmax(array(module.adversary.classifiers[place](view)), axis=-1)[np.arange(5), y]
    expected = (0.75 * rec + 0.25 * rec_z + 0.9 * kl_z + 0.2 * kl_w + 0.8 * log_g).mean()
    if mmd_weight:
        distance = mmd(q["qz"].loc.detach(), torch.as_tensor(y), 2).item()
        assert losses.extra_metrics["mmd"].item() == pytest.approx(distance, rel=1e-5)
        expected += mmd_weight * distance
    else:
        assert "mmd" not in losses.extra_metrics

    assert losses.loss.item() == pytest.approx(expected, rel=1e-5)
    for name, value in {"rec": rec, "rec_z": rec_z, "kl_z": kl_z, "kl_w": kl_w, "adv": log_g}.items():
        assert losses.extra_metrics[name].item() == pytest.approx(value.mean(), rel=1e-5)
    assert losses.extra_metrics["adversary_loss"].item() == pytest.approx(-log_g.mean(), rel=1e-5)
    assert w.shape == (5, 2)


def test_kl_weight_scales_only_the_kl_terms():
    module = linear_gaussian()
    tensors = batch_of([[0.2], [1.0]], [0, 1])
    torch.manual_seed(0)
    q, p, full = module(tensors)
    half = module.loss(tensors, q, p, kl_weight=0.5)
    kl_terms = full.extra_metrics["kl_z"] + full.extra_metrics["kl_w"]
    assert (full.loss - half.loss).item() == pytest.approx(0.5 * kl_terms.item(), rel=1e-4)


def test_proposition_1_holds_on_a_linear_gaussian_model():
    """log p(x|y) - KL(q_w || p(w|x,y)) - L_w = E_{q_w} KL(q_z || p(z|w,x,y))."""
    a, b, noise, mu = 0.8, 1.3, 0.6, (0.5, -0.4)
    module = linear_gaussian(a=a, b=b, noise=noise, condition_means=mu)
    n = 200_000
    for x0, y0 in [(0.7, 0), (-1.2, 1)]:
        torch.manual_seed(0)
        tensors = batch_of(np.full((n, 1), x0), np.full(n, y0))
        with torch.no_grad():
            q, _, losses = module(tensors)
        l_w = -sum(losses.extra_metrics[term].item() for term in ("rec", "kl_z", "kl_w"))

        qw_loc, qw_scale = q["qw"].loc[0].item(), q["qw"].scale[0].item()
        qz_loc, qz_scale = q["qz"].loc[0].item(), q["qz"].scale[0].item()
        var_x_given_w = a**2 + noise**2
        log_px = norm.logpdf(x0, b * mu[y0], np.sqrt(b**2 + var_x_given_w))
        post_var = 1 / (1 + b**2 / var_x_given_w)
        post_loc = post_var * (mu[y0] + b * x0 / var_x_given_w)
        kl_w = gaussian_kl(qw_loc, qw_scale**2, post_loc, post_var)

        w = qw_loc + qw_scale * np.random.default_rng(0).normal(size=n)
        z_var = 1 / (1 + a**2 / noise**2)
        z_loc = z_var * a * (x0 - b * w) / noise**2
        right = gaussian_kl(qz_loc, qz_scale**2, z_loc, z_var).mean()
        assert log_px - kl_w - l_w == pytest.approx(right, abs=0.03)
        assert right > 0.2  # the gap is not a trivial zero


def gaussian_kl(loc, var, prior_loc, prior_var):
    return 0.5 * (np.log(prior_var / var) + (var + (loc - prior_loc) ** 2) / prior_var - 1)


def test_marginal_likelihood_equals_closed_form():
    a, b, noise, mu = 0.8, 1.3, 0.6, (0.5, -0.4)
    module = linear_gaussian(a=a, b=b, noise=noise, condition_means=mu)
    module.condition_probs = torch.tensor([0.3, 0.7])
    module.z_encoder.scale = module.w_encoder.scale = 1.0  # proposals with lighter tails than the target mislead
    x = np.array([[-1.0], [0.3], [2.0]])
    torch.manual_seed(0)
    estimate = module.marginal_ll(batch_of(x, [0, 1, 0]), n_mc_samples=100_000).numpy()
    scale = np.sqrt(a**2 + b**2 + noise**2)
    exact = np.log(0.3 * norm.pdf(x, b * mu[0], scale) + 0.7 * norm.pdf(x, b * mu[1], scale)).ravel()
    np.testing.assert_allclose(estimate, exact, atol=0.02)

    module.decoder_z = FixedDecoder(a)
    estimate_z = module.marginal_ll(batch_of(x, [0, 1, 0]), n_mc_samples=100_000, kind="marginal").numpy()
    np.testing.assert_allclose(estimate_z, norm.logpdf(x, 0, np.sqrt(a**2 + noise**2)).ravel(), atol=0.02)


def test_marginal_likelihood_under_a_mixture_of_z_equals_closed_form():
    """x = a z + noise, z from two Gaussians of unit scale: x is a mixture of two Gaussians, too."""
    a, noise = 0.8, 0.6
    module = DISCOVRModule(
        (1,),
        2,
        DISCOVRSettings(
            n_latent_z=1, n_latent_w=1, likelihood="gaussian", noise_scale=noise, n_hidden=4, n_components_z=2
        ),
    )
    module.z_encoder, module.decoder_z = FixedEncoder(0.9, 0.0, 0.8), FixedDecoder(a)
    with torch.no_grad():
        module.prior_z.loc.copy_(torch.tensor([[-1.5], [2.0]]))
        module.prior_z.logits.copy_(torch.tensor([0.3, 0.7]).log())
    x = np.array([[-2.0], [0.2], [1.7]])
    estimated = module.eval().marginal_ll(batch_of(x, [0, 0, 0]), n_mc_samples=20_000, kind="marginal")
    scale = np.sqrt(a**2 + noise**2)
    expected = np.log(0.3 * norm.pdf(x, -1.5 * a, scale) + 0.7 * norm.pdf(x, 2.0 * a, scale)).ravel()
    np.testing.assert_allclose(estimated, expected, atol=0.03)
    module.decoder = FixedDecoder(a, 0.0)  # w adds nothing
    full = module.marginal_ll(batch_of(x, [0, 0, 0]), n_mc_samples=20_000)
    np.testing.assert_allclose(full, expected, atol=0.03)


def test_the_prior_of_z_has_at_least_one_component():
    with pytest.raises(ValueError, match=r"n_components_z is 0; give a whole number of at least 1"):
        DISCOVRModule((4,), 2, DISCOVRSettings(n_components_z=0))
    assert DISCOVRModule((4,), 2, DISCOVRSettings(n_components_z=1)).prior_z is None


def test_posterior_of_an_unknown_condition_equals_bayes_rule():
    b, mu = 1.3, (0.5, -0.4)
    module = linear_gaussian(b=b, condition_means=mu)
    module.z_encoder.scale = module.w_encoder.scale = 1.0  # proposals with lighter tails than the target mislead
    x = np.linspace(-2, 2, 5).reshape(-1, 1)
    torch.manual_seed(0)
    probs = torch.softmax(module.log_joint(batch_of(x, np.full(5, -1)), n_mc_samples=100_000), -1).numpy()
    density = norm.pdf(x, b * np.array(mu), np.sqrt(0.8**2 + b**2 + 0.6**2))
    np.testing.assert_allclose(probs, density / density.sum(-1, keepdims=True), atol=0.01)


def test_w_of_an_unknown_condition_is_the_posterior_average():
    torch.manual_seed(0)
    module = DISCOVRModule(
        (1,), 2, DISCOVRSettings(n_latent_z=1, n_latent_w=2, likelihood="gaussian", prior="learned")
    ).eval()
    x = np.array([[0.5], [-1.0], [2.0]])
    known = [module.latent_moments(batch_of(x, np.full(3, k)), "w")["w"] for k in range(2)]
    module.log_joint = lambda tensors: torch.log(torch.tensor([[0.25, 0.75]] * len(tensors["X"])))
    mean, variance = module.latent_moments(batch_of(x, [-1, 0, -1]), "w")["w"]
    averaged = 0.25 * known[0][0] + 0.75 * known[1][0]
    torch.testing.assert_close(mean[[0, 2]], averaged[[0, 2]])
    torch.testing.assert_close(mean[1], known[0][0][1])
    second = 0.25 * (known[0][1] + known[0][0] ** 2) + 0.75 * (known[1][1] + known[1][0] ** 2)
    torch.testing.assert_close(variance[[0, 2]], (second - averaged**2)[[0, 2]])


def test_conditions_share_their_noise_and_the_answer_repeats():
    """At the default number of samples: the same cells, the same answer; equal conditions, equal probabilities."""
    module = linear_gaussian(condition_means=(0.5, -0.4))
    module.z_encoder.scale = module.w_encoder.scale = 1.0
    x = np.linspace(-2, 2, 7).reshape(-1, 1)
    torch.manual_seed(0)
    first = module.log_joint(batch_of(x, np.full(7, -1)))
    torch.manual_seed(1)
    torch.testing.assert_close(module.log_joint(batch_of(x, np.full(7, -1))), first, rtol=0, atol=0)
    exact = module.log_joint(batch_of(x, np.full(7, -1)), n_mc_samples=50_000)
    difference, exact_difference = (values[:, 0] - values[:, 1] for values in (first, exact))
    torch.testing.assert_close(difference, exact_difference, atol=0.35, rtol=0)
    equal = linear_gaussian(condition_means=(0.3, 0.3)).log_joint(batch_of(x, np.full(7, -1)))
    torch.testing.assert_close(equal[:, 0], equal[:, 1])


@pytest.mark.parametrize("with_keys", [True, False])
def test_many_conditions_are_screened_and_the_answer_is_that_of_all_samples(with_keys, monkeypatch):
    """A condition that is ruled out has no probability; the others have the estimate that they had."""
    means = (0.5, -0.4, 0.1, 30.0, -30.0, 0.3)
    module = linear_gaussian(condition_means=means)
    module.z_encoder.scale = module.w_encoder.scale = 1.0
    batch = batch_of(np.linspace(-2, 2, 7).reshape(-1, 1), np.full(7, -1)) | {KEY: torch.arange(7)}
    asked = batch if with_keys else {key: value for key, value in batch.items() if key != KEY}
    screened = module.log_joint(asked)
    monkeypatch.setattr(evidence, "SCREENED_FROM", len(means) + 1)
    full = module.log_joint(batch)
    likely = full.softmax(-1) > 1e-6
    assert not likely[:, [3, 4]].any() and likely[:, [0, 1, 2, 5]].all()
    torch.testing.assert_close(screened[likely], full[likely])
    torch.testing.assert_close(screened.softmax(-1), full.softmax(-1))
    few = module.log_joint(batch, n_mc_samples=evidence.SCREENING_SAMPLES)
    torch.testing.assert_close(screened[:, 3], few[:, 3])


def test_narrow_posteriors_do_not_mislead_the_marginal_likelihood():
    a, b, noise, mu = 0.8, 1.3, 0.6, (0.5, -0.4)
    module = linear_gaussian(a=a, b=b, noise=noise, condition_means=mu)
    module.z_encoder.scale = module.w_encoder.scale = 0.45  # the true posteriors are up to twice as wide
    x = np.array([[-1.0], [0.3], [2.0]])
    estimate = module.marginal_ll(batch_of(x, [0, 1, 0]), n_mc_samples=20_000).numpy()
    scale = np.sqrt(a**2 + b**2 + noise**2)
    exact = np.log(0.5 * norm.pdf(x, b * mu[0], scale) + 0.5 * norm.pdf(x, b * mu[1], scale)).ravel()
    np.testing.assert_allclose(estimate, exact, atol=0.1)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_every_importance_sample_is_of_one_spread(n):
    parts = shares(n)
    assert sum(parts.values()) == pytest.approx(1)
    assert [round(share * n) for share in parts.values()] == ([1] if n == 1 else [n - n // 2, n // 2])


def test_w_starts_as_a_copy_of_z_where_they_share_a_space():
    module = DISCOVRModule(
        (5,), 2, DISCOVRSettings(n_latent_z=3, n_latent_w=3, likelihood="gaussian", prior="condition-mean", n_hidden=4)
    )
    z, w = dict(module.z_encoder.named_parameters()), dict(module.w_encoder.named_parameters())
    for name, of_z in z.items():
        assert torch.equal(w[name][tuple(slice(n) for n in of_z.shape)], of_z)
    first = next(name for name in w if name.endswith("0.weight"))
    assert w[first].shape[1] == z[first].shape[1] + 2 and w[first][:, -2:].abs().sum() > 0
    into_both, into_z = next(module.decoder.parameters()), next(module.decoder_z.parameters())
    assert torch.equal(into_both[:, 3:], into_both[:, :3]) and torch.equal(into_z, into_both[:, :3])
    latents = torch.randn(7, 3)
    alone = module.decoder_z(2 * latents, torch.zeros(7, 1))["loc"]
    assert torch.allclose(module.decoder(torch.cat([latents, latents], 1), torch.zeros(7, 1))["loc"], alone, atol=1e-5)
    other = DISCOVRModule(
        (5,), 2, DISCOVRSettings(n_latent_z=3, n_latent_w=3, likelihood="gaussian", prior="learned", n_hidden=4)
    )
    assert not torch.equal(other.z_encoder.loc.weight, other.w_encoder.loc.weight)


def test_expression_from_z_is_the_average_and_not_the_louder_condition():
    """A gene that one condition silences: zero inflation would explain the silent half away."""
    module = DISCOVRModule((3,), 2, DISCOVRSettings(n_hidden=4))
    assert type(module.likelihood).__name__ == "ZeroInflatedNegativeBinomialLikelihood"
    assert type(module.likelihood_z).__name__ == "NegativeBinomialLikelihood"
    x = torch.tensor([[0.0, 500.0, 500.0]] * 20 + [[100.0, 450.0, 450.0]] * 20)
    given = Given(torch.full((40, 1), 1000.0), (torch.zeros(40, 1),), None)
    z = torch.zeros(40, module.n_latent_z)
    levels = {}
    for likelihood_z in ("nb", "zinb"):
        torch.manual_seed(0)
        module = DISCOVRModule((3,), 2, DISCOVRSettings(n_hidden=4, likelihood_z=likelihood_z, use_batch_norm=False))
        optimizer = torch.optim.Adam([*module.decoder_z.parameters(), *module.likelihood_z.parameters()], lr=0.05)
        for _ in range(400):
            optimizer.zero_grad()
            px = module.decode_marginal(z, given)
            (-module.likelihood_z.log_prob(px, x).mean()).backward()
            optimizer.step()
        levels[likelihood_z] = module.likelihood_z.reconstruction(px)[0, 0].item()
    assert levels["nb"] == pytest.approx(0.05, abs=0.005)
    assert levels["zinb"] > 0.08


def test_both_likelihoods_are_for_counts_or_none():
    with pytest.raises(ValueError, match="likelihood_z is a GaussianLikelihood and likelihood a ZeroInflated"):
        DISCOVRModule((3,), 2, DISCOVRSettings(likelihood="zinb", likelihood_z="gaussian"))
    with pytest.raises(ValueError, match=r"likelihood_z='poisson' is not known; choose from \['gaussian'"):
        DISCOVRModule((3,), 2, DISCOVRSettings(likelihood_z="poisson"))


# Kinds of cells -------------------------------------------------------------------------------------------------------


class Blind(nn.Module):
    """An adversary that sees nothing."""

    def forward(self, views):
        return [torch.zeros(len(view), 2) for view in views.values()]


def of_counts(n_cells=60, n_cell_types=2, **settings):
    """A module that knows types, and cells of two types: three to one in one condition, one to two in the other."""
    torch.manual_seed(0)
    module = DISCOVRModule((20,), 2, DISCOVRSettings(n_hidden=8, **settings), n_cell_types=n_cell_types)
    y, cell_type = torch.arange(n_cells) % 2, (torch.arange(n_cells) % 12 >= 5).long()
    batch = batch_of(torch.poisson(torch.full((n_cells, 20), 5.0)), y)
    return module, batch | ({"cell_type": cell_type.unsqueeze(-1)} if n_cell_types else {}), y, cell_type


def test_an_adversary_that_sees_nothing_has_the_entropy_of_the_condition_given_the_kind():
    module, batch, y, cell_type = of_counts()
    counts = torch.zeros(2, 2).index_put_((y, cell_type), torch.ones(len(y)), accumulate=True)
    module.kinds.mass.copy_(counts / len(y))
    module.adversary = Blind()
    q, p = module.eval()(batch, compute_loss=False)
    logits = module.adversary_logits(module.adversary_views(q, p), p)
    joint = counts.numpy() / len(y)
    entropy = -(joint * np.log(joint / joint.sum(0))).sum()
    assert entropy < 0.99 * np.log(2)  # composition tells something
    for place in logits:
        loss = adversary_loss([place], y, torch.ones_like(y, dtype=torch.bool)).item()
        assert loss == pytest.approx(entropy, rel=1e-5)


def test_without_a_mixture_the_adversary_is_told_nothing():
    module, batch, *_ = of_counts(n_cell_types=0, n_components_z=1)
    module.adversary = Blind()
    q, p = module(batch, compute_loss=False)
    assert module.kinds is None and "shares" not in p
    assert all((logits == 0).all() for logits in module.adversary_logits(module.adversary_views(q, p), p))


def test_w_starts_at_the_mean_of_its_prior_where_it_is_centred():
    module, batch, y, _ = of_counts(center_w=True)
    loc = module.prior().loc
    assert loc.norm(dim=-1).mean().item() == pytest.approx(3)
    q, _ = module.eval()(batch, compute_loss=False)
    assert (torch.cdist(q["qw"].loc, loc).argmin(-1) == y).all()
    added = module.w_encoder(module.likelihood.encode(module.data(batch)), y.unsqueeze(-1))
    torch.testing.assert_close(q["qw"].loc - loc[y], added.loc)


@pytest.mark.parametrize("settings", [{"center_w": False}, {"center_w": True, "prior": "standard"}])
def test_w_is_not_centred_where_that_is_not_asked_for_or_the_prior_is_not_learned(settings):
    module, batch, y, _ = of_counts(**settings)
    q, _ = module.eval()(batch, compute_loss=False)
    plain = module.w_encoder(module.likelihood.encode(module.data(batch)), y.unsqueeze(-1))
    torch.testing.assert_close(q["qw"].loc, plain.loc)


def test_terms_are_of_known_kinds_and_the_dependence_teaches_w_alone():
    weights = {"mmd": 2.0, "hsic": 3.0, "shift": 4.0}
    module, batch, y, cell_type = of_counts(weights=weights)
    q, p = module.eval()(batch, compute_loss=False)
    terms = module.objective(module.data(batch), q, p, None)
    shares_of_cells = p["shares"]
    assert (shares_of_cells == module.kinds.eval()(p["kinds"], y, q["known"])).all()
    assert (p["kinds"] == module.kinds.of(q["qz"].loc, cell_type, module.prior_z)).all()
    value = mmd(q["qz"].loc, y, 2, module.settings.mmd_bandwidths, shares_of_cells)
    torch.testing.assert_close(terms["mmd"][1], value.expand(len(y)))
    assert terms["mmd"][0] == 2 and terms["hsic"][0] == 3 and terms["shift"][0] == 4
    shift = module.kinds.displacement(q["qz"].loc, p["kinds"], y, q["known"])
    torch.testing.assert_close(terms["shift"][1], shift.expand(len(y)))
    torch.testing.assert_close(terms["hsic"][1][0], dependence(q["qw"].loc, q["qz"].loc, y, 2))
    terms["hsic"][1].mean().backward()
    assert all(parameter.grad is None for parameter in module.z_encoder.parameters())
    assert any(parameter.grad is not None for parameter in module.w_encoder.parameters())


def test_the_factor_of_alignment_scales_what_aligns_and_nothing_else():
    module, batch, *_ = of_counts(weights={"mmd": 2.0, "hsic": 3.0, "adv": 5.0, "shift": 4.0})
    q, p = module.eval()(batch, compute_loss=False)
    whole, none = (module.loss(batch, q, p, alignment=factor) for factor in (1.0, 0.0))
    values = whole.extra_metrics
    aligning = 5 * values["adv"] + 2 * values["mmd"] + 4 * values["shift"]
    torch.testing.assert_close(whole.loss - none.loss, aligning, atol=1e-3, rtol=1e-3)
