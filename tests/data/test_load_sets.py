"""Further real sets: their counts and columns where the files are there, and a clear error where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import anndata
import numpy as np
import pytest

from discovr_sc import data
from discovr_sc.data.cache import DATA_VARIABLE

SHARED = Path(os.environ.get(DATA_VARIABLE) or Path(__file__).resolve().parents[2].parent / "shared/data")
#: By loader: the file, the number of cells, and the numbers of labels of its columns.
SETS = {
    "pancreas": (
        "pancreas/pancreas_3274.h5ad",
        3274,
        {"suspension_type": 2, "cell_type": 9, "donor_id": 20, "Dataset": 4},
    ),
    "glioblastoma": ("glioblastoma/glioblastoma_zhao_5000.h5ad", 5000, {"condition": 2, "patient_id": 5}),
    "papalexi": ("papalexi/papalexi_lowmoi_20729.h5ad", 20729, {"target": 26, "grna": 107, "bio_rep": 3}),
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_counts_and_the_columns_that_its_docstring_tells(name):
    file, n_cells, columns = SETS[name]
    if not (SHARED / file).is_file():
        pytest.skip(f"no {file} in {SHARED}; set {DATA_VARIABLE} to a folder that has it")
    adata = getattr(data, name)(SHARED)
    assert adata.n_obs == n_cells
    assert {column: adata.obs[column].nunique() for column in columns} == columns
    values = adata.X[:200].data
    assert (values >= 0).all()
    np.testing.assert_array_equal(values, values.round())
    if name == "pancreas":
        assert adata.n_vars == 2000


def test_a_folder_may_have_a_set_of_ones_own(tmp_path):
    cells = data.simulate_counts(30, 20, n_effect_genes=5)
    (tmp_path / "glioblastoma").mkdir()
    cells.write_h5ad(tmp_path / SETS["glioblastoma"][0])
    loaded = data.glioblastoma(tmp_path)
    assert isinstance(loaded, anndata.AnnData)
    np.testing.assert_array_equal(loaded.X.toarray(), cells.X.toarray())


@pytest.mark.parametrize("name", SETS)
def test_a_missing_file_is_named_with_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _: tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match=rf"{SETS[name][0]}; its docstring says .*root=.*{DATA_VARIABLE}"):
        getattr(data, name)()
    with pytest.raises(FileNotFoundError, match=rf"root .* has no file {SETS[name][0]}"):
        getattr(data, name)(tmp_path)
