"""Sphinx configuration; ``make docs`` builds the site without warnings and without a network."""

import inspect
import os
import re
import shutil
import sys
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import make_tables  # noqa: E402

project = "discovr_sc"
author = "The discovr_sc developers"
copyright = author
release = version = installed_version("discovr_sc")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas without a network, too
]
# Where the site is published there is a network, and names of these packages are links.
intersphinx_mapping = {
    "anndata": ("https://anndata.readthedocs.io/en/stable/", None),
    "lightning": ("https://lightning.ai/docs/pytorch/stable/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "pandas": ("https://pandas.pydata.org/docs/", None),
    "python": ("https://docs.python.org/3/", None),
    "scanpy": ("https://scanpy.readthedocs.io/en/stable/", None),
    "scvi": ("https://docs.scvi-tools.org/en/stable/", None),
    "torch": ("https://docs.pytorch.org/docs/stable/", None),
}
if "READTHEDOCS" not in os.environ:
    intersphinx_mapping = {}
exclude_patterns = ["_build", "generated/readme.md", "**.ipynb_checkpoints"]

# Notebooks are shown as they were stored; `make notebooks` executes them.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Reports of studies start where their program lets them start.
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]

toc_object_entries_show_parents = "hide"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False

# Every name of every public module's __all__ has a page.
PUBLIC_MODULES = tuple(
    "discovr_sc" + name for name in ("", ".data", ".metrics", ".pl", ".train", ".module", ".experiments")
)
autosummary_ignore_module_all = False
autosummary_imported_members = True
templates_path = ["_templates"]

# References to this package's public names must be found. Other packages' names are text, since there may be no
# network, and so are private names in signatures, and settings, which are described where models take them.
nitpicky = True
OF_OURS = r"discovr_sc(\.\w+){3,}|discovr_sc\.model\..*|discovr_sc\.settings.*"
nitpick_ignore_regex = [("py:.*", r"(?!discovr_sc\.).*"), ("py:.*", OF_OURS)]

html_theme = "sphinx_book_theme"
html_title = f"discovr_sc {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "home_page_in_toc": False,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],
}
html_show_sourcelink = False


#: Where the README's links lead on the site.
README_LINKS = {
    "](docs/_static/": "](../_static/",
    "](docs/installation.md)": "](../installation.md)",
    "](docs/architecture.md)": "](../architecture.md)",
    "](docs/results)": "](../results.md)",
    "](docs/results/counterfactual.md)": "](../results/counterfactual.md)",
    "](docs/results.md)": "](../results.md)",
    "](notebooks)": "](../tutorials.md)",
    "](CONTRIBUTING.md)": "](../contributing.md)",
}


def _function(attribute) -> object:
    """The function behind a method, a class method or a property."""
    return inspect.unwrap(getattr(attribute, "fget", None) or getattr(attribute, "__func__", attribute))


def _from_scvi(cls: type) -> dict[str, str]:
    """What a model has from scvi-tools: names of methods, and first sentences without the roles of its own pages."""
    found = {}
    for name in sorted({name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")}):
        function = _function(inspect.getattr_static(cls, name))
        if inspect.isfunction(function) and function.__module__.startswith("scvi.model"):
            line = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
            found[name] = re.sub(r":\w+:|`", "", line).replace("*", "\\*").replace("|", "\\|")
    return found


def _constructor(cls: type) -> str | None:
    """The class whose constructor a model shares with others, and which describes its arguments."""
    base = next(base for base in cls.__mro__ if "__init__" in vars(base))
    shared = base is not cls and base.__module__.startswith("discovr_sc.model")
    return f"{base.__module__}.{base.__name__}" if shared else None


def _api() -> dict:
    """What the templates of the API's pages are told, beside what autosummary tells them."""
    members = {
        f"{module}.{name}": getattr(import_module(module), name)
        for module in PUBLIC_MODULES
        for name in import_module(module).__all__
    }
    members = {path: member for path, member in members.items() if not inspect.ismodule(member)}
    first = {id(member): path for path, member in reversed(members.items())}
    classes = {path: member for path, member in members.items() if inspect.isclass(member)}
    constructors = {path: home for path, cls in classes.items() if (home := _constructor(cls))}
    shared: dict[str, list[str]] = {}
    for path, home in constructors.items():
        if home not in (homes := shared.setdefault(path.rpartition(".")[0], [])):
            homes.append(home)
    return {
        "pages": [path for path, member in members.items() if first[id(member)] == path],
        # A name that two modules offer has one page, under the first.
        "elsewhere": {path: home for path, member in members.items() if (home := first[id(member)]) != path},
        "from_scvi": {path: _from_scvi(cls) for path, cls in classes.items()},
        "constructors": constructors,
        "shared_constructors": shared,
    }


autosummary_context = _api()


def _skip(app, what, name, obj, skip, options) -> bool | None:
    """Of a class show the methods and properties that this package wrote, inherited ones too."""
    if what != "class" or inspect.isclass(obj):
        return None
    function = _function(obj)
    ours = inspect.isfunction(function) and function.__module__.startswith("discovr_sc")
    return None if ours else True


def _check_pages(app, env) -> None:
    """Fail where a public name has no page."""
    missing = [path for path in autosummary_context["pages"] if f"generated/api/{path}" not in env.found_docs]
    if missing:
        raise ExtensionError(f"No page of the API tells of {', '.join(missing)}; is its module in docs/api.md?")


def _readme(text: str) -> str:
    for link, place in README_LINKS.items():
        text = text.replace(link, place)
    return text


def _prepare(app) -> None:
    """Bring what lies elsewhere, or is made from results, into the folder that Sphinx reads."""
    generated = HERE / "generated"
    shutil.rmtree(generated, ignore_errors=True)
    shutil.copytree(HERE.parent / "notebooks", generated / "notebooks", ignore=shutil.ignore_patterns(".*"))
    make_tables.write_pages(generated / "results")
    (generated / "readme.md").write_text(_readme((HERE.parent / "README.md").read_text()))


def _escape_bars(app, what, name, obj, options, lines: list[str]) -> None:
    """A norm, |x|, is no substitution of reStructuredText."""
    lines[:] = [line if "`" in line or ">>>" in line else re.sub(r"\|(?=\S)", r"\\|", line) for line in lines]


def _tell_keys(app, what, name, obj, options, lines: list[str]) -> None:
    """A dictionary has no text of its own but that of all dictionaries."""
    if isinstance(obj, dict):
        lines[:] = [f"A dictionary; its keys: {', '.join(map(repr, obj))}."]


def setup(app) -> None:
    """Connect the preparation, before Sphinx looks for pages and autosummary writes some."""
    app.connect("builder-inited", _prepare, priority=400)
    app.connect("env-check-consistency", _check_pages)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _escape_bars)
    app.connect("autodoc-process-docstring", _tell_keys)
