"""The sparse first layer beside torch's own."""

import pytest
import torch

from discovr_sc.module.counts import NonZero
from discovr_sc.module.networks import Dense
from discovr_sc.module.sparse import SHORT, SparseRows


def rows_of(x):
    nonzero = NonZero.of(x)
    return SparseRows.of(nonzero.counts, nonzero.cells, nonzero.genes, tuple(x.shape))


@pytest.mark.parametrize("n_columns", [30, SHORT + 10])
@pytest.mark.parametrize("covariates", [False, True])
def test_a_sparse_layer_equals_the_dense_one_in_value_and_gradient(n_columns, covariates):
    rng = torch.Generator().manual_seed(0)
    x = torch.poisson(torch.full((6, n_columns), 0.1, dtype=torch.float64), generator=rng)
    x[2] = 0  # a cell without counts
    cats = [torch.arange(6).unsqueeze(-1) % 3] if covariates else []
    cont = torch.randn(6, 2, generator=rng, dtype=torch.float64) if covariates else None
    sizes = {"n_cat_list": [3] if covariates else [], "n_cont": 2 if covariates else 0}
    dense = Dense(n_columns, 4, n_layers=2, n_hidden=4, dropout_rate=0.0, **sizes).double()
    results = []
    for given in (x, rows_of(x)):
        out = dense(given, *cats, cont=cont)
        gradient = torch.autograd.grad(out.square().sum() + out[:, 0].sum(), list(dense.parameters()))
        results.append([out, *gradient])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_rows_of_torch_are_taken_as_they_are():
    x = torch.poisson(torch.full((5, 7), 0.5))
    for ours, theirs in zip(NonZero.of(x.to_sparse_csr()), NonZero.of(x), strict=True):
        torch.testing.assert_close(ours, theirs)
