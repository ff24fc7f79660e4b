"""CelebA: the official layout, written by the test, and the real files where they are."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from discovr_sc.data import celeba
from discovr_sc.data.cache import DATA_VARIABLE

NAMES = [f"{i:06d}.jpg" for i in range(1, 13)]
GLASSES = {"000002.jpg", "000005.jpg", "000011.jpg"}


def picture(i: int) -> bytes:
    """Grey of a level of its own, with a white band above and below the centred square."""
    pixels = np.full((109, 89, 3), 10 * i, np.uint8)
    pixels[:5] = pixels[-5:] = 255
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=100)
    return buffer.getvalue()


def write(root: Path, layout: str) -> Path:
    table = f"{len(NAMES)}\nEyeglasses Wearing_Hat\n"
    table += "".join(
        f"{name} {1 if name in GLASSES else -1:2d}  {1 if name == NAMES[0] else -1:2d}\n" for name in NAMES
    )
    anno, images = {"folder": ("", ""), "zip": ("celeba", "celeba"), "official": ("Anno", "Img")}[layout]
    for folder in (anno, images):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / anno / "list_attr_celeba.txt").write_text(table)
    if layout == "folder":
        (root / images / "img_align_celeba").mkdir()
        for i, name in enumerate(NAMES):
            (root / images / "img_align_celeba" / name).write_bytes(picture(i))
    else:
        with zipfile.ZipFile(root / images / "img_align_celeba.zip", "w") as archive:
            for i, name in enumerate(NAMES):
                archive.writestr(f"img_align_celeba/{name}", picture(i))
    return root


@pytest.mark.parametrize("layout", ["folder", "zip", "official"])
def test_all_with_the_attribute_and_twice_as_many_without(tmp_path, layout):
    adata = celeba(write(tmp_path, layout))
    x = adata.obsm["x"]
    assert x.shape == (9, 3, 64, 64)
    assert x.dtype == np.uint8
    assert set(adata.obs_names[adata.obs["condition"] == "with"]) == GLASSES
    assert list(adata.obs["condition"].cat.categories) == ["without", "with"]
    levels = np.array([10 * NAMES.index(name) for name in adata.obs_names])
    # The centred square has nothing of the bands: every pixel is the picture's grey, up to the JPEG's rounding.
    assert np.abs(x.astype(int) - levels[:, None, None, None]).max() <= 3


def test_draws_are_seeded_and_their_number_and_size_settable(tmp_path):
    root = write(tmp_path, "zip")
    adata = celeba(root, attribute="Wearing_Hat", size=16, seed=1)
    assert adata.obsm["x"].shape == (3, 3, 16, 16)
    assert adata.obs_names[adata.obs["condition"] == "with"].tolist() == [NAMES[0]]
    assert adata.obs_names.equals(celeba(root, attribute="Wearing_Hat", size=16, seed=1).obs_names)
    assert celeba(root, n_with=2).obs["condition"].value_counts().to_dict() == {"without": 4, "with": 2}


def test_missing_files_say_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match=r"no folder has list_attr_celeba.txt.*img_align_celeba.zip.*root="):
        celeba(cache=tmp_path)
    root = write(tmp_path / "root", "zip")
    (root / "celeba" / "img_align_celeba.zip").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no img_align_celeba or img_align_celeba.zip"):
        celeba(root)


@pytest.mark.parametrize("layout", ["folder", "zip"])
def test_an_image_that_is_listed_but_missing_is_named(tmp_path, layout):
    root = write(tmp_path, layout)
    table = next(root.rglob("list_attr_celeba.txt"))
    table.write_text(table.read_text().replace("000002.jpg", "000099.jpg"))
    with pytest.raises(FileNotFoundError, match=r"has no image 000099.jpg"):
        celeba(root)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attribute": "Glasses"}, r"attribute is 'Glasses'.*Eyeglasses"),
        ({"n_with": 4}, r"n_with is 4, but there are 3 images with"),
        ({"n_with": 0}, "n_with is 0"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_wrong_arguments(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        celeba(write(tmp_path, "zip"), **settings)


@pytest.mark.skipif(
    not (Path(os.environ.get(DATA_VARIABLE, "")) / "celeba").is_dir(), reason=f"{DATA_VARIABLE} has no folder celeba"
)
def test_the_real_files():
    adata = celeba(attribute="Wearing_Hat", n_with=20)
    assert adata.obsm["x"].shape == (60, 3, 64, 64)
    assert 60 < adata.obsm["x"].mean() < 160
