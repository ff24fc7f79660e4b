"""The disentanglement report: what is in it, and that it tells leakage."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc import CVAE, DISCOVR, metrics
from discovr_sc.tools.report import fresh_probes


@pytest.fixture
def model(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_latent_z=3, n_hidden=16)
    model.train(max_epochs=2, train_size=0.7, validation_size=0.1, enable_progress_bar=False)
    return model


def test_report_is_tidy_and_complete(model):
    report = model.disentanglement_report("cell_type", probes=("linear", "knn"))
    assert not report.duplicated(["split", "latent", "of", "metric"]).any()
    assert set(report["split"]) == {"train", "held-out"}
    assert np.isfinite(report["value"]).all()
    of_composition = report["metric"].isin(["composition_floor", "leak_within_types", "type_transfer"])
    assert set(report.loc[of_composition, "metric"]) == {"composition_floor", "leak_within_types", "type_transfer"}
    per_latent = (
        report[(report["latent"] != "zw") & (report["metric"] != "fresh_probe") & ~of_composition]
        .groupby(["split", "latent", "of"])["metric"]
        .agg(set)
    )
    assert len(per_latent) == 2 * 2 * 2
    expected = {"probe_linear", "probe_knn", "probe_best", "kmeans_nmi", "kmeans_nmi_best_dimension"}
    assert all(names == expected | {"kmeans_ari", "silhouette"} for names in per_latent)
    information = report[report["latent"] == "zw"]
    assert set(information["metric"]) == {f"knn_{name}" for name in ("yz", "yw", "wz", "wz_given_y", "mig", "mic")}
    probes = report[report["metric"].str.startswith("probe")]
    assert (probes["low"] <= probes["value"]).all()
    assert (probes["value"] <= probes["high"]).all()


def test_one_seed_one_report_and_torch_is_left_alone(model):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again = (model.disentanglement_report(probes=("knn",), seed=1) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert torch.rand(1) == expected


def test_held_out_probes_are_fitted_on_training_cells_and_scored_on_the_others(model, counts):
    report = model.disentanglement_report(probes=("knn",)).set_index(["split", "latent", "of", "metric"])["value"]
    z, y = model.get_latent_representation(), counts.obs["condition"].astype(str).to_numpy()
    result = metrics.probe(z, y, kind="knn", train=np.sort(model.train_indices))
    assert result.n_test == 120 - len(model.train_indices)
    assert report["held-out", "z", "condition", "probe_knn"] == result.accuracy


def test_a_leaking_latent_is_seen(model, counts, monkeypatch):
    """The condition written into one dimension of z: every probe and the mutual information must tell."""

    def values():
        report = model.disentanglement_report(probes=("linear", "knn"))
        return report.set_index(["split", "latent", "metric"])["value"]

    clean = values()
    codes = counts.obs["condition"].cat.codes.to_numpy()
    latent = model.get_latent_representation

    def leak(*args, kind="z", **kwargs):
        x = latent(*args, kind=kind, **kwargs).copy()
        if kind == "z":
            x[:, 0] = codes + 0.01 * x[:, 0]
        return x

    monkeypatch.setattr(model, "get_latent_representation", leak)
    leaking = values()
    for split in ("train", "held-out"):
        assert leaking[split, "z", "probe_linear"] > 0.9 > clean[split, "z", "probe_linear"]
        assert leaking[split, "z", "kmeans_nmi_best_dimension"] > 0.9 > clean[split, "z", "kmeans_nmi_best_dimension"]
        assert leaking[split, "zw", "knn_yz"] > clean[split, "zw", "knn_yz"] + 0.1


def test_without_held_out_cells_there_is_no_such_split(counts):
    CVAE.setup_anndata(counts, "condition")
    model = CVAE(counts, n_hidden=8)
    model.train(max_epochs=1, train_size=1.0, enable_progress_bar=False)
    report = model.disentanglement_report(probes=("linear",))
    assert set(report["split"]) == {"train"}
    assert set(report["latent"]) == {"z"}


def test_a_model_loaded_with_other_cells_has_no_report(model, counts, tmp_path):
    model.save(tmp_path / "model")
    other = DISCOVR.load(tmp_path / "model", counts[:80].copy())
    with pytest.raises(ValueError, match="needs the AnnData that the model was trained on"):
        other.disentanglement_report()
    same = DISCOVR.load(tmp_path / "model", counts.copy())
    assert len(same.disentanglement_report(probes=("linear",))) > 10


def test_bad_keys_raise(model, counts):
    with pytest.raises(KeyError, match="cell_type_key 'mood' is not a column"):
        model.disentanglement_report("mood")
    counts.obs["partial"] = [None] + ["a"] * 119
    with pytest.raises(ValueError, match="'partial' has missing values"):
        model.disentanglement_report("partial")


def test_rare_labels_are_left_out_and_named(model, counts):
    counts.obs["type"] = ["odd"] + ["a", "b", "c"] * 39 + ["a", "b"]
    with pytest.warns(
        UserWarning, match=r"'type': labels with fewer than 5 cells .* left out of the report: \['odd'\]"
    ):
        report = model.disentanglement_report("type", probes=("linear",))
    assert np.isfinite(report["value"]).all()
    counts.obs["one"] = ["odd"] + ["a"] * 119
    with pytest.raises(ValueError, match="'one' has fewer than two labels with 5 cells"):
        model.disentanglement_report("one")
    with pytest.raises(ValueError, match="cell_type_key 'age' has 120 different values; it needs groups"):
        model.disentanglement_report("age")


@pytest.mark.parametrize("train_size", [0.7, 1.0])
def test_a_fresh_probe_looks_where_the_adversary_looked(counts, train_size):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8, adversary="both")
    model.train(2, train_size=train_size, enable_progress_bar=False)
    split = "train" if train_size == 1 else "held-out"
    report = model.disentanglement_report(probes=["linear"], estimators=[])
    fresh = report[report["metric"] == "fresh_probe"].set_index("latent")
    assert set(fresh.index) == {"z", "reconstruction"} and set(fresh["split"]) == {split}
    for place, latent in (("latent", "z"), ("reconstruction", "reconstruction")):
        curve = model.history_[f"fresh_probe_{place}"]
        assert list(curve.index) == [1] and curve.iloc[0, 0] == fresh.loc[latent, "value"]
        assert 0 < curve.iloc[0, 0] <= 1
    state = torch.get_rng_state()
    again = fresh_probes(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert again["latent"] == fresh.loc["z", "value"]


def test_a_fresh_probe_reads_what_a_view_tells(counts, monkeypatch):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8, adversary="reconstruction")
    model.train(1, train_size=0.5, enable_progress_bar=False)
    for tells, expected in ((True, 1.0), (False, 1 / 3)):

        def view(q, p, tells=tells):
            told = torch.nn.functional.one_hot(q["y"], 3).float()
            return {"reconstruction": (told if tells else torch.zeros_like(told)).repeat(1, 30)}

        monkeypatch.setattr(model.module, "adversary_views", view)
        assert fresh_probes(model) == {"reconstruction": pytest.approx(expected)}


def test_without_an_adversary_or_cells_there_is_no_fresh_probe(counts):
    DISCOVR.setup_anndata(counts, "condition")
    model = DISCOVR(counts, n_hidden=8, weights={"adv": 0.0})
    model.train(1, enable_progress_bar=False)
    assert fresh_probes(model) == {} and not [name for name in model.history_ if name.startswith("fresh_probe")]
    model = DISCOVR(counts, n_hidden=8)
    model.train(1, train_size=0.95, enable_progress_bar=False)  # six cells of three conditions
    assert fresh_probes(model) == {}
