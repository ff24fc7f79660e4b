"""The rules of the house that a reader relies on: small files, short signatures, privates that stay at home."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from discovr_sc._scvi import CALLED, OVERRIDDEN

SOURCE = Path(__file__).parents[1] / "src" / "discovr_sc"
FILES = sorted(SOURCE.rglob("*.py"))
#: scvi-tools' own names, which our classes and the reference methods of studies have to use.
OF_SCVI = {name for table in (CALLED, OVERRIDDEN) for names in table.values() for name in names}
OF_OTHERS = {"_asdict", "_replace", "_fields", "_SubParsersAction"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_signatures_are_short(path):
    assert len(path.read_text().splitlines()) <= 400
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            a = node.args
            n = len([*a.posonlyargs, *a.args, *a.kwonlyargs]) + (a.vararg is not None) + (a.kwarg is not None)
            assert n <= 12, f"{node.name} has {n} arguments"
        if isinstance(node, ast.ClassDef):
            assert len(node.bases) <= 6, node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_names_stay_in_their_file(path):
    nodes = list(ast.walk(tree(path)))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        target.attr if isinstance(target, ast.Attribute) else target.id
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute | ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("discovr_sc"):
            imported = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            assert not [name for name in imported if is_private(name) and name != "_scvi"]
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in OF_SCVI | OF_OTHERS:
            at_home = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            of_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
            assert at_home or of_super or node.attr in own, f"line {node.lineno}: {ast.unparse(node)}"
