"""Networks: shapes, covariates, and what they refuse."""

from __future__ import annotations

import pytest
import torch

from discovr_sc.module.networks import NETWORKS

SIZES = {"n_hidden": 16, "n_layers": 2, "dropout_rate": 0.0, "use_batch_norm": True}


@pytest.mark.parametrize(("name", "shape"), [("mlp", (5,)), ("cnn", (3, 28, 28)), ("cnn", (1, 9, 13))])
def test_encoders_decoders_and_classifiers_fit_the_data(name, shape):
    family = NETWORKS[name](shape, **SIZES)
    x, batch = torch.rand(4, *shape), torch.tensor([[0], [1], [2], [0]])
    cont = torch.randn(4, 2)
    q = family.encoder(6, (3,), 2)(x, batch, cont=cont)
    assert q.loc.shape == q.scale.shape == (4, 6)
    assert (q.scale > 0).all()
    decoder = family.decoder(6, ("a", "b"), (3,), 2).eval()
    assert {k: v.shape for k, v in decoder(q.loc, batch, cont=cont).items()} == {"a": (4, *shape), "b": (4, *shape)}
    several = decoder(torch.stack([q.loc, q.loc + 1]), batch, cont=cont)["a"]
    assert several.shape == (2, 4, *shape)
    torch.testing.assert_close(several[0], decoder(q.loc, batch, cont=cont)["a"])
    assert family.data_classifier(3)(x).shape == (4, 3)
    assert family.latent_classifier(6, 3)(q.loc).shape == (4, 3)


def test_covariates_change_the_decoding():
    torch.manual_seed(0)
    decoder = NETWORKS["mlp"]((5,), **SIZES).decoder(2, ("loc",), (2,)).eval()
    latent = torch.randn(3, 2)
    first, second = (decoder(latent, torch.full((3, 1), b))["loc"] for b in (0, 1))
    assert (first - second).abs().max() > 1e-3


def test_the_papers_image_sizes():
    convolutions = NETWORKS["cnn"]((3, 28, 28), **SIZES).encoder(6).features.convolutions
    sizes, h = [], torch.rand(2, 3, 28, 28)
    for layer in convolutions[:-1]:
        h = layer(h)
        sizes.append(h.shape[-1])
    assert sorted(set(sizes), reverse=True) == [28, 14, 7, 3]
    assert h.shape[1] == 128


@pytest.mark.parametrize(("name", "shape"), [("mlp", (3, 8, 8)), ("cnn", (10,)), ("cnn", (3, 7, 28))])
def test_shapes_that_do_not_fit_raise(name, shape):
    with pytest.raises(ValueError, match=r"has shape|shape \("):
        NETWORKS[name](shape, **SIZES)
