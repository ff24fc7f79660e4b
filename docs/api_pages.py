"""The API reference, written from the package's public names: a page for each, and a page for each module."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

MODULES = (
    "discovr_sc",
    "discovr_sc.data",
    "discovr_sc.metrics",
    "discovr_sc.pl",
    "discovr_sc.train",
    "discovr_sc.module",
    "discovr_sc.experiments",
)


def write_pages(out: Path) -> None:
    """Write ``<module>.rst`` and ``<module>.<name>.rst`` for every name of every ``__all__``."""
    out.mkdir(parents=True, exist_ok=True)
    written: dict[int, str] = {}
    for module_name in MODULES:
        module = import_module(module_name)
        lines, bases = {}, {}
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.ismodule(member):
                continue
            # A name that two modules offer has one page, under the first.
            target = written.setdefault(id(member), f"{module_name}.{name}")
            if target == f"{module_name}.{name}":
                (out / f"{target}.rst").write_text(_member_page(module_name, name, member))
                base = _documented_base(member)
                if base is not None:
                    bases[f"{base.__module__}.{base.__name__}"] = base
            lines[name] = (target, _first_line(member))
        for target, base in bases.items():
            (out / f"{target}.rst").write_text(f"{_title(base.__name__)}.. autoclass:: {target}\n")
        (out / f"{module_name}.rst").write_text(_module_page(module_name, lines, list(bases)))


def _module_page(module_name: str, lines: dict[str, tuple[str, str]], bases: list[str]) -> str:
    rows = "".join(f"   * - :doc:`{name} <{target}>`\n     - {text}\n" for name, (target, text) in lines.items())
    targets = [target for target, _ in lines.values() if target.rpartition(".")[0] == module_name]
    pages = "".join(f"   {target}\n" for target in targets + bases)
    return (
        f"{_title(module_name)}.. automodule:: {module_name}\n   :no-members:\n\n"
        f".. list-table::\n   :widths: 30 70\n\n{rows}\n.. toctree::\n   :hidden:\n\n{pages}"
    )


def _member_page(module_name: str, name: str, member) -> str:
    text = f"{_title(name)}.. currentmodule:: {module_name}\n\n"
    if inspect.isclass(member):
        return text + _class_text(name, member)
    if callable(member):
        return f"{text}.. autofunction:: {name}\n"
    return f"{text}.. py:data:: {name}\n\n   Its keys: {', '.join(map(repr, member))}.\n"


def _class_text(name: str, cls: type) -> str:
    text = f".. autoclass:: {name}\n   :show-inheritance:\n"
    base = _documented_base(cls)
    if base is not None:
        text += f"\n   Its arguments are those of :class:`~{base.__module__}.{base.__name__}`.\n"
    own, shared, inherited = _members(cls)
    text += "".join(f"\n   .. auto{kind}:: {name}.{member}\n" for member, kind in own.items())
    if shared:
        links = ", ".join(f":{_role(kind)}:`~discovr_sc.DISCOVR.{member}`" for member, kind in shared.items())
        text += f"\n.. rubric:: As in DISCOVR\n\n{links}.\n"
    if inherited:
        rows = "".join(f"   * - ``{member}``\n     - {line}\n" for member, line in inherited.items())
        text += f"\n.. rubric:: From scvi-tools\n\n.. list-table::\n   :widths: 35 65\n\n{rows}"
    return text


def _documented_base(member) -> type | None:
    """The class whose constructor a model shares with others, and which describes its arguments."""
    if not inspect.isclass(member):
        return None
    base = next(base for base in member.__mro__ if "__init__" in vars(base))
    return base if base is not member and base.__module__.startswith("discovr_sc.model") else None


def _members(cls: type) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Public members: those to document (with their kind), those DISCOVR's page has, and scvi-tools' own."""
    from discovr_sc import DISCOVR

    own, shared, inherited = {}, {}, {}
    names = dict.fromkeys(name for base in cls.__mro__ for name in vars(base))
    for name in names:
        attribute = inspect.getattr_static(cls, name)
        function = getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute)
        if name.startswith("_") or not inspect.isfunction(inspect.unwrap(function)):
            continue
        kind = "property" if isinstance(attribute, property) else "method"
        home = inspect.unwrap(function).__module__
        if home.startswith("scvi.model"):
            inherited[name] = _first_line(function)
        elif home.startswith("discovr_sc"):
            same = cls is not DISCOVR and inspect.getattr_static(DISCOVR, name, None) is attribute
            (shared if same else own)[name] = kind
    return own, shared, dict(sorted(inherited.items()))


def _role(kind: str) -> str:
    return {"property": "attr", "method": "meth"}[kind]


def _first_line(member) -> str:
    """First sentence of a description, roles and quotes of other projects' documentation taken out."""
    text = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
    return text.replace("`", "").replace(":class:", "").replace(":meth:", "").replace("*", "\\*").replace("|", "\\|")


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"
