"""The private names of scvi-tools: an upgrade that moves one of them fails here, with its name."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest
from anndata import AnnData

import discovr_sc
from discovr_sc import _scvi

SOURCE = Path(discovr_sc.__file__).parent
LISTED = [
    pytest.param(owner, name, id=f"{owner}.{name}")
    for names_of in (_scvi.OVERRIDDEN, _scvi.CALLED)
    for owner, names in names_of.items()
    for name in names
]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _private_names(tree: ast.AST) -> set[str]:
    """Attributes that code reads or sets, and what its classes define."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names |= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            parts = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
            targets = [target for part in parts for target in getattr(part, "targets", [getattr(part, "target", None)])]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if _is_private(name)}


def _used() -> set[str]:
    return {name for path in SOURCE.rglob("*.py") for name in _private_names(ast.parse(path.read_text()))}


def _names_of(cls: type) -> set[str]:
    """Private names of a class of scvi-tools, with those that its methods set or expect on ``self`` or ``cls``."""
    return _private_names(ast.parse(inspect.getsource(cls)))


def _bases() -> set[type]:
    """Classes of scvi-tools that ours inherit from."""
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(discovr_sc.__path__, "discovr_sc.")
        if not found.name.endswith("__main__")
    ]
    classes = {item for module in modules for item in vars(module).values() if inspect.isclass(item)}
    ours = {item for item in classes if item.__module__.startswith("discovr_sc")}
    return {base for item in ours for base in item.__mro__ if base.__module__.startswith("scvi.")}


@pytest.mark.parametrize(("owner", "name"), LISTED)
def test_scvi_tools_has_the_name(owner, name):
    module, _, cls = owner.rpartition(".")
    members = [base for base in getattr(import_module(module), cls).__mro__ if base.__module__.startswith("scvi.")]
    assert any(name in _names_of(base) for base in members), (
        f"{owner} of the installed scvi-tools knows no {name}, which discovr_sc uses: see discovr_sc/_scvi.py."
    )


def test_every_private_name_of_scvi_tools_is_listed():
    """Ours may have the name of one by chance: then choose another, or it overrides scvi-tools' unseen."""
    theirs = set().union(*map(_names_of, _bases())) - set(dir(AnnData))
    listed = {param.values[1] for param in LISTED}
    assert _used() & theirs - listed == set(), "List these in discovr_sc/_scvi.py, or give them other names."


def test_no_name_is_listed_that_is_not_used():
    assert {param.values[1] for param in LISTED} - _used() == set(), "Take these off the lists in discovr_sc/_scvi.py."


def test_private_modules_of_scvi_tools_are_imported_in_one_file():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            modules = [f"{getattr(node, 'module', None) or ''}.{alias.name}".lstrip(".") for alias in node.names]
            if any(module.startswith("scvi.") and any(map(_is_private, module.split("."))) for module in modules):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == {"_scvi.py"}
