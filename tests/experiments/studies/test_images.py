"""The image studies: small data that the tests write, all metrics, figures, and the full preset for a few steps."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from discovr_sc.data.cache import DATA_VARIABLE
from discovr_sc.experiments import STUDIES, run_study
from discovr_sc.experiments.engine.report import write_report
from discovr_sc.experiments.engine.runner import Row, build_model
from discovr_sc.experiments.engine.study import Preset
from discovr_sc.experiments.studies.images import AttributeClassifier, mixed_color

NARROW = {"n_hidden": 8, "channels": (2, 2, 3, 4)}
TINY = Preset(n_train=120, n_eval=120, max_epochs=1, patience=1, batch_size=32, settings=NARROW, plan={"lr": 1e-3})
TINY_FACES = Preset(
    n_train=None,
    n_eval=None,
    max_epochs=1,
    patience=1,
    batch_size=32,
    settings={"n_hidden": 8, "channels": (2, 2, 2), "n_latent_z": 4, "n_latent_w": 2},
)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """Bars in place of digits and faces: 200 of MNIST's size, 120 of CelebA's, a third of these with a dark stripe."""
    folder = tmp_path / "data"
    rng = np.random.default_rng(0)
    digits = np.tile(np.arange(10, dtype=np.uint8), 20)
    shapes = np.zeros((200, 28, 28), np.uint8)
    for shape, digit in zip(shapes, digits, strict=True):
        shape[4:24, 2 * digit + 2 : 2 * digit + 6] = rng.integers(180, 256)
    (folder / "mnist").mkdir(parents=True)
    for split in ("train", "t10k"):
        (folder / "mnist" / f"{split}-images-idx3-ubyte").write_bytes(idx(shapes))
        (folder / "mnist" / f"{split}-labels-idx1-ubyte").write_bytes(idx(digits))

    (folder / "celeba").mkdir()
    lines = ["120", "Eyeglasses Wearing_Hat"]
    with zipfile.ZipFile(folder / "celeba" / "img_align_celeba.zip", "w") as archive:
        for i in range(120):
            pixels = np.full((109, 89, 3), rng.integers(100, 200), np.uint8)
            pixels[50:56, 15:75] = 0 if i % 3 == 0 else pixels[50:56, 15:75]
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, "PNG")
            archive.writestr(f"img_align_celeba/{i:06d}.jpg", buffer.getvalue())
            lines.append(f"{i:06d}.jpg {' 1' if i % 3 == 0 else '-1'} {' 1' if i % 3 == 1 else '-1'}")
    (folder / "celeba" / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    return folder


def tiny(name: str, methods: tuple[str, ...], preset: Preset):
    study = STUDIES[name]
    return replace(study, presets={"tiny": preset}, methods={method: study.methods[method] for method in methods})


DIGIT_METRICS = {"marginal_rmse", "color_gap", "probe_z_digit", "mine_wz", "nll", "nll_z", "step_vs_csvae_noadv"}
FACE_METRICS = {"mine_wz", "nll", "nll_z", "nll_constant", "attribute_gap", "step_vs_csvae_noadv"}


@pytest.mark.slow
def test_a_digit_study_writes_its_table_and_figures(data_folder, tmp_path):
    study = tiny("colored-mnist", ("discovr", "hcsvae"), TINY)
    results = run_study(study, tmp_path, n_seeds=1, variants=["flip=0.3"], jobs=1)
    for _, values in results.table.groupby("method"):
        values = values.set_index("metric")["value"]
        assert set(values.index) >= DIGIT_METRICS
        assert np.isfinite(values).all()
    write_report(results, "tiny")
    assert (tmp_path / "colored_mnist_flip0.3.png").stat().st_size > 1000


@pytest.mark.slow
def test_ablations_draw_latents_by_noisy_label_and_digit(data_folder, tmp_path):
    study = tiny("colored-mnist-ablations", ("discovr", "discovr-paper"), TINY)
    results = run_study(study, tmp_path, n_seeds=1, variants=["prior=standard"], jobs=1)
    write_report(results, "tiny")
    assert (tmp_path / "colored_mnist_ablations_latents.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_face_study_writes_its_table_and_figures(data_folder, tmp_path):
    study = tiny("celeba-glasses", ("discovr", "diva"), TINY_FACES)
    results = run_study(study, tmp_path, n_seeds=1, jobs=1)
    for _, values in results.table.groupby("method"):
        values = values.set_index("metric")["value"]
        assert set(values.index) >= FACE_METRICS
        assert np.isfinite(values).all()
    report = write_report(results, "tiny")
    assert (tmp_path / "celeba_glasses_faces.png").stat().st_size > 1000
    # Named, not shown: faces may not be passed on, so a page that shows them would lack its picture.
    assert "`celeba_glasses_faces.png`" in report and "![" not in report


def test_hats_are_glasses_with_another_attribute(data_folder):
    study = STUDIES["celeba-hats"]
    task = study.make_task(TINY_FACES, 0, **study.variants[""].data)
    assert task.train.n_obs + task.evaluation.n_obs == 120
    assert not set(task.train.obs_names) & set(task.evaluation.obs_names)
    assert (task.evaluation.obs["condition"] == "with").mean() == pytest.approx(1 / 3)
    assert set(study.methods) == set(STUDIES["celeba-glasses"].methods)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "methods", "n"),
    [
        ("colored-mnist", "flip=0.3", ("discovr", "discovr-paper", "csvae"), 16),
        ("celeba-glasses", "", ("discovr", "discovr-paper"), 6),
    ],
)
def test_the_full_preset_is_the_papers_and_runs(data_folder, name, variant, methods, n):
    study = STUDIES[name]
    preset = study.presets["full"]
    task = study.make_task(preset, 0, **study.variants[variant].data)
    of_both = [
        np.flatnonzero(task.train.obs["condition"] == name)[: n // 2] for name in set(task.train.obs["condition"])
    ]
    task = replace(task, train=task.train[np.concatenate(of_both)].copy())
    for method in methods:
        model = build_model(study, Row(variant, "full", method, 0), task)
        sizes = {"colored-mnist": (20, 2, 4096), "celeba-glasses": (128, 16, 2048)}[name]
        assert (model.module.n_latent_z, model.module.n_latent_w, model.module.networks.n_hidden) == sizes
        assert model.module.networks.channels == model.module.networks.default_channels
        model.train(1, batch_size=n // 2, train_size=1.0, enable_progress_bar=False)
        assert np.isfinite(model.history_["train_loss"].to_numpy(dtype=float)).all()


def test_the_reference_is_the_mean_of_a_digits_copies():
    shape = np.random.default_rng(0).random((4, 5, 5))
    nothing = np.zeros_like(shape)
    without_red, without_green = np.stack([nothing, shape, shape], 1), np.stack([shape, nothing, shape], 1)
    for copy in (without_red, without_green):
        np.testing.assert_allclose(mixed_color(copy), (without_red + without_green) / 2)


def test_a_classifier_learns_an_attribute_that_is_there():
    rng = np.random.default_rng(0)
    images = rng.integers(90, 110, (240, 3, 16, 16), dtype=np.uint8)
    has = np.arange(240) % 3 == 0
    images[has, :, 6:9] = 40
    scores = AttributeClassifier(n_epochs=5, batch_size=16).fit(images[:180], has[:180]).scores(images[180:] / 255)
    assert scores.shape == (60,)
    assert scores[has[180:]].mean() > 0.8
    assert scores[~has[180:]].mean() < 0.2
