"""The paper's settings: architectures and loss weights of every method in every experiment."""

from __future__ import annotations

from typing import Any, NamedTuple

from discovr_sc.module.weights import Weights


class Row(NamedTuple):
    """One row of a loss-weight table of the paper, its columns in its order; None where it has a dash."""

    rec: float
    kl_z: float
    kl_w: float
    adv: float | None = None
    classify: float | None = None
    rec_z: float | None = None


#: Supplementary tables "Loss weights for the ... experiment".
WEIGHTS: dict[str, dict[str, Row]] = {
    "parametric": {
        "csvae-noadv": Row(1, 1, 1),
        "csvae": Row(2.5, 1, 0.5, adv=20),
        "hcsvae-noadv": Row(1, 1, 0.5),
        "hcsvae": Row(2.5, 1, 0.5, adv=20),
        "diva": Row(1, 1, 1, classify=1),
        "ccvae": Row(1, 1, 1, classify=1),
        "discovr": Row(0.75, 0.9, 0.2, adv=0.8, rec_z=0.25),
    },
    "swiss-roll": {
        "csvae-noadv": Row(20, 0.2, 1),
        "csvae": Row(20, 0.2, 1, adv=50),
        "hcsvae-noadv": Row(20, 0.2, 1),
        "hcsvae": Row(20, 0.5, 1, adv=50),
        "diva": Row(20, 0.2, 0.2, classify=1),
        "ccvae": Row(20, 0.2, 0.2, classify=1),
        "discovr": Row(0.9, 0.2, 0.2, adv=8, rec_z=0.1),
    },
    "colored-mnist": {
        "csvae-noadv": Row(1, 1e-4, 1),
        "csvae": Row(1, 1e-4, 1, adv=1),
        "hcsvae-noadv": Row(1e3, 1e-4, 1),
        "hcsvae": Row(1e4, 1e-4, 1, adv=1),
        "diva": Row(1, 1e-4, 1e-4, classify=1),
        "ccvae": Row(1, 1e-4, 1e-4, classify=1),
        "discovr": Row(0.5, 1e-4, 1e-4, adv=0.1, rec_z=0.5),
    },
    "celeba-glasses": {
        "csvae-noadv": Row(1, 1e-4, 1),
        "csvae": Row(1e3, 1e-4, 1, adv=1),
        "hcsvae-noadv": Row(1e3, 1e-4, 1),
        "hcsvae": Row(1e4, 1e-4, 1, adv=1),
        "diva": Row(1e5, 1e-4, 1e-4, classify=1),
        "ccvae": Row(1e5, 1e-4, 1e-4, classify=1),
        "discovr": Row(1e6, 1e-4, 1e-4, adv=2000, rec_z=1e5),
    },
    "kang": {
        "csvae-noadv": Row(1, 1e-4, 1),
        "csvae": Row(1, 1e-4, 1, adv=100),
        "hcsvae-noadv": Row(1, 1e-4, 1),
        "hcsvae": Row(1, 1e-4, 1, adv=100),
        "diva": Row(1, 1e-4, 1e-4, classify=1),
        "ccvae": Row(1, 1e-4, 1e-4, classify=1),
        "discovr": Row(0.9, 1e-4, 1e-4, adv=100, rec_z=0.1),
    },
}

#: Numbers per image. The paper's weights of its image experiments are for a likelihood *averaged* over them: beside
#: a sum of hundreds of nats an adversary of weight 0.1 would have no say, nor would a KL term of weight 1e-4; and the
#: paper's likelihoods of CelebA (131 to 146) are half a summed squared error, which its weights give where they weigh
#: the mean. Likelihoods here are summed, so the weights of reconstructions are divided by these, for all methods alike.
VALUES_PER_IMAGE = {"colored-mnist": 3 * 28 * 28, "celeba-glasses": 3 * 64 * 64}

#: Latent sizes, networks and likelihoods. Not in the paper: noise scales, normalisation and dropout (for cells as in
#: scVI); the image likelihood (here Bernoulli for digits, a choice of ours, and for faces a Gaussian of unit
#: scale around a mean in [0, 1]); CelebA's latent sizes (that of z here as in Larsen et al. 2016, whose networks the
#: paper names). The weights for CelebA's glasses serve for hats, too.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "parametric": {
        "n_latent_z": 1,
        "n_latent_w": 1,
        "n_hidden": 8,
        "n_layers": 2,
        "likelihood": "gaussian",
        "noise_scale": 0.5,
        "use_batch_norm": False,
        "dropout_rate": 0.0,
    },
    "swiss-roll": {
        "n_latent_z": 2,
        "n_latent_w": 2,
        "n_hidden": 128,
        "n_layers": 2,
        "likelihood": "gaussian",
        "noise_scale": 0.2,
        "use_batch_norm": False,
        "dropout_rate": 0.0,
    },
    "colored-mnist": {
        "n_latent_z": 20,
        "n_latent_w": 2,
        "n_hidden": 4096,
        "n_layers": 2,
        "network": "cnn",
        "classifier_batch_norm": True,
        "likelihood": "bernoulli",
        "dropout_rate": 0.0,
    },
    "celeba-glasses": {
        "n_latent_z": 128,
        "n_latent_w": 16,
        "n_hidden": 2048,
        "n_layers": 1,
        "network": "larsen",
        "likelihood": "image-gaussian",
        "dropout_rate": 0.0,
    },
    "kang": {
        "n_latent_z": 10,
        "n_latent_w": 2,
        "n_hidden": 128,
        "n_layers": 1,
        "likelihood": "zinb",
        "dropout_rate": 0.1,
    },
}

#: Learning rates; CelebA's is not in the paper.
LEARNING_RATES = {
    "parametric": 1e-3,
    "swiss-roll": 1e-3,
    "colored-mnist": 1e-4,
    "celeba-glasses": 1e-4,
    "kang": 1e-3,
}


def paper_weights(method: str, experiment: str) -> Weights:
    """Loss weights of a method in an experiment, for summed likelihoods; a dash of the table is a 0."""
    if experiment not in WEIGHTS:
        raise ValueError(f"experiment={experiment!r} is not one of the paper's; choose from {list(WEIGHTS)}.")
    rows = WEIGHTS[experiment]
    if method not in rows:
        raise ValueError(f"method={method!r} is not in the paper's table of weights; choose from {list(rows)}.")
    weights = {term: weight or 0.0 for term, weight in rows[method]._asdict().items()}
    for term in ("rec", "rec_z"):
        weights[term] /= VALUES_PER_IMAGE.get(experiment, 1)
    return Weights(**weights)
