"""What importing the package costs, and that every public name is found."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

import discovr_sc

#: Each takes seconds to import. scvi-tools itself brings numba and scikit-learn, so that models do not come without.
PLOTTING = {"scanpy", "umap", "pynndescent", "seaborn"}
HEAVY = PLOTTING | {"torch", "scvi", "lightning", "anndata", "numba", "sklearn", "matplotlib", "pandas", "scipy", "PIL"}
PACKAGES = ["discovr_sc"] + [
    f"discovr_sc.{module.name}" for module in pkgutil.iter_modules(discovr_sc.__path__) if module.ispkg
]


def loaded_by(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import discovr_sc; dir(discovr_sc)", HEAVY),
        ("from discovr_sc import DISCOVR, Weights, data, metrics, pl", PLOTTING),
    ],
)
def test_heavy_packages_wait_until_they_are_needed(code, unwanted):
    assert not loaded_by(code) & unwanted


def test_names_are_found_in_a_fresh_process():
    loaded = loaded_by(
        "import discovr_sc; discovr_sc.data.simulate_counts, discovr_sc.pl.latents, discovr_sc.metrics.mic"
    )
    assert "discovr_sc.model" not in loaded
    loaded_by("from discovr_sc import *; DISCOVR, CVAE, Weights, data.kang, metrics.probe, pl.history")


def test_public_names_are_listed_and_others_refused():
    assert {*discovr_sc.__all__, "__version__"} <= set(dir(discovr_sc))
    assert all(hasattr(discovr_sc, name) for name in discovr_sc.__all__)
    assert discovr_sc.DISCOVR is importlib.import_module("discovr_sc.model").DISCOVR
    with pytest.raises(AttributeError, match="has no attribute 'DISCOVER'"):
        discovr_sc.DISCOVER  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_hides_a_module(package):
    module = importlib.import_module(package)
    submodules = {submodule.name for submodule in pkgutil.iter_modules(module.__path__)}
    hiding = [name for name in submodules if not isinstance(getattr(module, name, module), types.ModuleType)]
    assert not hiding
