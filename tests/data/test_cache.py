from __future__ import annotations

import platformdirs
import pytest

from discovr_sc.data.cache import DATA_VARIABLE, cache_folder, find_file


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Three folders that all have the file; the environment names the second."""
    for name in ["root", "variable", "cache"]:
        (tmp_path / name / "set").mkdir(parents=True)
        (tmp_path / name / "set/file").write_text(name)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "variable"))
    return tmp_path


def test_root_then_variable_then_cache(folders, monkeypatch):
    cache = folders / "cache"
    assert find_file("set/file", root=folders / "root", cache=cache).read_text() == "root"
    assert find_file("set/file", root=None, cache=cache).read_text() == "variable"
    (folders / "variable/set/file").unlink()
    assert find_file("set/file", root=None, cache=cache).read_text() == "cache"
    monkeypatch.setenv(DATA_VARIABLE, "")
    assert find_file("set/file", root=None, cache=cache).read_text() == "cache"
    (folders / "cache/set/file").unlink()
    assert find_file("set/file", root=None, cache=cache) is None


def test_root_without_the_file_is_an_error_even_where_others_have_it(folders):
    (folders / "root/set/file").unlink()
    with pytest.raises(FileNotFoundError, match="has no file set/file"):
        find_file("set/file", root=folders / "root", cache=folders / "cache")


def test_cache_is_the_users_own_unless_given(tmp_path):
    assert cache_folder(None) == platformdirs.user_cache_path("discovr_sc")
    assert cache_folder(str(tmp_path)) == tmp_path
