"""A seeded training gives the same bits as before, whatever was moved in the code.

``python tests/model/test_same_bits.py`` writes the references anew, when a change is meant to change numbers.
"""

import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
import scvi
import torch

import discovr_sc
from discovr_sc import data

REFERENCES = Path(__file__).with_name("same_bits.json")


def counts():
    adata = data.simulate_counts(n_cells=200, n_genes=60, n_conditions=3, n_batches=2, seed=0)
    return adata, {"condition_key": "condition", "batch_key": "batch"}


def partly_labelled():
    adata, _ = counts()
    adata.obs["condition"] = adata.obs["condition"].astype(str)
    adata.obs.loc[adata.obs_names[::7], "condition"] = "?"
    return adata, {"condition_key": ["condition", "batch"], "unlabeled_category": "?"}


def vectors():
    return data.noisy_swiss_roll(200, seed=0), {"condition_key": "condition", "tensor_key": "x"}


def images():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (120, 3, 28, 28), dtype=np.uint8)
    adata = data.tensors_to_anndata(x, np.arange(120) % 2)
    return adata, {"condition_key": "condition", "tensor_key": "x"}


SMALL_IMAGES = {"network": "cnn", "n_hidden": 16, "channels": (4, 4, 8, 8)}
CASES = {
    "DISCOVR-counts": ("DISCOVR", counts, {}),
    "DISCOVR-unknown": ("DISCOVR", partly_labelled, {"n_latent_w": 4}),
    "DISCOVR-vectors": ("DISCOVR", vectors, {"likelihood": "gaussian", "n_latent_z": 2, "prior": "condition-mean"}),
    "DISCOVR-images": ("DISCOVR", images, {"likelihood": "bernoulli", **SMALL_IMAGES}),
    "DISCOVR-paper": ("DISCOVR", counts, "kang"),
    **{name: (name, counts, {"n_latent_w": 3}) for name in ("CSVAE", "HCSVAE", "DIVA", "CCVAE", "CVAE")},
    "CSVAE-vectors": ("CSVAE", vectors, {"likelihood": "gaussian"}),
    "DIVA-images": ("DIVA", images, {"likelihood": "bernoulli", **SMALL_IMAGES}),
}


def outcome(case: str) -> dict[str, np.ndarray]:
    """Latents and answers of a model trained for two epochs."""
    name, make, settings = CASES[case]
    scvi.settings.seed = 0
    adata, setup = make()
    model_cls = getattr(discovr_sc, name)
    model_cls.setup_anndata(adata, **setup)
    model = model_cls.paper(adata, settings) if isinstance(settings, str) else model_cls(adata, **settings)
    model.train(max_epochs=2, batch_size=64, train_size=0.8, enable_progress_bar=False)
    found = {kind: model.get_latent_representation(kind=kind) for kind in model.latents}
    torch.manual_seed(1)
    found["marginal"] = model.get_reconstruction(kind="marginal")
    if setup["condition_key"] == "condition":
        target = model.conditions[1]
        for by in model.counterfactual_ways:
            predicted = model.predict_counterfactual(target=target, by=by, n_samples=2)
            found[f"counterfactual-{by}"] = predicted.obsm["x"] if "tensor_key" in setup else predicted.X
    if case == "DISCOVR-counts":
        for by in (None, "replicates"):
            key = {} if by is None else {"replicate_key": "replicate"}
            adata.obs["replicate"] = [f"r{i % 4}" for i in range(adata.n_obs)]
            table = model.differential_expression(target=target, reference=model.conditions[0], n_samples=200, **key)
            found[f"differential-{by}"] = table.select_dtypes("number").to_numpy(dtype=float)
        found["effect"] = model.get_condition_effect(n_samples=3).X
        found["predicted"] = model.predict_condition(n_samples=4).to_numpy()
        torch.manual_seed(2)
        found["expression"] = model.get_normalized_expression(n_samples=2, gene_list=["gene_3", "gene_1"])
        report = model.disentanglement_report("cell_type", probes=["linear"], estimators=[])
        found["report"] = report["value"].to_numpy(dtype=float)
    return {key: np.ascontiguousarray(value) for key, value in found.items()}


def machine() -> str:
    """What bits may depend on beside the code."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {platform.machine()}"


def described(values: np.ndarray) -> dict:
    """A hash, and a few numbers to compare where another machine rounds otherwise."""
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    return {"hash": digest, "mean": float(np.nanmean(values)), "sd": float(np.nanstd(values))}


@pytest.fixture(scope="module")
def references():
    return json.loads(REFERENCES.read_text())


@pytest.mark.parametrize("case", CASES)
def test_same_bits(case, references):
    torch.set_num_threads(1)
    found = {key: described(values) for key, values in outcome(case).items()}
    expected = references["outcomes"][case]
    assert found.keys() == expected.keys()
    if machine() == references["machine"]:
        assert {key: value["hash"] for key, value in found.items()} == {k: v["hash"] for k, v in expected.items()}
    for kind in ("z", "w"):
        if kind in expected:
            assert found[kind]["mean"] == pytest.approx(expected[kind]["mean"], abs=0.05)
            assert found[kind]["sd"] == pytest.approx(expected[kind]["sd"], rel=0.1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    outcomes = {case: {key: described(value) for key, value in outcome(case).items()} for case in CASES}
    REFERENCES.write_text(json.dumps({"machine": machine(), "outcomes": outcomes}, indent=1) + "\n")
    sys.exit(0)
