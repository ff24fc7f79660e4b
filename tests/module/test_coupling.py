"""Counts at the same quantiles, against scipy's distribution functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scvi.distributions import NegativeBinomial, ZeroInflatedNegativeBinomial

from discovr_sc.module.coupling import at_same_quantiles

THETA = torch.tensor(2.0)


def nb(mu, theta=THETA):
    return NegativeBinomial(mu=torch.as_tensor(mu), theta=theta)


def zinb(mu, zeros):
    share = torch.tensor(zeros)
    return ZeroInflatedNegativeBinomial(mu=torch.tensor(mu), theta=THETA, zi_logits=torch.logit(share))


def test_under_equal_distributions_counts_stay():
    torch.manual_seed(0)
    own = zinb([0.01, 1.0, 50.0], [0.1, 0.5, 0.2])
    x = own.sample((500,))
    assert torch.equal(at_same_quantiles(x, own, own), x)


def test_counts_distributed_as_the_one_become_distributed_as_the_other():
    torch.manual_seed(0)
    own, other = nb([3.0]), zinb([8.0], [0.3])
    result = at_same_quantiles(own.sample((20_000,)), own, other).numpy().ravel()
    p = 2 / (2 + 8)
    counts = np.arange(25)
    expected = (1 - 0.3) * stats.nbinom.pmf(counts, 2, p) + 0.3 * (counts == 0)
    observed = np.array([(result == count).sum() for count in counts])
    rest = len(result) - observed.sum()
    test = stats.chisquare([*observed, rest], len(result) * np.array([*expected, 1 - expected.sum()]))
    assert test.pvalue > 0.01


def test_a_count_gets_the_counts_that_its_quantiles_have_in_the_other():
    torch.manual_seed(0)
    mu, other_mu = 4.0, 15.0
    for x in (0, 1, 7, 40):
        got = at_same_quantiles(torch.full((2000,), float(x)), nb(mu), nb(other_mu))
        below, up_to = (stats.nbinom.cdf(count, 2, 2 / (2 + mu)) for count in (x - 1, x))
        at_ends = stats.nbinom.ppf([below + 1e-12, up_to - 1e-12], 2, 2 / (2 + other_mu))
        assert got.min() >= at_ends[0]
        assert got.max() <= at_ends[1]
        middle = stats.nbinom.ppf((below + up_to) / 2, 2, 2 / (2 + other_mu))
        assert abs(got.median() - middle) <= 1


def test_large_counts_whose_zero_is_out_of_reach():
    torch.manual_seed(0)
    # The Poisson is the limit of large theta.
    near_poisson = torch.tensor(1e6)
    got = at_same_quantiles(torch.tensor([1000.0]), nb([1000.0], near_poisson), nb([4000.0], near_poisson))
    assert got.item() == pytest.approx(4000, abs=60)


def test_surprising_counts_are_scaled():
    counts, own = torch.tensor([5000.0, 40.0]), nb([0.01, 0.01])
    assert at_same_quantiles(counts, own, nb([0.02, 0.005])).tolist() == [10_000, 20]


def test_samples_share_the_counts_and_have_luck_of_their_own():
    torch.manual_seed(0)
    x = torch.tensor([[3.0, 0.0]]).expand(200, 1, 2)
    got = at_same_quantiles(x, nb([[2.0, 2.0]]), nb([[20.0, 0.2]]))
    assert got.shape == (200, 1, 2)
    assert got.dtype == x.dtype
    assert len(got[:, 0, 0].unique()) > 3
    assert (got[:, 0, 1] == 0).all()
