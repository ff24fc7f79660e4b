"""The paper's experiments: their loss weights, latent sizes and networks."""

from __future__ import annotations

from typing import Any, NamedTuple

from discovr_sc.settings.weights import Weights


class Row(NamedTuple):
    """One row of a loss-weight table of the paper, its columns in its order; None where it has a dash."""

    rec: float
    kl_z: float
    kl_w: float
    adv: float | None = None
    classify: float | None = None
    rec_z: float | None = None


class Experiment(NamedTuple):
    """Settings of one of the paper's experiments.

    Not in the paper, and chosen here: noise scales, normalisation and dropout (for cells as in scVI); the image
    likelihood (Bernoulli for digits, a Gaussian of unit scale for faces); CelebA's learning rate and latent sizes (z as
    in Larsen et al. 2016, whose networks the paper names). The weights for CelebA's glasses serve for hats, too.
    """

    #: Latent sizes, networks and likelihood, for every method.
    architecture: dict[str, Any]
    #: Supplementary table "Loss weights for the ... experiment", by method.
    weights: dict[str, Row]
    lr: float = 1e-3
    #: Numbers per image. The paper's image weights are for a likelihood *averaged* over them: beside a sum, its
    #: adversary would be ignored, and its likelihoods of CelebA (131 to 146) are those of a mean. Likelihoods here are
    #: summed, so the weights of reconstructions are divided by these, for all methods alike.
    n_values: int = 1


#: Steps of the adversary for one of the model, and its learning rate relative to the model's: the paper prints neither,
#: and at 1 and 1 the adversary falls behind. Chosen on Kang's validation cells: docs/reading_the_paper.md.
ADVERSARY_STEPS, ADVERSARY_RATE = 3, 3.0

#: The noise scale is that of DISCOVR, in both synthetic experiments; the studies have every other method's own.
SMALL = {"likelihood": "gaussian", "n_layers": 2, "use_batch_norm": False, "dropout_rate": 0.0, "noise_scale": 0.5}
PAPER: dict[str, Experiment] = {
    "parametric": Experiment(
        architecture=SMALL | {"n_latent_z": 1, "n_latent_w": 1, "n_hidden": 8},
        weights={
            "csvae-noadv": Row(1, 1, 1),
            "csvae": Row(2.5, 1, 0.5, adv=20),
            "hcsvae-noadv": Row(1, 1, 0.5),
            "hcsvae": Row(2.5, 1, 0.5, adv=20),
            "diva": Row(1, 1, 1, classify=1),
            "ccvae": Row(1, 1, 1, classify=1),
            "discovr": Row(0.75, 0.9, 0.2, adv=0.8, rec_z=0.25),
        },
    ),
    "swiss-roll": Experiment(
        architecture=SMALL | {"n_latent_z": 2, "n_latent_w": 2, "n_hidden": 128},
        weights={
            "csvae-noadv": Row(20, 0.2, 1),
            "csvae": Row(20, 0.2, 1, adv=50),
            "hcsvae-noadv": Row(20, 0.2, 1),
            "hcsvae": Row(20, 0.5, 1, adv=50),
            "diva": Row(20, 0.2, 0.2, classify=1),
            "ccvae": Row(20, 0.2, 0.2, classify=1),
            "discovr": Row(0.9, 0.2, 0.2, adv=8, rec_z=0.1),
        },
    ),
    "colored-mnist": Experiment(
        architecture={"n_latent_z": 20, "n_latent_w": 2, "n_hidden": 4096, "n_layers": 2, "network": "cnn"}
        | {"likelihood": "bernoulli", "classifier_batch_norm": True, "dropout_rate": 0.0},
        lr=1e-4,
        n_values=3 * 28 * 28,
        weights={
            "csvae-noadv": Row(1, 1e-4, 1),
            "csvae": Row(1, 1e-4, 1, adv=1),
            "hcsvae-noadv": Row(1e3, 1e-4, 1),
            "hcsvae": Row(1e4, 1e-4, 1, adv=1),
            "diva": Row(1, 1e-4, 1e-4, classify=1),
            "ccvae": Row(1, 1e-4, 1e-4, classify=1),
            "discovr": Row(0.5, 1e-4, 1e-4, adv=0.1, rec_z=0.5),
        },
    ),
    "celeba-glasses": Experiment(
        architecture={"n_latent_z": 128, "n_latent_w": 16, "n_hidden": 2048, "n_layers": 1, "network": "larsen"}
        | {"likelihood": "image-gaussian", "dropout_rate": 0.0},
        lr=1e-4,
        n_values=3 * 64 * 64,
        weights={
            "csvae-noadv": Row(1, 1e-4, 1),
            "csvae": Row(1e3, 1e-4, 1, adv=1),
            "hcsvae-noadv": Row(1e3, 1e-4, 1),
            "hcsvae": Row(1e4, 1e-4, 1, adv=1),
            "diva": Row(1e5, 1e-4, 1e-4, classify=1),
            "ccvae": Row(1e5, 1e-4, 1e-4, classify=1),
            "discovr": Row(1e6, 1e-4, 1e-4, adv=2000, rec_z=1e5),
        },
    ),
    "kang": Experiment(
        architecture={"n_latent_z": 10, "n_latent_w": 2, "n_hidden": 128, "n_layers": 1}
        | {"likelihood": "zinb", "dropout_rate": 0.1},
        weights={
            "csvae-noadv": Row(1, 1e-4, 1),
            "csvae": Row(1, 1e-4, 1, adv=100),
            "hcsvae-noadv": Row(1, 1e-4, 1),
            "hcsvae": Row(1, 1e-4, 1, adv=100),
            "diva": Row(1, 1e-4, 1e-4, classify=1),
            "ccvae": Row(1, 1e-4, 1e-4, classify=1),
            "discovr": Row(0.9, 1e-4, 1e-4, adv=100, rec_z=0.1),
        },
    ),
}


def paper_weights(method: str, experiment: str) -> Weights:
    """Loss weights of a method in an experiment, for summed likelihoods; a dash of the table is a 0."""
    if experiment not in PAPER:
        raise ValueError(f"experiment={experiment!r} is not one of the paper's; choose from {list(PAPER)}.")
    if method not in (rows := PAPER[experiment].weights):
        raise ValueError(f"method={method!r} is not in the paper's table of weights; choose from {list(rows)}.")
    weights = {term: weight or 0.0 for term, weight in rows[method]._asdict().items()}
    for term in ("rec", "rec_z"):
        weights[term] /= PAPER[experiment].n_values
    return Weights(**weights)


def paper_settings(method: str, experiment: str) -> dict[str, Any]:
    """Constructor arguments of a method in one of the paper's experiments."""
    weights = paper_weights(method, experiment)
    # Without batch norm, the hidden units of the adversary die within some epochs: docs/reading_the_paper.md.
    settings = {"weights": weights, "classifier_batch_norm": weights.adv > 0} | PAPER[experiment].architecture
    if method != "discovr":
        return settings
    # The paper, where sizes differ: "by parameterizing p(w | y) through neural networks".
    same_size = settings["n_latent_z"] == settings["n_latent_w"]
    return settings | {
        "likelihood_z": settings["likelihood"],
        "zero_inflation": "gene-cell",
        "n_components_z": 1,
        "prior": "condition-mean" if same_size else "learned",
        "center_w": not same_size,
        "adversary": "reconstruction",
        "adversary_trains": "encoder",
        # "All other neural networks are formulated as MLPs", on images, too.
        "network_adversary": "mlp",
        "n_hidden_adversary": None,
        "n_layers_adversary": None,
    }


def paper_plan(experiment: str) -> dict[str, Any]:
    """Settings of the training plan in one of the paper's experiments."""
    lr = PAPER[experiment].lr
    return {"lr": lr, "adversary_lr": ADVERSARY_RATE * lr, "n_adversary_steps": ADVERSARY_STEPS}
