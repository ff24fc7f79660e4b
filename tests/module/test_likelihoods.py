"""Likelihoods against scipy and scvi-tools."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp, softmax
from scipy.stats import bernoulli, nbinom, norm
from scvi.distributions import ZeroInflatedNegativeBinomial

from discovr_sc import DISCOVR
from discovr_sc.module.counts import LogCounts, NBLogZero, zinb_log_zero
from discovr_sc.module.likelihoods import FEW_EXTRA_ZEROS, LIKELIHOODS
from discovr_sc.settings import Settings

RNG = np.random.default_rng(0)
N, G = 6, 4


def build(name, shape=(G,), **settings):
    """A likelihood whose parameters are not those of its start."""
    torch.manual_seed(0)
    likelihood = LIKELIHOODS[name](shape, Settings(**{"noise_scale": 0.5} | settings), n_batch=2)
    for parameter in likelihood.parameters():
        torch.nn.init.normal_(parameter)
    return likelihood


def count_case():
    outputs = {
        name: torch.as_tensor(RNG.normal(size=(N, G)), dtype=torch.float32)
        for name in ("rho_logits", "zero_logits", "log_theta")
    }
    x = torch.as_tensor(RNG.poisson(3, (N, G)), dtype=torch.float32)
    return outputs, x, x.sum(-1, keepdim=True), torch.as_tensor([[0], [1], [1], [0], [1], [0]])


def nb_logpmf(outputs, x, library, theta):
    mu = library.numpy() * softmax(outputs["rho_logits"].numpy().astype(float), axis=-1)
    return nbinom.logpmf(x.numpy(), theta, theta / (theta + mu))


@pytest.mark.parametrize("dispersion", ["gene", "gene-batch", "gene-cell"])
def test_negative_binomial_equals_scipy(dispersion):
    likelihood = build("nb", dispersion=dispersion)
    outputs, x, library, batch = count_case()
    theta = {
        "gene": lambda: np.exp(likelihood.log_theta.detach().numpy()),
        "gene-batch": lambda: np.exp(likelihood.log_theta.detach().numpy())[batch.numpy().ravel()],
        "gene-cell": lambda: np.exp(outputs["log_theta"].numpy()),
    }[dispersion]()
    value = likelihood.log_prob(likelihood(outputs, library, batch), x).detach().numpy()
    np.testing.assert_allclose(value, nb_logpmf(outputs, x, library, theta).sum(-1), rtol=1e-4)


@pytest.mark.parametrize("zero_inflation", ["gene", "gene-cell"])
def test_zinb_equals_scvi_and_scipy(zero_inflation):
    likelihood = build("zinb", zero_inflation=zero_inflation)
    outputs, x, library, batch = count_case()
    assert ("zero_logits" in likelihood.heads) == (zero_inflation == "gene-cell")
    x[:, 0] = 0
    library = x.sum(-1, keepdim=True)
    px = likelihood(outputs, library, batch)
    value = likelihood.log_prob(px, x).detach().numpy()
    theta = likelihood.log_theta.exp().detach()
    rho = torch.softmax(outputs["rho_logits"], -1)
    decoded = outputs["zero_logits"] if zero_inflation == "gene-cell" else likelihood.zero_logits.detach().expand(N, G)
    zero_logits = decoded - FEW_EXTRA_ZEROS
    scvi_px = ZeroInflatedNegativeBinomial(mu=library * rho, theta=theta, zi_logits=zero_logits)
    np.testing.assert_allclose(value, scvi_px.log_prob(x).sum(-1).numpy(), rtol=1e-6)

    nb = nb_logpmf(outputs, x, library, theta.numpy())
    log_pi = np.log(expit(zero_logits.numpy()))
    log_not = np.log(expit(-zero_logits.numpy()))
    zinb = np.where(x.numpy() == 0, logsumexp([log_pi, log_not + nb], axis=0), log_not + nb)
    np.testing.assert_allclose(value, zinb.sum(-1), rtol=1e-4)
    np.testing.assert_allclose(likelihood.reconstruction(px).sum(-1).numpy(), 1, rtol=1e-5)


def test_a_silent_gene_is_not_explained_away(counts):
    """Extra zeros of a gene's own leave expression to be learned where conditions silence it; decoded ones do not."""
    silenced = {}
    silent = (counts.obs["condition"] == "control").to_numpy()
    counts.X = counts.X.toarray()
    counts.X[:, 0] = np.where(silent, 0, 20)
    for zero_inflation in ("gene", "gene-cell"):
        torch.manual_seed(0)
        DISCOVR.setup_anndata(counts, "condition")
        model = DISCOVR(counts, zero_inflation=zero_inflation, n_hidden=32, weights={"adv": 0, "mmd": 0})
        model.train(max_epochs=100, batch_size=32, plan_kwargs={"lr": 5e-3}, enable_progress_bar=False)
        silenced[zero_inflation] = model.get_reconstruction()[silent, 0].mean()
    share = (counts.X[~silent, 0] / counts.X[~silent].sum(1)).mean()
    assert silenced["gene"] < 0.05 * share
    assert silenced["gene-cell"] > 10 * silenced["gene"]


@pytest.mark.parametrize(("name", "zeros"), [("nb", "gene"), ("zinb", "gene"), ("zinb", "gene-cell")])
@pytest.mark.parametrize("leading", [(), (3,)])
@pytest.mark.parametrize("dispersion", ["gene", "gene-batch", "gene-cell"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_sparse_likelihood_equals_scvis_dense_one_in_value_and_gradient(
    name, zeros, leading, dispersion, dtype, tolerance
):
    likelihood = build(name, shape=(50,), dispersion=dispersion, zero_inflation=zeros).to(dtype)
    rng = np.random.default_rng(1)
    x = torch.as_tensor(rng.poisson(0.3, (8, 50)), dtype=dtype)
    x[0, 0] = 200
    outputs = {h: torch.randn(*leading, 8, 50, requires_grad=True, dtype=dtype) for h in likelihood.heads}
    parameters = [*outputs.values(), *likelihood.parameters()]

    def value_and_gradient(log_prob):
        px = likelihood(outputs, x.sum(-1, keepdim=True), torch.arange(8).unsqueeze(-1) % 2)
        value = log_prob(px)
        return value, torch.autograd.grad(value.sum(), parameters)

    value, gradient = value_and_gradient(lambda px: likelihood.log_prob(px, x))
    dense_value, dense_gradient = value_and_gradient(lambda px: px.log_prob(x).sum(-1))
    assert value.shape == (*leading, 8)
    for ours, theirs in zip([value, *gradient], [dense_value, *dense_gradient], strict=True):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("theta_shape", [(1, 4), (3, 4), (2, 3, 4)])
def test_written_out_gradient_of_a_zeros_probability(theta_shape):
    rng = torch.Generator().manual_seed(0)
    mu = (torch.randn(2, 3, 4, generator=rng, dtype=torch.float64) * 3).exp()
    theta = torch.randn(theta_shape, generator=rng, dtype=torch.float64).exp()
    assert torch.autograd.gradcheck(NBLogZero.apply, [t.requires_grad_() for t in (mu, theta)])


def test_written_out_gradient_of_log_counts():
    rho = torch.rand(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e-3
    assert torch.autograd.gradcheck(lambda rho: LogCounts.apply(rho, 1e4), rho.requires_grad_(), eps=1e-9)


def test_extreme_parameters_give_finite_values_and_gradients():
    mu = torch.tensor([[1e-12, 1e6, 1e6, 1e-3]], requires_grad=True)
    theta = torch.tensor([[1e-6, 1e4, 1e-4, 1e6]], requires_grad=True)
    logits = torch.tensor([[90.0, -90.0, 200.0, -200.0]], requires_grad=True)
    value = zinb_log_zero(mu, theta, logits)
    precise = {"mu": mu.double(), "theta": theta.double(), "zi_logits": logits.double()}
    dense = ZeroInflatedNegativeBinomial(**precise).log_prob(torch.zeros(1, 4)).sum(-1).float()
    torch.testing.assert_close(value, dense)
    for ours, theirs in zip(*(torch.autograd.grad(v, [mu, theta, logits]) for v in (value, dense)), strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_gaussian_and_bernoulli_equal_scipy_on_images():
    shape = (2, 3, 3)
    outputs = torch.as_tensor(RNG.normal(size=(N, *shape)))
    x = RNG.uniform(size=(N, *shape)).round()
    gaussian = build("gaussian", shape)
    value = gaussian.log_prob(gaussian({"loc": outputs}, None, None), torch.as_tensor(x))
    np.testing.assert_allclose(value, norm.logpdf(x, outputs, 0.5).sum((1, 2, 3)), rtol=1e-6)
    likelihood = build("bernoulli", shape)
    value = likelihood.log_prob(likelihood({"logits": outputs}, None, None), torch.as_tensor(x))
    np.testing.assert_allclose(value, bernoulli.logpmf(x, expit(outputs)).sum((1, 2, 3)), rtol=1e-6)


def test_the_adversary_sees_log_counts_per_ten_thousand():
    rho = torch.tensor([[1e-4, 1e-2]])
    torch.testing.assert_close(build("nb").view(rho), torch.log1p(torch.tensor([[1.0, 100.0]])))


def test_bad_settings_raise():
    with pytest.raises(ValueError, match=r"dispersion is 'cell'.*'gene-batch'"):
        build("nb", dispersion="cell")
    with pytest.raises(ValueError, match="noise_scale is 0"):
        build("gaussian", noise_scale=0)


def test_an_images_gaussian_has_its_mean_in_the_unit_interval():
    likelihood = build("image-gaussian", (3, 2, 2))
    outputs, x = RNG.normal(0, 5, (N, 3, 2, 2)), RNG.random((N, 3, 2, 2))
    px = likelihood({"loc": torch.as_tensor(outputs)}, None, torch.zeros(N, 1, dtype=torch.long))
    expected = norm.logpdf(x, expit(outputs), 0.5).sum((1, 2, 3))
    np.testing.assert_allclose(likelihood.log_prob(px, torch.as_tensor(x)), expected)
    np.testing.assert_allclose(likelihood.reconstruction(px), expit(outputs))
    assert likelihood.unit_interval
