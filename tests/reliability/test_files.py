"""A model's file holds values and runs nothing; a damaged one is refused; a save is whole or not at all."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from discovr_sc import CSVAE, DISCOVR
from discovr_sc.cli import main
from discovr_sc.errors import InputError
from discovr_sc.model import storage


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small trained model, its cells, and its folder."""
    from discovr_sc.data import simulate_counts

    adata = simulate_counts(n_cells=60, n_genes=10, n_effect_genes=3, n_batches=2, seed=1)
    adata.obs["age"] = np.linspace(0, 1, 60)
    DISCOVR.setup_anndata(adata, "condition", batch_key="batch", continuous_covariate_keys=["age"])
    model = DISCOVR(adata, n_hidden=np.int64(8), n_latent_z=3, n_components_z=2, dropout_rate=np.float64(0.1))
    model.train(2, enable_progress_bar=False)
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder, save_anndata=True)
    return model, adata, folder


class Payload:
    """Leaves a mark where its pickle is loaded."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def crafted(folder, out, mark):
    """A copy of a saved model with a payload among its attributes, its checksums put right."""
    shutil.copytree(folder, out)
    content = torch.load(out / "model.pt", weights_only=True)
    content["attr_dict"]["history_"] = Payload(mark)
    torch.save(content, out / "model.pt")
    (out / "checksums.json").unlink()
    return out


ENTRY_POINTS = {
    "load": lambda folder, adata: DISCOVR.load(folder),
    "load without data": lambda folder, adata: DISCOVR.load(folder, adata=False),
    "load_registry": lambda folder, adata: DISCOVR.load_registry(folder),
    "view_setup_args": lambda folder, adata: DISCOVR.view_setup_args(folder),
    "load_query_data": lambda folder, adata: DISCOVR.load_query_data(adata.copy(), str(folder)),
    "prepare_query_anndata": lambda folder, adata: DISCOVR.prepare_query_anndata(adata.copy(), folder),
    "report": lambda folder, adata: main(["report", str(folder)]),
}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_a_crafted_file_runs_nothing(entry, saved, tmp_path, capsys):
    _, adata, folder = saved
    mark = tmp_path / "mark"
    evil = crafted(folder, tmp_path / "evil", mark)
    if entry == "report":
        assert ENTRY_POINTS[entry](evil, adata) == 2
        said = capsys.readouterr().err
    else:
        with pytest.raises(InputError) as caught:
            ENTRY_POINTS[entry](evil, adata)
        said = str(caught.value)
    assert "could run any code" in said
    assert "discovr-sc convert" in said
    assert not mark.exists()
    torch.load(evil / "model.pt", weights_only=False)  # the payload is one
    assert mark.exists()


def test_a_checkpoint_runs_nothing(saved, tmp_path):
    _model, adata, _ = saved
    torch.save({"state_dict": Payload(tmp_path / "mark")}, tmp_path / "evil.ckpt")
    with pytest.raises(InputError, match="evil.ckpt is not a checkpoint that can be read"):
        DISCOVR(adata, n_hidden=8).train(2, ckpt_path=tmp_path / "evil.ckpt", enable_progress_bar=False)
    assert not (tmp_path / "mark").exists()


def test_a_file_holds_plain_values_and_comes_back_as_it_was(saved):
    model, _adata, folder = saved
    content = torch.load(folder / "model.pt", weights_only=True)
    assert set(content) == {"model_state_dict", "var_names", "attr_dict"}
    loaded = DISCOVR.load(folder)
    for kind in ("z", "w"):
        np.testing.assert_array_equal(
            loaded.get_latent_representation(kind=kind), model.get_latent_representation(kind=kind)
        )
    pd.testing.assert_frame_equal(
        loaded.history_["train_loss"], model.history_["train_loss"], check_dtype=False, check_index_type=False
    )
    np.testing.assert_array_equal(loaded.train_indices, model.train_indices)
    mapping = loaded.registry["field_registries"]["batch"]["state_registry"]["categorical_mapping"]
    assert isinstance(mapping, np.ndarray)
    assert loaded.has_training_data()
    loaded.train(1, enable_progress_bar=False)
    assert len(loaded.history_["train_loss"]) == 3


def test_scvi_tools_reads_the_folder(saved):
    from scvi.model.base import BaseModelClass

    _, adata, folder = saved
    registry = BaseModelClass.load_registry(str(folder))
    assert registry["setup_args"]["condition_key"] == "condition"
    assert list(registry["field_registries"]["X"]["state_registry"]["column_names"]) == list(adata.var_names)


def test_a_trusting_user_converts_an_old_file(saved, tmp_path, capsys):
    from scvi.model.base import BaseModelClass

    model, _, _ = saved
    old = tmp_path / "old"
    BaseModelClass.save(model, str(old), save_anndata=True)  # as it was before: frames and arrays, pickled
    with pytest.raises(InputError, match="holds Python objects"):
        DISCOVR.load(old)
    assert main(["convert", str(old), str(tmp_path / "new")]) == 0
    DISCOVR.convert_legacy_save(old, old, overwrite=True)
    for folder in (tmp_path / "new", old):
        loaded = DISCOVR.load(folder)
        np.testing.assert_array_equal(loaded.get_latent_representation(), model.get_latent_representation())
        assert list(loaded.history_) == list(model.history_)


def test_what_cannot_be_saved_plainly_is_refused_and_named(saved, tmp_path):
    model, _, _ = saved
    model.extra_ = {"when": pd.Timestamp("2020-01-01")}
    try:
        with pytest.raises(InputError, match=r"'extra_'\]\['when'\] holds a Timestamp"):
            model.save(tmp_path / "model")
    finally:
        del model.extra_


# Damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.pt", "adata.h5ad"])
@pytest.mark.parametrize("with_checksums", [True, False])
def test_a_flipped_bit_is_found(name, with_checksums, saved, tmp_path):
    _, _, folder = saved
    if name == "adata.h5ad" and not with_checksums:
        pytest.skip("without checksums only the model's own archive has them")
    rng = np.random.default_rng(0)
    content = (folder / name).read_bytes()
    weights = content.find(b"archive/data/0") if name == "model.pt" else 0
    for place in rng.integers(max(weights, 0) + 200, len(content) // 2, 5):
        damaged = tmp_path / f"damaged-{place}"
        shutil.copytree(folder, damaged)
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        (damaged / name).write_bytes(bytes(changed))
        if with_checksums:
            with pytest.raises(InputError, match=f"{name} is not as it was saved"):
                DISCOVR.load(damaged)
        else:
            (damaged / "checksums.json").unlink()
            try:
                loaded = DISCOVR.load(damaged)
            except InputError:
                continue
            original = torch.load(folder / "model.pt", weights_only=True)["model_state_dict"]  # padding was hit
            assert all(torch.equal(value, original[key]) for key, value in loaded.module.state_dict().items())


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "0 bytes"), (b"PK\x03\x04 half", "incomplete"), (b"\x80\x02junk", "incomplete"), (None, "has no model")],
)
def test_what_is_no_model_is_refused(content, says, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    if content is not None:
        (folder / "model.pt").write_bytes(content)
    for entry in (DISCOVR.load, DISCOVR.load_registry):
        with pytest.raises(InputError, match=says):
            entry(folder)


def test_wrong_folders_and_classes_are_named(saved, tmp_path):
    _, _, folder = saved
    with pytest.raises(FileNotFoundError, match="nope is not a folder; give the folder of a saved model"):
        DISCOVR.load(tmp_path / "nope")
    with pytest.raises(InputError, match="different class; load it with DISCOVR.load"):
        CSVAE.load(folder)
    torch.save({"weights": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="it lacks"):
        DISCOVR.load(tmp_path)
    torch.save({"model_state_dict": {}, "var_names": [], "attr_dict": {"registry_": 3}}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="its registry"):
        DISCOVR.load(tmp_path)


# Saving ---------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """In place of a SIGKILL: nothing after it runs that would not run."""


def test_a_save_that_is_killed_leaves_one_model_whole(saved, tmp_path, monkeypatch):
    """Killed before every call that touches the disk: the folder holds the old model or the new one, and loads."""
    model, _adata, folder = saved
    z = model.get_latent_representation()
    outcomes = []
    for moment in range(40):
        place = tmp_path / f"model-{moment}"
        shutil.copytree(folder, place)
        calls = iter(range(1000))

        def dying(function, calls=calls, moment=moment):
            def call(*args, **kwargs):
                if next(calls) == moment:
                    raise Killed
                return function(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "rename", "fsync", "mkdir", "rmdir"):
                patch.setattr(os, name, dying(getattr(os, name)))
            patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # a killed process tidies nothing
            model.run_name_ = "new"
            try:
                model.save(place, overwrite=True, save_anndata=True)
                outcomes.append("saved")
            except Killed:
                outcomes.append("killed")
            finally:
                model.run_name_ = "old"
        loaded = DISCOVR.load(place)
        np.testing.assert_array_equal(loaded.get_latent_representation(), z)
        model.save(place, overwrite=True)  # and can be saved to again
        assert not list(place.glob(".saved"))
        if outcomes[-1] == "saved":
            assert loaded.run_name_ == "new"
            break
    assert outcomes[-1] == "saved"
    assert outcomes.count("killed") > 5


def test_other_files_of_the_folder_and_other_prefixes_stay(saved, tmp_path):
    model, _, _ = saved
    model.save(tmp_path / "model", prefix="a_")
    (tmp_path / "model" / "report.csv").write_text("kept")
    model.save(tmp_path / "model", prefix="b_", overwrite=True)
    for prefix in ("a_", "b_"):
        assert DISCOVR.load(tmp_path / "model", adata=False, prefix=prefix).is_trained
    assert (tmp_path / "model" / "report.csv").read_text() == "kept"
    with pytest.raises(InputError, match="already exists; give another folder, or overwrite=True"):
        model.save(tmp_path / "model")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        model.save(tmp_path / "file", overwrite=True)


def test_leftovers_of_dead_processes_are_removed(saved, tmp_path):
    model, _, _ = saved
    model.save(tmp_path / "model")
    host = storage.socket.gethostname()
    dead = tmp_path / "model" / f".saving-{host}-999999999-1"
    alive = tmp_path / "model" / f".saving-{host}-{os.getpid()}-1"
    for draft in (dead, alive):
        draft.mkdir()
    model.save(tmp_path / "model", overwrite=True)
    assert not dead.exists()
    assert alive.exists()


def test_a_full_disk_is_told_as_such_and_loses_nothing(saved, tmp_path, monkeypatch):
    model, _, folder = saved
    place = tmp_path / "model"
    shutil.copytree(folder, place)

    def full(path, content):
        path.write_bytes(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_synced", full)
    with pytest.raises(OSError, match="could not be saved.*No space left on device.*is as it was"):
        model.save(place, overwrite=True)
    assert sorted(path.name for path in place.iterdir()) == ["adata.h5ad", "checksums.json", "model.pt"]
    assert DISCOVR.load(place).is_trained
    assert json.loads((place / "checksums.json").read_text()).keys() == {"adata.h5ad", "model.pt"}
