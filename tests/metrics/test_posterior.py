"""Comparisons with the parametric model's posteriors, against closed forms and numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, norm, truncnorm

from discovr_sc.metrics import (
    delta_bayes,
    marginal_rmse,
    posterior_kl_w,
    posterior_kl_z,
    posterior_wasserstein_w,
    sample_parametric_posterior,
)

SD = np.sqrt(0.5)


def parametric_model(n=5000, seed=0):
    z, w = np.random.default_rng(seed).normal(size=(2, n))
    return z + w, (w > 0).astype(int)


def analytic_w(x, y):
    bound = -x / 2 / SD
    return truncnorm(*((bound, np.inf) if y else (-np.inf, bound)), loc=x / 2, scale=SD)


# loc and scale of q, x, y: the right side, the wrong side, a label at odds with x, a wide q,
# a q in the far tail, a density that meets the floor before the truncation
CASES = [
    (0.3, 0.5, 1, 1),
    (-0.3, 0.5, 1, 1),
    (0.3, 0.5, -4, 1),
    (-0.3, 2, 5, 0),
    (8, 1, 0.3, 1),
    (3, 3, 16, 1),
]


class TestKLz:
    def test_exact_posterior(self):
        x, _ = parametric_model()
        scale = np.full(len(x), SD)
        assert posterior_kl_z(x / 2, scale, x) == pytest.approx(0, abs=1e-12)
        assert posterior_kl_z(-x / 2, scale, x) == pytest.approx(0, abs=1e-12)
        # Unaligned, the means are x apart: KL = x^2 / (2 * 1/2), and x has variance 2.
        assert posterior_kl_z(-x / 2, scale, x, align=False) == pytest.approx(np.mean(x**2))

    def test_prior_as_posterior(self):
        x, _ = parametric_model(n=200_000)
        # KL(N(0, 1) || N(x/2, 1/2)) = ln sqrt(1/2) + 1 + x^2/4 - 1/2, and E x^2 = 2.
        truth = 1 - 0.5 * np.log(2)
        assert posterior_kl_z(np.zeros_like(x), np.ones_like(x), x) == pytest.approx(truth, abs=0.01)

    def test_one_sign_for_all_cells(self):
        x = np.array([1.0, 1.0])
        assert posterior_kl_z([0.5, -0.5], [SD, SD], x) == pytest.approx(0.5)


class TestKLw:
    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("floor", [-36.04, -12.0])
    def test_against_integration(self, case, floor):
        loc, scale, x, y = case
        q, p = norm(loc, scale), analytic_w(x, y)
        grid = np.linspace(loc - 12 * scale, loc + 12 * scale, 1_000_001)
        truth = np.trapezoid(q.pdf(grid) * (q.logpdf(grid) - np.maximum(p.logpdf(grid), floor)), grid)
        value = posterior_kl_w([loc], [scale], [x], [y], floor=floor, align=False)
        assert value == pytest.approx(truth, abs=1e-3)

    def test_far_from_the_truncation_it_is_the_gaussian_divergence(self):
        x = np.array([14.0])
        expected = posterior_kl_z([6.5], [0.6], x)
        assert posterior_kl_w([6.5], [0.6], x, [1]) == pytest.approx(expected, abs=1e-6)

    def test_scale_of_the_paper(self):
        x, y = parametric_model(n=20_000)
        blind = posterior_kl_w(x / 2, np.full(len(x), SD), x, y)
        assert blind == pytest.approx(12.9, abs=3.3)  # DIVA and CCVAE, whose q(w | x) does not see y
        separable = np.where(y == 0, 3.0, 0.0), np.where(y == 0, 1.0, 0.1)
        assert posterior_kl_w(*separable, x, y, align=False) == pytest.approx(26, abs=2)  # HCSVAE
        assert posterior_kl_w(*separable, x, y) < 15

    def test_sign(self):
        x, y = parametric_model()
        loc, scale = np.where(y == 1, 0.9, -0.9), np.full(len(x), 0.4)
        assert posterior_kl_w(-loc, scale, x, y) == posterior_kl_w(loc, scale, x, y)
        assert posterior_kl_w(-loc, scale, x, y, align=False) > posterior_kl_w(loc, scale, x, y) + 10


class TestWassersteinW:
    @pytest.mark.parametrize("case", CASES)
    def test_against_quantiles(self, case):
        loc, scale, x, y = case
        levels = (np.arange(200_000) + 0.5) / 200_000
        gap = norm.ppf(levels, loc, scale) - analytic_w(x, y).ppf(levels)
        value = posterior_wasserstein_w([loc], [scale], [x], [y], align=False)
        assert value == pytest.approx(np.sqrt(np.mean(gap**2)), abs=1e-4)

    def test_between_normals(self):
        # x = 16 leaves nothing to truncate; W2^2 = (mean gap)^2 + (scale gap)^2.
        value = posterior_wasserstein_w([5.0], [SD + 4], [16.0], [1])
        assert value == pytest.approx(5, abs=1e-6)

    def test_averages_over_rows_and_aligns(self):
        x, y = np.array([16.0, -16.0]), np.array([1, 0])
        loc, scale = np.array([7.0, -5.0]), np.full(2, SD)
        assert posterior_wasserstein_w(loc, scale, x, y) == pytest.approx(2)
        assert posterior_wasserstein_w(-loc, scale, x, y) == pytest.approx(2)
        assert posterior_wasserstein_w(-loc, scale, x, y, align=False) == pytest.approx(14)


class TestSample:
    @pytest.mark.parametrize(("x", "y"), [(0.5, 1), (0.5, 0), (-6, 1)])
    def test_distribution(self, x, y):
        z, w = sample_parametric_posterior(np.full(5000, x), np.full(5000, y), seed=2)
        assert kstest(z, norm(x / 2, SD).cdf).pvalue > 0.001
        assert kstest(w, analytic_w(x, y).cdf).pvalue > 0.001
        assert abs(np.corrcoef(z, w)[0, 1]) < 0.05

    def test_untruncated(self):
        x = np.full(5000, 0.5)
        z, w = sample_parametric_posterior(x, np.ones(5000, dtype=int), truncated=False)
        assert kstest(w, norm(0.25, SD).cdf).pvalue > 0.001
        assert abs(np.corrcoef(z, w)[0, 1]) < 0.05

    def test_w_has_the_sign_of_its_label_and_its_marginal(self):
        x, y = parametric_model()
        z, w = sample_parametric_posterior(x, y, seed=1)
        assert ((w > 0) == (y == 1)).all()
        assert kstest(w, norm.cdf).pvalue > 0.001
        assert kstest(z, norm.cdf).pvalue > 0.001

    def test_seed(self):
        x, y = parametric_model(n=10)
        first, again, other = (sample_parametric_posterior(x, y, seed=seed) for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


class TestDeltaBayes:
    def test_known_mixture(self):
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=40_000)
        x = rng.normal(size=(40_000, 2)) + np.outer(y, [2, 0])
        optimum = norm.cdf(1)
        assert delta_bayes(x, y, optimum) < 1
        assert delta_bayes(x, y, optimum - 0.25) == pytest.approx(25, abs=1)
        assert delta_bayes(x[:, 1], y, optimum) == pytest.approx(100 * (optimum - 0.5), abs=1.5)

    def test_separated_latent_of_the_paper(self):
        # The parametric model's optimum is 75 %; a w that stores the label itself deviates by 25 points.
        x, y = parametric_model(n=20_000)
        assert delta_bayes(np.where(y == 1, 3.0, 0.0), y, 0.75) == 25
        assert delta_bayes(x, y, 0.75) < 1

    def test_constant_latent_guesses_the_majority(self):
        y = (np.arange(1000) < 300).astype(int)
        assert delta_bayes(np.zeros((1000, 2)), y, 0.75) == pytest.approx(5)


def test_marginal_rmse():
    target = np.random.default_rng(0).normal(size=(4, 3, 8, 8))
    assert marginal_rmse(target, target) == 0
    assert marginal_rmse(target + 0.3, target) == pytest.approx(0.3)


def test_refuses_bad_input():
    x, y = parametric_model(n=6)
    scale = np.ones(6)
    with pytest.raises(ValueError, match="optimum is 75; pass the Bayes accuracy as a fraction"):
        delta_bayes(x, y, 75)
    with pytest.raises(ValueError, match="y has 1 distinct labels"):
        delta_bayes(x, np.zeros(6), 0.75)
    with pytest.raises(ValueError, match="label with a single row"):
        delta_bayes(x, np.arange(6) == 0, 0.75)
    with pytest.raises(ValueError, match="lengths differ"):
        delta_bayes(x[:-1], y, 0.75)
    with pytest.raises(ValueError, match=r"reconstruction has shape \(6,\) and target \(5,\)"):
        marginal_rmse(x, x[:-1])
    with pytest.raises(ValueError, match="NaN or infinite"):
        marginal_rmse([np.nan], [0.0])
    with pytest.raises(ValueError, match="lengths differ.*'scale': 5"):
        posterior_kl_z(x, scale[:-1], x)
    with pytest.raises(ValueError, match="scale has a value of 0.0"):
        posterior_kl_z(x, 0 * scale, x)
    with pytest.raises(ValueError, match=r"loc has shape \(6, 2\); pass a single column"):
        posterior_kl_z(np.zeros((6, 2)), scale, x)
    with pytest.raises(ValueError, match="floor is -1"):
        posterior_kl_w(x, scale, x, y, floor=-1)
    for function in (posterior_kl_w, posterior_wasserstein_w):
        with pytest.raises(ValueError, match="pass the labels 0 and 1"):
            function(x, scale, x, y + 1)
    with pytest.raises(ValueError, match="lengths differ"):
        sample_parametric_posterior(x, y[:-1])
