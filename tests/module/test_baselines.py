"""Each baseline's objective against a hand computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm
from scvi import REGISTRY_KEYS
from torch.distributions import Normal

from discovr_sc import Weights
from discovr_sc.module import CCVAEModule, CSVAEModule, CVAEModule, DIVAModule, HCSVAEModule

WEIGHTS = Weights(rec=2.5, kl_z=0.7, kl_w=0.5, adv=20.0, classify=3.0)
X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 1, 0, 1, 0])


def build(module_cls, **settings):
    torch.manual_seed(0)
    defaults = {"n_latent_z": 2, "n_latent_w": 2, "likelihood": "gaussian", "noise_scale": 0.5, "n_hidden": 8}
    probs = settings.pop("condition_probs", None)
    settings = module_cls.settings_cls(**(defaults | {"weights": WEIGHTS} | settings))
    module = module_cls((3,), 2, settings, condition_probs=probs)
    tensors = {
        REGISTRY_KEYS.X_KEY: torch.as_tensor(X, dtype=torch.float32),
        REGISTRY_KEYS.LABELS_KEY: torch.as_tensor(Y).reshape(-1, 1),
        REGISTRY_KEYS.BATCH_KEY: torch.zeros(6, 1, dtype=torch.long),
    }
    return module.train(), tensors


def array(t):
    return t.detach().double().numpy()


def kl(q, loc, scale):
    q_loc, q_scale = array(q.loc), array(q.scale)
    return (np.log(scale / q_scale) + (q_scale**2 + (q_loc - loc) ** 2) / (2 * scale**2) - 0.5).sum(-1)


def rec(p, noise=0.5):
    return -norm.logpdf(X, array(p["px"].loc), noise).sum(-1)


SEPARABLE_LOC = np.array([[3.0, 0.0], [0.0, 3.0]])[Y]
SEPARABLE_SCALE = np.array([[1.0, 0.1], [0.1, 1.0]])[Y]


def csvae_terms(module, q, p):
    logits = log_softmax(array(module.adversary.classifiers["latent"](q["z"])), axis=-1)
    return {
        "rec": rec(p),
        "kl_z": kl(q["qz"], 0.0, 1.0),
        "kl_w": kl(q["qw"], SEPARABLE_LOC, SEPARABLE_SCALE),
        "adv": (np.exp(logits) * logits).sum(-1),
    }


def check_terms(losses, terms, weights):
    for name, value in terms.items():
        assert losses.extra_metrics[name].item() == pytest.approx(value.mean(), rel=1e-5), name
    expected = sum(weights[name] * value.mean() for name, value in terms.items())
    assert losses.loss.item() == pytest.approx(expected, rel=1e-5)


def test_csvae():
    module, tensors = build(CSVAEModule, prior="separable")
    q, p, losses = module(tensors)
    check_terms(losses, csvae_terms(module, q, p), {"rec": 2.5, "kl_z": 0.7, "kl_w": 0.5, "adv": 20.0})


def test_csvaes_adversary_minimises_cross_entropy_while_the_encoder_raises_its_entropy():
    module, tensors = build(CSVAEModule, prior="separable")
    q, _, losses = module(tensors)
    logits = log_softmax(array(module.adversary.classifiers["latent"](q["z"])), axis=-1)
    assert losses.extra_metrics["adversary_loss"].item() == pytest.approx(-logits[np.arange(6), Y].mean(), rel=1e-5)
    assert losses.extra_metrics["adv"].item() >= -np.log(2) - 1e-6  # the negative entropy's least value


def test_hcsvae():
    module, tensors = build(HCSVAEModule, prior="separable", n_latent_u=3)
    q, p, losses = module(tensors)
    assert q["u"].shape == (6, 3)
    u_prior = module.u_decoder(torch.cat([q["z"], q["w"]], -1))
    u = array(q["u"])
    log_qu, log_pu = (norm.logpdf(u, array(d.loc), array(d.scale)).sum(-1) for d in (q["qu"], u_prior))
    terms = csvae_terms(module, q, p) | {"kl_u": log_qu - log_pu}
    check_terms(losses, terms, {"rec": 2.5, "kl_z": 0.7, "kl_w": 0.5, "adv": 20.0, "kl_u": 2.5})


def test_hcsvae_infers_z_and_w_from_u_alone():
    module, tensors = build(HCSVAEModule, prior="separable")
    module.eval()
    inputs = module.inference_input(tensors)
    first = module.inference(**inputs, use_mean=True)
    torch.testing.assert_close(first["z"], module.z_encoder(first["u"]).loc)
    torch.testing.assert_close(first["w"], module.w_encoder(first["u"], torch.as_tensor(Y).reshape(-1, 1)).loc)


def test_diva():
    module, tensors = build(DIVAModule, prior="learned")
    q, p, losses = module(tensors)
    logits = log_softmax(array(module.classifier(q["w"])), axis=-1)
    terms = {
        "rec": rec(p),
        "kl_z": kl(q["qz"], 0.0, 1.0),
        "kl_w": kl(q["qw"], array(module.prior.loc)[Y], np.exp(array(module.prior.log_scale))[Y]),
        "classify": -logits[np.arange(6), Y],
    }
    check_terms(losses, terms, {"rec": 2.5, "kl_z": 0.7, "kl_w": 0.5, "classify": 3.0})
    assert module.adversary is None


@pytest.mark.parametrize("prior_z", ["learned", "standard"])
def test_ccvae(prior_z, monkeypatch):
    module, tensors = build(CCVAEModule, prior="learned", prior_z=prior_z, n_classifier_samples=4)
    extra = torch.randn(3, 6, 2)
    q, p = module(tensors, compute_loss=False)
    # The samples behind q(y|x), held fixed so that the hand computation can use them.
    monkeypatch.setattr(Normal, "rsample", lambda self, shape=(): self.loc + self.scale * extra)
    losses = module.loss(tensors, q, p)

    def log_qy(w):
        return log_softmax(array(module.classifier(w)), axis=-1)[np.arange(6), Y]

    samples = [q["w"], *(q["qw"].loc + q["qw"].scale * extra)]
    log_qy_x = logsumexp([log_qy(w) for w in samples], axis=0) - np.log(4)
    r = np.exp(log_qy(q["w"]) - log_qy_x)
    z_loc, z_scale = (
        (array(module.prior_z.loc)[Y], np.exp(array(module.prior_z.log_scale))[Y])
        if prior_z == "learned"
        else (0.0, 1.0)
    )
    terms = {
        "rec": rec(p),
        "kl_z": kl(q["qz"], z_loc, z_scale),
        "kl_w": kl(q["qw"], array(module.prior.loc)[Y], np.exp(array(module.prior.log_scale))[Y]),
        "classify": r * log_qy(q["w"]) - log_qy_x,
    }
    for name, value in terms.items():
        assert losses.extra_metrics[name].item() == pytest.approx(value.mean(), rel=1e-5), name
    expected = (r * (2.5 * terms["rec"] + 0.7 * terms["kl_z"] + 0.5 * terms["kl_w"]) + 3 * terms["classify"]).mean()
    assert losses.loss.item() == pytest.approx(expected, rel=1e-5)
    assert np.abs(r - 1).max() > 0.01


def test_ccvaes_weight_reaches_the_sample_of_w_through_nothing_but_the_reconstruction():
    """With the reconstruction cut off from w, the weighted term has no gradient at the sample: r's numerator is cut."""
    module, tensors = build(CCVAEModule, prior="learned", n_classifier_samples=2)
    q, _ = module(tensors, compute_loss=False)
    cut = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in q.items()}
    p = module.joint(cut, module.given(tensors))
    weight, value = module.objective(module.data(tensors), q, p, None)["rec"]
    term = (weight * value).sum()
    at_sample, at_classifier = torch.autograd.grad(
        term, [q["w"], module.classifier.logits.weight], allow_unused=True, retain_graph=True
    )
    assert at_sample is None
    assert at_classifier.abs().sum() > 0
    # The denominator, q(y|x), has samples of its own and does reach the encoder.
    assert torch.autograd.grad(term, module.w_encoder.loc.weight)[0].abs().sum() > 0


def test_ccvaes_weight_is_bounded_by_its_number_of_samples():
    """Also where the classifier is sure of the wrong label, as flipped labels make it."""
    module, tensors = build(CCVAEModule, prior="learned", n_classifier_samples=3)
    with torch.no_grad():
        module.classifier.logits.weight.mul_(1e3)
        q, p = module(tensors, compute_loss=False)
        weight = module.objective(module.data(tensors), q, p, None)["rec"][0] / module.weights.rec
    assert weight.max() <= 3 + 1e-4


def test_cvae():
    module, tensors = build(CVAEModule, prior="standard")
    q, p, losses = module(tensors)
    np.testing.assert_array_equal(array(q["w"]), np.eye(2)[Y])
    check_terms(losses, {"rec": rec(p), "kl_z": kl(q["qz"], 0.0, 1.0)}, {"rec": 2.5, "kl_z": 0.7})


def test_marginal_decoding_averages_over_conditions_and_w():
    module, tensors = build(DIVAModule, prior="learned", condition_probs=[0.25, 0.75])
    module.eval()
    given = module.given(tensors)
    z = torch.zeros(6, 2)
    with torch.no_grad():
        torch.manual_seed(0)
        module.n_marginal_draws = 4000
        estimate = module.decode_marginal(z, given)
        prior = module.prior(None)
        exact = 0.0
        for k, probability in enumerate([0.25, 0.75]):
            w = Normal(prior.loc[k], prior.scale[k]).sample((20000, 6))
            exact = exact + probability * module.decode(z.expand(20000, 6, 2), w, given).loc.mean(0)
    torch.testing.assert_close(estimate.mean.mean(0), exact.mean(0), atol=0.02, rtol=0)


def test_cvaes_marginal_is_the_exact_average_over_conditions():
    module, tensors = build(CVAEModule, prior="standard", condition_probs=[0.25, 0.75])
    module.eval()
    given, z = module.given(tensors), torch.randn(6, 2)
    with torch.no_grad():
        decoded = [module.decode(z, torch.eye(2)[[k]].expand(6, 2), given).loc for k in range(2)]
        torch.testing.assert_close(module.decode_marginal(z, given).mean, 0.25 * decoded[0] + 0.75 * decoded[1])


@pytest.mark.parametrize("module_cls", [DIVAModule, CCVAEModule, CSVAEModule, HCSVAEModule, CVAEModule])
def test_importance_weights_have_every_latent_once(module_cls):
    prior = {"CSVAEModule": "separable", "HCSVAEModule": "separable", "CVAEModule": "standard"}
    module, tensors = build(module_cls, prior=prior.get(module_cls.__name__, "learned"))
    module.eval()
    inputs = module.inference_input(tensors)
    with torch.no_grad():
        q = module.inference(**inputs)
        p = module.joint(q, inputs["given"])
        value = module.log_importance_weight(inputs["x"], q, p, {1.0: 1.0}).numpy()
    latents = {"CVAEModule": "z", "HCSVAEModule": "uzw"}.get(module_cls.__name__, "zw")
    expected = -rec(p)
    for latent in latents:
        sample = array(q[latent])
        for sign, density in ((1, p[f"p{latent}"]), (-1, q[f"q{latent}"])):
            expected += sign * norm.logpdf(sample, array(density.loc), array(density.scale)).sum(-1)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_bad_settings_raise():
    with pytest.raises(ValueError, match=r"prior_z='flat'.*'standard'"):
        build(CCVAEModule, prior="learned", prior_z="flat")
    with pytest.raises(ValueError, match="n_classifier_samples is 0; give a whole number of at least 1"):
        build(CCVAEModule, prior="learned", n_classifier_samples=0)
    with pytest.raises(ValueError, match=r"looks at the reconstruction, which CSVAEModule does not have.*\['latent'\]"):
        build(CSVAEModule, prior="separable", adversary="reconstruction")
