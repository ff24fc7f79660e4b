from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from discovr_sc.metrics import information_table, mic, mig, rank_methods
from discovr_sc.metrics import summary as summary_module


def latents(n=2000, share=0.5, seed=0):
    """A w that determines the label, a z that says nothing of it."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    return 12 * y + rng.normal(size=n), rng.normal(size=(n, 2)), y


def test_gap_is_measured_in_label_entropies():
    w, z, y = latents(share=0.1)
    assert mig(w, z, y) == pytest.approx(1, abs=0.05)
    assert mig(z, w, y) == pytest.approx(-1, abs=0.05)
    assert mig(w, w, y) == 0


def test_completeness():
    w, z, y = latents()
    assert mic(w, z, y) == pytest.approx(1, abs=0.02)
    assert mic(z, w, y) == pytest.approx(0, abs=0.02)
    assert mic(w, w, y) == 0.5
    separated = np.array([0.0, 1.0] * 1000)
    independent = np.repeat(np.linspace(0, 1, 1000), 2)
    assert mic(independent, independent, separated) == 0


def test_table_agrees_with_its_parts():
    w, z, y = latents()
    shared = np.random.default_rng(1).normal(size=len(y))
    w = np.column_stack([w, shared + 0.1 * z[:, 0]])
    z = np.column_stack([z, shared])
    table = information_table(w, z, y)
    assert table.mig == mig(w, z, y) == pytest.approx((table.yw - table.yz) / np.log(2), abs=1e-3)
    assert table.mic == mic(w, z, y) == table.yw / (table.yw + table.yz)
    assert table.wz > 0.5
    assert table.wz_given_y > 0.5
    paper = information_table(w, z, y, count="paper")
    assert table.yw - paper.yw == pytest.approx(1 / 20, abs=0.01)
    assert (paper.wz, paper.wz_given_y) == (table.wz, table.wz_given_y)


def test_mine_table():
    w, z, y = latents()
    coupled = z + 0.2 * np.random.default_rng(1).normal(size=z.shape)
    table = information_table(np.column_stack([w, coupled]), z, y, estimator="mine")
    assert table.yw == pytest.approx(np.log(2), abs=0.05)
    assert table.yz < 0.01
    assert table.mig == pytest.approx(1, abs=0.1)
    # Two Gaussian channels of signal to noise 25 carry ln 26 nats; the label adds nothing.
    assert table.wz == pytest.approx(np.log(26), abs=0.5)
    assert table.wz_given_y == pytest.approx(np.log(26), abs=0.5)
    assert mic(w, z, y, estimator="mine", seed=1) > 0.98


def test_float_labels_are_labels():
    w, z, y = latents(n=500)
    assert information_table(w, z, y.astype(float)) == information_table(w, z, y)


def test_table_estimates_each_information_once(monkeypatch):
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return 0.25

    monkeypatch.setattr(summary_module, "knn_mutual_information", counted)
    monkeypatch.setattr(summary_module, "knn_conditional_mutual_information", counted)
    assert information_table(*latents(n=100)).mic == 0.5
    assert len(calls) == 4


COLUMNS = ["yz", "yw", "wz", "mig", "mic", "wz_given_y"]
BLOCKS = {
    "Fully Separable": ["CSVAE - No Adv.", "CSVAE", "HCSVAE - No Adv.", "HCSVAE"],
    "Flexible": ["DIVA", "CCVAE", "DisCoVR"],
}
# The paper's tables for the noisy Swiss roll with MINE: values, and the ranks it prints for them.
VALUES = pd.DataFrame(
    [
        [0.046, 0.422, 0.050, 0.044, 0.834, 0.029],
        [0.023, 0.373, 0.027, 0.041, 0.877, 0.024],
        [0.023, 0.585, 0.026, 0.066, 0.963, 0.006],
        [0.002, 0.570, 0.002, 0.067, 0.997, 0.003],
        [0.041, 0.043, 0.313, 0.000, 0.507, 0.345],
        [0.056, 0.036, 0.507, -0.002, 0.390, 0.494],
        [0.001, 0.069, 0.004, 0.008, 0.983, 0.006],
    ],
    index=BLOCKS["Fully Separable"] + BLOCKS["Flexible"],
    columns=COLUMNS,
)
TRUTH = dict(zip(COLUMNS, [0.000, 0.024, 0.000, 0.003, 0.985, 0.002], strict=True))
RANKS = [
    [4, 2, 4, 2, 4, 4],
    [2, 1, 3, 1, 3, 3],
    [2, 4, 2, 3, 2, 2],
    [1, 3, 1, 4, 1, 1],
    [2, 2, 2, 1, 2, 2],
    [3, 1, 3, 2, 3, 3],
    [1, 3, 1, 2, 1, 1],
]


def test_ranks_of_the_paper():
    ranks = rank_methods(VALUES, TRUTH, BLOCKS)
    assert ranks.to_numpy().tolist() == RANKS
    assert ranks.index.equals(VALUES.index)
    assert ranks.columns.equals(VALUES.columns)


def test_ranks_keep_the_order_of_the_table():
    shuffled = VALUES.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(
        rank_methods(shuffled, TRUTH, BLOCKS).loc[VALUES.index], rank_methods(VALUES, TRUTH, BLOCKS)
    )
    assert list(rank_methods(shuffled, TRUTH, BLOCKS).index) == list(shuffled.index)


def test_equal_distances_tie_on_either_side():
    values = pd.DataFrame({"yz": [0.3, 0.1, 0.2]}, index=["a", "b", "c"])
    assert rank_methods(values, {"yz": 0.2}, {"all": ["a", "b", "c"]})["yz"].tolist() == [2, 2, 1]


def test_decimals_decide_what_ties():
    values = pd.DataFrame({"yz": [0.1001, 0.1002]}, index=["a", "b"])
    assert rank_methods(values, {"yz": 0.0}, {"all": ["a", "b"]})["yz"].tolist() == [1, 1]
    assert rank_methods(values, {"yz": 0.0}, {"all": ["a", "b"]}, decimals=4)["yz"].tolist() == [1, 2]


def test_refuses_bad_input():
    w, z, y = latents(n=100)
    with pytest.raises(ValueError, match="estimator is 'ksg'; choose one of 'knn', 'mine'"):
        mig(w, z, y, estimator="ksg")
    with pytest.raises(ValueError, match="count is 'paper' but estimator 'mine'"):
        mic(w, z, y, estimator="mine", count="paper")
    with pytest.raises(ValueError, match="y has 1 distinct labels"):
        information_table(w, z, np.zeros(100))
    with pytest.raises(ValueError, match="lengths differ.*'z': 99"):
        mig(w, z[:-1], y)
    with pytest.raises(ValueError, match="list each row exactly once"):
        rank_methods(VALUES, TRUTH, {"Flexible": BLOCKS["Flexible"]})
    with pytest.raises(ValueError, match=r"truth lacks \['mic'\]"):
        rank_methods(VALUES, {key: TRUTH[key] for key in COLUMNS if key != "mic"}, BLOCKS)
    with pytest.raises(ValueError, match="NaN"):
        rank_methods(VALUES.replace(0.046, np.nan), TRUTH, BLOCKS)
