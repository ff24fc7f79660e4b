"""Coloured MNIST: idx files that the test writes, and the real ones where they are."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from discovr_sc.data import colored_mnist
from discovr_sc.data.cache import DATA_VARIABLE

SHAPES = np.random.default_rng(0).integers(1, 256, (20, 28, 28), dtype=np.uint8)
DIGITS = np.arange(20, dtype=np.uint8) % 10


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write(folder: Path, *, zipped: bool) -> Path:
    folder.mkdir(parents=True)
    for split in ("train", "t10k"):
        for name, array in ((f"{split}-images-idx3-ubyte", SHAPES), (f"{split}-labels-idx1-ubyte", DIGITS)):
            content = idx(array)
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(content) if zipped else content)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "mnist"])
def test_two_copies_of_each_digit_differ_in_red_and_green_alone(tmp_path, zipped, below):
    write(tmp_path / "data" / below, zipped=zipped)
    adata = colored_mnist(tmp_path / "data", flip=0)
    x = adata.obsm["x"]
    assert x.shape == (40, 3, 28, 28)
    assert x.dtype == np.uint8
    without_red, without_green = x[::2], x[1::2]
    assert (without_red[:, 0] == 0).all()
    assert (without_green[:, 1] == 0).all()
    for shape in (without_red[:, 1], without_red[:, 2], without_green[:, 0], without_green[:, 2]):
        np.testing.assert_array_equal(shape, SHAPES)
    assert adata.obs["condition"].tolist() == adata.obs["condition_clean"].tolist() == ["0", "1"] * 20
    assert adata.obs["digit"].astype(int).tolist() == np.repeat(DIGITS, 2).tolist()


def test_labels_flip_with_the_probability_asked_for_and_images_do_not(tmp_path):
    root = write(tmp_path / "data", zipped=False)
    draws = [colored_mnist(root, flip=0.3, seed=seed) for seed in range(50)]
    flipped = np.concatenate([a.obs["condition"].astype(str) != a.obs["condition_clean"].astype(str) for a in draws])
    assert flipped.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / flipped.size))
    np.testing.assert_array_equal(draws[0].obsm["x"], colored_mnist(root, flip=0).obsm["x"])
    assert (colored_mnist(root, flip=1).obs["condition"].tolist()) == ["1", "0"] * 20


def test_a_draw_of_digits_is_seeded_and_keeps_copies_together(tmp_path):
    root = write(tmp_path / "data", zipped=False)
    adata = colored_mnist(root, n_digits=6, seed=1, split="test")
    assert adata.n_obs == 12
    assert [name.split("-")[0] for name in adata.obs_names[::2]] == [
        name.split("-")[0] for name in adata.obs_names[1::2]
    ]
    assert adata.obs_names.equals(colored_mnist(root, n_digits=6, seed=1, split="test").obs_names)
    assert not adata.obs_names.equals(colored_mnist(root, n_digits=6, seed=2, split="test").obs_names)


def test_a_missing_file_says_what_to_put_where(tmp_path, monkeypatch):
    root = write(tmp_path / "data", zipped=False)
    (root / "t10k-labels-idx1-ubyte").unlink()
    assert colored_mnist(root).n_obs == 40
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte.*Put the four idx files.*pass it as root="):
        colored_mnist(root, split="test")
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=DATA_VARIABLE):
        colored_mnist(cache=tmp_path / "nothing")


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x08", b"not an idx file", idx(SHAPES)[:-1], idx(SHAPES) + b"0"])
def test_a_broken_file_is_named(tmp_path, content):
    root = write(tmp_path / "data", zipped=False)
    (root / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte is not a whole idx file"):
        colored_mnist(root)


def test_a_broken_gzip_file_is_named(tmp_path):
    root = write(tmp_path / "data", zipped=True)
    path = root / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz is not a whole gzip file"):
        colored_mnist(root)


def test_files_that_do_not_belong_together(tmp_path):
    root = write(tmp_path / "data", zipped=False)
    (root / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS[:5]))
    with pytest.raises(ValueError, match="do not belong together"):
        colored_mnist(root)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flip": 1.2}, "flip is 1.2"),
        ({"split": "validation"}, "split is 'validation'"),
        ({"n_digits": 0}, "n_digits is 0"),
        ({"n_digits": 21}, "the train split has 20"),
    ],
)
def test_wrong_arguments(tmp_path, settings, message):
    root = write(tmp_path / "data", zipped=False)
    with pytest.raises(ValueError, match=message):
        colored_mnist(root, **settings)


@pytest.mark.skipif(
    not (Path(os.environ.get(DATA_VARIABLE, "")) / "mnist").is_dir(), reason=f"{DATA_VARIABLE} has no folder mnist"
)
def test_the_real_files():
    adata = colored_mnist(flip=0.2, split="test")
    assert adata.n_obs == 20_000
    assert adata.obs["digit"].value_counts().loc["7"] == 2 * 1028
    assert adata.obsm["x"][0, 2].mean() / 255 == pytest.approx(0.0923, abs=1e-4)  # a seven
    assert adata.obs["digit"].iloc[0] == "7"
