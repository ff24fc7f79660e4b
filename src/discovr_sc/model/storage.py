"""Models on disk: files that hold values and run nothing, written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import socket
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from discovr_sc.errors import InputError, InputTypeError, MissingFileError
from discovr_sc.train.checkpoints import history_frame

#: scvi-tools' names of the file and of what is in it.
MODEL, STATE, VAR_NAMES, ATTRIBUTES = "model.pt", "model_state_dict", "var_names", "attr_dict"
DATA = "adata.h5ad"
CHECKSUMS = "checksums.json"
#: How often a file is read that does not fit its checksum.
N_TRIES = 5
#: Folder with the files of a save that is complete, while they are moved to their places.
JOURNAL = ".saved"
Content = TypeVar("Content")
#: Entries of the registry that scvi-tools keeps as arrays; lists in the file.
ARRAYS = ("categorical_mapping", "column_names", "columns")

# Values that a file may hold ------------------------------------------------------------------------------------


def plain(value: Any, place: str) -> Any:
    """A value as tensors, numbers, strings, lists and dictionaries; ``place`` names it in messages."""
    if value is None or type(value) in (bool, int, float, str):  # not numpy's, which are kinds of these
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, np.generic | np.ndarray | pd.Index):
        return plain(value.tolist(), place)
    if isinstance(value, pd.DataFrame):  # a history
        return {"epoch": plain(value.index, place), "value": plain(value.iloc[:, 0].to_numpy(), place)}
    if isinstance(value, Mapping):
        return {plain(key, place): plain(entry, f"{place}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(plain(entry, place) for entry in value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise InputTypeError(
        f"{place} holds a {type(value).__name__}; saved models hold numbers, strings, lists, dictionaries and arrays. "
        "Give it as one of these."
    )


def restored(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as the model has them: arrays, frames."""
    found = {name: value for name, value in attributes.items() if name.endswith("_") and not name.startswith("_")}
    for name in ("train_indices_", "validation_indices_", "test_indices_"):
        if found.get(name) is not None:
            found[name] = np.asarray(found[name], dtype=int)
    if isinstance(found.get("history_"), dict):
        found["history_"] = {name: history_frame(name, **columns) for name, columns in found["history_"].items()}
    for field in found["registry_"]["field_registries"].values():
        state = field["state_registry"]
        state |= {key: pd.Index(state[key]).to_numpy() for key in ARRAYS if key in state}
        if "mappings" in state:
            state["mappings"] = {key: pd.Index(names).to_numpy() for key, names in state["mappings"].items()}
    return found


# Reading --------------------------------------------------------------------------------------------------------


def read_model(
    folder: str | Path, prefix: str | None = None, *, device: torch.device | str = "cpu", trust: bool = False
) -> dict[str, Any]:
    """What a model's file holds, read without running anything that it says.

    Parameters
    ----------
    folder, prefix
        Where the model was saved.
    device
        Where to put tensors.
    trust
        Also read objects of any kind; the file can then run any code.
    """
    name = f"{prefix or ''}{MODEL}"
    content = _read(Path(folder), name, prefix)
    problem = f"{Path(folder) / name} is not a model that can be read"
    try:
        found = torch.load(io.BytesIO(content), map_location=device, weights_only=not trust)
    except Exception as error:
        if zipfile.is_zipfile(io.BytesIO(content)) and "weights_only" in str(error).lower():
            raise InputError(
                f"{problem}: it holds Python objects, which could run any code ({_first_line(error)}). It may come "
                "from an earlier version. If you trust who made it, convert it once: discovr-sc convert OLD NEW."
            ) from None
        raise InputError(f"{problem}: it is incomplete or damaged ({_first_line(error)}); save it again.") from error
    if not isinstance(found, dict) or not {STATE, VAR_NAMES, ATTRIBUTES} <= set(found):
        raise InputError(f"{problem}: it lacks {[STATE, VAR_NAMES, ATTRIBUTES]}; give a folder that save wrote.")
    try:
        return found if trust else found | {ATTRIBUTES: restored(found[ATTRIBUTES])}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{problem}: its registry is not one of scvi-tools; give a folder that save wrote.") from error


def check_data_file(folder: str | Path, prefix: str | None = None) -> Path | None:
    """The saved AnnData, whole; None where there is none."""
    folder, name = Path(folder), f"{prefix or ''}{DATA}"

    def check() -> None:
        expected = _checksums(folder, prefix).get(name)
        if expected is not None and (folder / name).exists():
            with (folder / name).open("rb") as file:
                _compare(folder / name, hashlib.file_digest(file, "sha256").hexdigest(), expected)

    _patiently(check, folder)
    return folder / name if (folder / name).exists() else None


def _read(folder: Path, name: str, prefix: str | None) -> bytes:
    """The bytes of a file that is whole."""

    def read() -> bytes:
        try:
            content = (folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            has = "is not a folder" if not folder.is_dir() else f"has no model ({name})"
            raise MissingFileError(f"{folder} {has}; give the folder of a saved model.") from None
        expected = _checksums(folder, prefix).get(name)
        if expected is None:
            _check_zip(folder / name, content)
        else:
            _compare(folder / name, hashlib.sha256(content).hexdigest(), expected)
        return content

    return _patiently(read, folder)


def _patiently(read: Callable[[], Content], folder: Path) -> Content:
    """What a function reads; it is tried again where another process may be replacing the files."""
    for _ in range(N_TRIES - 1):
        finish_save(folder)
        try:
            return read()
        except MissingFileError:
            raise
        except InputError:
            time.sleep(0.05)
    finish_save(folder)
    return read()


def _check_zip(path: Path, content: bytes) -> None:
    """Files that were shared without checksums have those of their zip archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            damaged = archive.testzip()
    except Exception as error:  # damage may look like another kind of archive
        raise InputError(f"{path} is incomplete or no model's file ({len(content)} bytes: {error}).") from None
    if damaged:
        raise InputError(f"{path} is damaged (in {damaged}); copy or save it again.")


def _compare(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise InputError(
            f"{path} is not as it was saved: its checksum differs from that in {CHECKSUMS}. It is damaged or was "
            f"changed; copy or save it again (or delete {CHECKSUMS} if you changed it yourself)."
        )


def _checksums(folder: Path, prefix: str | None) -> dict[str, str]:
    path = folder / f"{prefix or ''}{CHECKSUMS}"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); copy or save the model again.") from error
    return found if isinstance(found, dict) else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# Writing --------------------------------------------------------------------------------------------------------


def write_files(folder: str | Path, writers: Mapping[str, Callable[[Path], Any]], prefix: str | None = None) -> None:
    """Write files to a folder so that all of them are replaced or none, whenever the process is killed.

    They are written to a folder of their own inside, with their checksums, and reach the disk. Renaming that folder
    completes the save: from then on the files are only moved to their places, by this process or, if it is killed, by
    the next that reads or saves. Until then the files of the last save are as they were.

    Parameters
    ----------
    folder
        Made where it is not there.
    writers
        For each file's name a function that writes it to a path.
    prefix
        Of the checksums' name.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    finish_save(folder)
    _remove_leftovers(folder)
    draft = folder / f".saving-{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}"
    draft.mkdir()
    try:
        checksums = {}
        for name, write in writers.items():
            write(draft / name)
            with (draft / name).open("rb") as file:
                os.fsync(file.fileno())
                checksums[name] = hashlib.file_digest(file, "sha256").hexdigest()
        old = _checksums(folder, prefix)
        listed = checksums | {name: old[name] for name in old if name not in checksums and (folder / name).exists()}
        write_synced(draft / f"{prefix or ''}{CHECKSUMS}", json.dumps(listed, indent=1).encode())
        _sync_folder(draft)
        while True:
            try:
                draft.rename(folder / JOURNAL)
                break
            except OSError:
                # Another process has completed a save and not yet moved its files.
                if not (folder / JOURNAL).exists():
                    raise
                finish_save(folder)
    except OSError as error:
        raise OSError(
            error.errno, f"the model could not be saved ({error}); what {folder} held before is as it was"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _sync_folder(folder)
    finish_save(folder)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file that is on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def finish_save(folder: Path) -> None:
    """Move the files of a completed save to their places; several processes may do so at once."""
    journal = folder / JOURNAL
    while journal.exists():
        with suppress(FileNotFoundError):  # another process was faster
            for path in list(journal.iterdir()):
                os.replace(path, folder / path.name)
        _sync_folder(folder)
        try:
            journal.rmdir()
        except OSError as error:
            # Gone, or not empty: another save was completed meanwhile, or its files are not all moved.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise


def _sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    """Remove what saves of killed processes of this machine have left."""
    for draft in folder.glob(f".saving-{socket.gethostname()}-*"):
        pid = int(draft.name.split("-")[-2])
        if not _is_running(pid):
            shutil.rmtree(draft, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def encoded(found: dict[str, Any], **save_kwargs) -> bytes:
    """The content of a model's file; made in memory, so that a full disk is told as such, and read once, to be sure."""
    buffer = io.BytesIO()
    torch.save(found, buffer, **save_kwargs)
    buffer.seek(0)
    torch.load(buffer, weights_only=True)
    return buffer.getvalue()


def convert(folder: str | Path, out: str | Path, *, prefix: str | None = None, overwrite: bool = False) -> None:
    """Write a model of an earlier version, whose file holds Python objects, in the form that runs nothing.

    Reading such a file can run any code: convert only files of people that you trust.
    """
    found = read_model(folder, prefix, trust=True)
    check_target(out, overwrite)
    state = {name: value for name, value in found[STATE].items() if isinstance(value, torch.Tensor)}
    attributes = found[ATTRIBUTES]
    if isinstance(attributes.get("trained_on_"), str):  # only the names of cells were noted
        attributes["trained_on_"] = {"names of cells": attributes["trained_on_"]}
    plain_form = {STATE: state, VAR_NAMES: found[VAR_NAMES], ATTRIBUTES: attributes}
    content = encoded({key: plain(value, key) for key, value in plain_form.items()})
    writers: dict[str, Callable[[Path], Any]] = {f"{prefix or ''}{MODEL}": lambda path: write_synced(path, content)}
    data = check_data_file(folder, prefix)
    if data is not None and Path(out).resolve() != Path(folder).resolve():
        writers[data.name] = lambda path: shutil.copyfile(data, path)
    write_files(out, writers, prefix)


def check_target(folder: str | Path, overwrite: bool) -> None:
    """Raise where a model would be written over something."""
    folder = Path(folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; give a folder to save the model to.")
    if folder.exists() and not overwrite:
        raise InputError(f"{folder} already exists; give another folder, or overwrite=True.")
