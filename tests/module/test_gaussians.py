"""Densities and divergences of Gaussians and of their mixtures, against torch's own and against sampling."""

from __future__ import annotations

import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from discovr_sc.module.gaussians import Mixture, kl, log_prob

LOG_SHARES = torch.tensor([0.2, 0.5, 0.3]).log()
COMPONENTS = Normal(torch.tensor([[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]]), torch.ones(3, 2))
MIXTURE = Mixture(LOG_SHARES, COMPONENTS)
TORCHS = MixtureSameFamily(Categorical(logits=LOG_SHARES), Independent(COMPONENTS, 1))


def test_log_density_of_a_mixture_is_torchs():
    value = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(log_prob(MIXTURE, value), TORCHS.log_prob(value))


def test_kl_from_a_mixture_of_one_is_that_from_its_component():
    q = Normal(torch.tensor([[0.3, -1.0], [2.0, 0.5]]), torch.tensor([[0.5, 1.5], [1.0, 0.2]]))
    one = Mixture(torch.zeros(1), Normal(COMPONENTS.loc[1:2], COMPONENTS.scale[1:2]))
    torch.testing.assert_close(kl(q, one), kl(q, Normal(COMPONENTS.loc[1], COMPONENTS.scale[1])))


def test_kl_from_a_mixture_is_a_bound_that_is_tight_where_a_cell_belongs_to_one_component():
    between, inside = [1.5, 0.5], [3.0, 1.0]
    q = Normal(torch.tensor([between, inside]), torch.full((2, 2), 0.5))
    torch.manual_seed(0)
    sample = q.sample((200_000,))
    sampled = (log_prob(q, sample) - TORCHS.log_prob(sample)).mean(0)
    bound = kl(q, MIXTURE)
    assert (bound >= sampled - 0.01).all()
    to_each = torch.stack([kl(q, Normal(loc, torch.ones(2))) for loc in COMPONENTS.loc])  # (3, 2)
    assert (bound <= (to_each - LOG_SHARES.unsqueeze(-1)).min(0).values).all()  # no worse than the best component alone
    torch.testing.assert_close(bound[1], sampled[1], atol=0.02, rtol=0)
