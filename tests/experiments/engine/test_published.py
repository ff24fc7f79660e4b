from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from discovr_sc.experiments.engine import published
from discovr_sc.experiments.engine.published import BLOCKS, load_published

ROOT = Path(__file__).parents[3]
PAPER = ROOT / ".." / "shared" / "paper" / "discovr.tex"
KEY = ["study", "variant", "method", "metric"]
NONE = np.nan

METHODS = {
    "csvae-noadv",
    "csvae",
    "hcsvae-noadv",
    "hcsvae",
    "diva",
    "ccvae",
    "discovr-paper",
    "discovr-separable",
    "truth",
    "posterior-untruncated",
}
SEVEN = METHODS - {"discovr-separable", "truth", "posterior-untruncated"}

ROWS = {
    "parametric": 7 * 4 + 2 * 10 * 6 + 7 * 3,
    "swiss-roll": 7 * 3 + 2 * 8 * 6 + 7 * 3,
    "ablations": 2 * 5 * 6,
    "colored-mnist": 7 * 5 + 7 * 3,
    "celeba-glasses": 7 * 2 + 1 + 7 * 3,
    "celeba-hats": 7 * 2 + 1,
    "kang": 7 * 3 + 7 * 3,
}

PRINTED = [
    # Parametric model: main table, kNN, MINE.
    ("parametric", "", "csvae-noadv", "nll", 1.810, 0.016),
    ("parametric", "", "csvae", "kl_z", 2.85, 1.11),
    ("parametric", "", "hcsvae", "kl_w", 26.25, 0.59),
    ("parametric", "", "discovr-paper", "nll", 1.769, 0.003),
    ("parametric", "", "discovr-paper", "delta_bayes_w", 0.1, 0.28),
    ("parametric", "", "csvae", "mig_paper", 0.067, 0.010),
    ("parametric", "", "discovr-separable", "knn_wz_given_y_paper", 0.031, 0.005),
    ("parametric", "", "discovr-paper", "mic_paper", 0.938, 0.035),
    ("parametric", "", "ccvae", "knn_yz_paper", 0.022, 0.043),
    ("parametric", "", "posterior-untruncated", "knn_wz_paper", 0.144, 0.003),
    ("parametric", "", "truth", "knn_yw_paper", 0.643, 0.000),
    ("parametric", "", "csvae-noadv", "mine_wz", 0.096, 0.034),
    ("parametric", "", "diva", "mic_mine", 0.798, 0.398),
    ("parametric", "", "discovr-separable", "mine_yw", 0.543, 0.018),
    ("parametric", "", "posterior-untruncated", "mine_yz", 0.084, 0.003),
    ("parametric", "", "truth", "mig_paper_mine", 0.046, 0.002),
    ("parametric", "", "truth", "mine_wz_given_y", 0.057, 0.004),
    # Noisy Swiss roll: main table, kNN, MINE.
    ("swiss-roll", "flip=0.3", "csvae", "mine_wz_main", 0.031, 0.025),
    ("swiss-roll", "flip=0.3", "csvae-noadv", "nll", 3.303, 0.003),
    ("swiss-roll", "flip=0.3", "hcsvae", "delta_bayes_w", 30.00, 0.00),
    ("swiss-roll", "flip=0.3", "discovr-paper", "delta_bayes_w", 1.14, 0.21),
    ("swiss-roll", "flip=0.3", "csvae-noadv", "knn_yw_paper", 0.525, 0.221),
    ("swiss-roll", "flip=0.3", "ccvae", "knn_wz_paper", 2.952, 0.124),
    ("swiss-roll", "flip=0.3", "ccvae", "mig_paper", -0.001, 0.003),
    ("swiss-roll", "flip=0.3", "discovr-paper", "knn_wz_given_y_paper", 0.014, 0.008),
    ("swiss-roll", "flip=0.3", "truth", "mic_paper", 1.000, 0.000),
    ("swiss-roll", "flip=0.3", "diva", "mine_wz", 0.313, 0.084),
    ("swiss-roll", "flip=0.3", "ccvae", "mig_paper_mine", -0.002, 0.004),
    ("swiss-roll", "flip=0.3", "hcsvae", "mic_mine", 0.997, 0.001),
    ("swiss-roll", "flip=0.3", "truth", "mine_yw", 0.024, 0.018),
    # Adversary weights.
    ("ablations", "adv=0", "discovr-paper", "knn_wz_paper", 0.887, NONE),
    ("ablations", "adv=6", "discovr-paper", "mic_paper", 0.873, NONE),
    ("ablations", "adv=8", "discovr-paper", "knn_wz_given_y_paper", 0.017, NONE),
    ("ablations", "adv=2", "discovr-paper", "mic_mine", 0.182, NONE),
    ("ablations", "adv=4", "discovr-paper", "mig_paper_mine", -0.005, NONE),
    ("ablations", "adv=8", "discovr-paper", "mine_yw", 0.066, NONE),
    # Coloured MNIST.
    ("colored-mnist", "flip=0", "hcsvae", "marginal_rmse", 0.079, 0.030),
    ("colored-mnist", "flip=0", "discovr-paper", "marginal_rmse", 0.064, 0.000),
    ("colored-mnist", "flip=0.1", "diva", "marginal_rmse", 0.115, 0.011),
    ("colored-mnist", "flip=0.2", "csvae", "marginal_rmse", 0.152, 0.018),
    ("colored-mnist", "flip=0.3", "csvae", "marginal_rmse", 0.181, 0.007),
    ("colored-mnist", "flip=0.4", "discovr-paper", "marginal_rmse", 0.087, 0.001),
    # CelebA.
    ("celeba-glasses", "", "hcsvae-noadv", "nll", 131.813, 0.21),
    ("celeba-glasses", "", "discovr-paper", "mine_wz", 0.030, 0.011),
    ("celeba-glasses", "", "discovr-paper", "nll_z", 374.114, 0.05),
    ("celeba-hats", "", "hcsvae-noadv", "nll", 2608.442, NONE),
    ("celeba-hats", "", "ccvae", "mine_wz", 0.856, NONE),
    ("celeba-hats", "", "discovr-paper", "nll_z", 437.144, NONE),
    # Kang.
    ("kang", "", "csvae-noadv", "nmi_w_condition", 0.949, 0.003),
    ("kang", "", "discovr-paper", "nmi_z_type_8", 0.716, 0.031),
    ("kang", "", "hcsvae-noadv", "nmi_z_condition", 0.091, 0.002),
    # Cost: each table in each column.
    ("parametric", "", "hcsvae-noadv", "seconds_per_epoch", 15.6, NONE),
    ("swiss-roll", "flip=0.3", "diva", "seconds_per_epoch", 8, NONE),
    ("colored-mnist", "", "csvae-noadv", "seconds_per_epoch", 14, NONE),
    ("celeba-glasses", "", "discovr-paper", "seconds_per_epoch", 109.86, NONE),
    ("kang", "", "hcsvae", "seconds_per_epoch", 5.3, NONE),
    ("parametric", "", "csvae-noadv", "inference_ms_per_batch", 72, NONE),
    ("swiss-roll", "flip=0.3", "hcsvae", "inference_ms_per_batch", 39, NONE),
    ("colored-mnist", "", "ccvae", "inference_ms_per_batch", 42, NONE),
    ("celeba-glasses", "", "csvae-noadv", "inference_ms_per_batch", 329, NONE),
    ("kang", "", "discovr-paper", "inference_ms_per_batch", 123, NONE),
    ("parametric", "", "csvae-noadv", "peak_memory_mb", 53, NONE),
    ("swiss-roll", "flip=0.3", "discovr-paper", "peak_memory_mb", 257, NONE),
    ("colored-mnist", "", "discovr-paper", "peak_memory_mb", 3612, NONE),
    ("celeba-glasses", "", "diva", "peak_memory_mb", 4996, NONE),
    ("kang", "", "hcsvae-noadv", "peak_memory_mb", 292, NONE),
]


def test_rows_per_study():
    assert load_published()["study"].value_counts().to_dict() == ROWS
    for study, count in ROWS.items():
        rows = load_published(study)
        assert set(rows["study"]) == {study}
        assert rows.index.tolist() == list(range(count))


def test_columns_and_missing_values():
    table = load_published()
    assert table.columns.tolist() == [*KEY, "mean", "sd"]
    assert table[[*KEY, "mean"]].notna().all(axis=None)
    assert (table[["study", "method", "metric"]] != "").all(axis=None)
    assert table["mean"].dtype == table["sd"].dtype == np.float64
    assert (table["sd"].dropna() >= 0).all()
    cost = table["metric"].isin(["seconds_per_epoch", "inference_ms_per_batch", "peak_memory_mb"])
    assert (table["sd"].isna() == (cost | table["study"].isin(["ablations", "celeba-hats"]))).all()


def test_variants():
    variants = load_published().groupby("study")["variant"].unique().map(set).to_dict()
    assert variants == {
        "parametric": {""},
        "swiss-roll": {"flip=0.3"},
        "ablations": {f"adv={weight}" for weight in (0, 2, 4, 6, 8)},
        "colored-mnist": {"", "flip=0", "flip=0.1", "flip=0.2", "flip=0.3", "flip=0.4"},
        "celeba-glasses": {""},
        "celeba-hats": {""},
        "kang": {""},
    }


def test_keys_are_unique():
    assert not load_published().duplicated(KEY).any()


def test_methods():
    table = load_published()
    assert set(table["method"]) == METHODS
    assert METHODS - {"truth", "posterior-untruncated"} == {m for b in BLOCKS.values() for m in b} - {"discovr"}
    per_metric = table.groupby(["study", "variant", "metric"])["method"].agg(set)
    for (study, _, metric), methods in per_metric.items():
        if study == "ablations" or metric == "nll_z":
            assert methods == {"discovr-paper"}
        else:
            assert methods >= SEVEN


@pytest.mark.parametrize(("study", "variant", "method", "metric", "mean", "sd"), PRINTED)
def test_values_are_the_papers(study, variant, method, metric, mean, sd):
    rows = load_published(study).set_index(KEY)
    found = rows.loc[(study, variant, method, metric)]
    assert found["mean"] == mean
    assert found["sd"] == sd or (np.isnan(found["sd"]) and np.isnan(sd))


def test_every_metric_is_spot_checked():
    checked = pd.DataFrame(PRINTED, columns=[*KEY, "mean", "sd"])
    assert set(checked["metric"]) == set(load_published()["metric"])
    assert not checked.duplicated(KEY).any()


def test_blocks():
    assert BLOCKS == {
        "Fully Separable": ("csvae-noadv", "csvae", "hcsvae-noadv", "hcsvae", "discovr-separable"),
        "Flexible": ("diva", "ccvae", "discovr-paper", "discovr"),
    }


def test_unknown_study():
    with pytest.raises(ValueError, match="study is 'mnist'.*parametric, swiss-roll, ablations, colored-mnist"):
        load_published("mnist")


@pytest.mark.skipif(not PAPER.is_file(), reason=f"the paper's source is not at {PAPER}")
def test_every_number_is_in_the_paper():
    text = re.sub(r"\s+", "", PAPER.read_text(encoding="utf-8"))
    numbers = set(re.findall(r"-?\d+(?:\.\d+)?", text))
    pairs = set(re.findall(r"(-?\d+(?:\.\d+)?)\\pm(\d+(?:\.\d+)?)", text))
    with Path(published.__file__).with_name("published.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == sum(ROWS.values())
    assert [row for row in rows if row["mean"] not in numbers] == []
    assert [row for row in rows if row["sd"] and (row["mean"], row["sd"]) not in pairs] == []
