"""Networks: shapes, covariates, and what they refuse."""

from __future__ import annotations

import pytest
import torch

from discovr_sc.module.networks import ADVERSARY_NETWORKS, NETWORKS
from discovr_sc.settings import Settings

SIZES = {"n_hidden": 16, "n_layers": 2, "dropout_rate": 0.0, "use_batch_norm": True}


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", (5,)), ("cnn", (3, 28, 28)), ("cnn", (1, 9, 13)), ("larsen", (3, 64, 64)), ("larsen", (1, 8, 16))],
)
def test_encoders_decoders_and_classifiers_fit_the_data(name, shape):
    family = NETWORKS[name](shape, Settings(**SIZES))
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
    decoder = NETWORKS["mlp"]((5,), Settings(**SIZES)).decoder(2, ("loc",), (2,)).eval()
    latent = torch.randn(3, 2)
    first, second = (decoder(latent, torch.full((3, 1), b))["loc"] for b in (0, 1))
    assert (first - second).abs().max() > 1e-3


def test_the_papers_image_sizes():
    convolutions = NETWORKS["cnn"]((3, 28, 28), Settings(**SIZES)).encoder(6).features.convolutions
    sizes, h = [], torch.rand(2, 3, 28, 28)
    for layer in convolutions[:-1]:
        h = layer(h)
        sizes.append(h.shape[-1])
    assert sorted(set(sizes), reverse=True) == [28, 14, 7, 3]
    assert h.shape[1] == 128


def layers(network: torch.nn.Module) -> list[str]:
    """What a network is made of, in order: convolutions and linear layers with their sizes, and the rest by name."""
    found = []
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            found.append(f"{type(module).__name__}({module.in_channels},{module.out_channels})")
        elif isinstance(module, torch.nn.Linear):
            found.append(f"Linear({module.out_features})")
        elif isinstance(module, torch.nn.MaxPool2d | torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.Upsample):
            found.append(type(module).__name__)
    return found


TABLED = {"n_hidden": 4096, "n_layers": 2, "dropout_rate": 0.0, "use_batch_norm": True, "classifier_batch_norm": True}
DENSE = ["Linear(4096)", "BatchNorm1d"] * 2


def test_the_papers_tables_for_coloured_mnist():
    family = NETWORKS["cnn"]((3, 28, 28), Settings(**TABLED))
    encoder = ["Conv2d(3,32)", "BatchNorm2d"]
    for sizes in ("32,32", "32,64", "64,128"):
        encoder += [f"Conv2d({sizes})", "BatchNorm2d", "MaxPool2d"]
    assert layers(family.encoder(20)) == [*encoder, *DENSE, "Linear(20)", "Linear(20)"]  # means and scales
    decoder = [*DENSE, "Linear(1152)"]
    for sizes in ("128,64", "64,32", "32,32"):
        decoder += ["Upsample", f"Conv2d({sizes})", "BatchNorm2d"]
    assert layers(family.decoder(22, ("loc",))) == [*decoder, "Conv2d(32,3)"]
    assert layers(family.latent_classifier(20, 2)) == [*DENSE, "Linear(2)"]


def test_larsens_table():
    family = NETWORKS["larsen"]((3, 64, 64), Settings(**TABLED | {"n_hidden": 2048, "n_layers": 1}))
    encoder = family.encoder(128)
    convolutions = [step for sizes in ("3,64", "64,128", "128,256") for step in (f"Conv2d({sizes})", "BatchNorm2d")]
    assert layers(encoder) == [*convolutions, "Linear(2048)", "BatchNorm1d", "Linear(128)", "Linear(128)"]
    assert encoder.features.convolutions(torch.rand(2, 3, 64, 64)).shape == (2, 256 * 8 * 8)
    up = [step for sizes in ("256,256", "256,128", "128,32") for step in (f"ConvTranspose2d({sizes})", "BatchNorm2d")]
    assert layers(family.decoder(144, ("loc",))) == ["Linear(16384)", "BatchNorm1d", *up, "Conv2d(32,3)"]


def test_widths_are_settable():
    family = NETWORKS["cnn"]((3, 28, 28), Settings(**SIZES, channels=(2, 3, 4, 5)))
    assert [step for step in layers(family.encoder(6)) if "Conv" in step] == [
        "Conv2d(3,2)",
        "Conv2d(2,3)",
        "Conv2d(3,4)",
        "Conv2d(4,5)",
    ]
    larsen = NETWORKS["larsen"]((3, 64, 64), Settings(**SIZES, channels=(4, 6, 8))).decoder(6, ("loc",))
    assert [step for step in layers(larsen) if "Transpose" in step][-1] == "ConvTranspose2d(6,2)"


@pytest.mark.parametrize(("name", "shape", "channels"), [("mlp", (5,), (3,)), ("cnn", (3, 28, 28), (8, 8, 0, 8))])
def test_widths_that_do_not_fit_raise(name, shape, channels):
    with pytest.raises(ValueError, match="channels is"):
        NETWORKS[name](shape, Settings(**SIZES, channels=channels))


def test_a_fully_connected_adversary_takes_images():
    classifier = ADVERSARY_NETWORKS["mlp"]((3, 9, 8), Settings(**SIZES)).data_classifier(2)
    assert classifier(torch.rand(4, 3, 9, 8)).shape == (4, 2)
    assert layers(classifier) == ["Linear(16)", "Linear(16)", "Linear(2)"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", (3, 8, 8)), ("cnn", (10,)), ("cnn", (3, 7, 28)), ("larsen", (3, 28, 28)), ("larsen", (64,))],
)
def test_shapes_that_do_not_fit_raise(name, shape):
    with pytest.raises(ValueError, match=r"has shape|shape \("):
        NETWORKS[name](shape, Settings(**SIZES))
