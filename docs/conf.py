"""Sphinx configuration; ``make docs`` builds the site without warnings and without a network."""

import re
import shutil
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import make_tables  # noqa: E402

project = "discovr_sc"
author = "The discovr_sc developers"
copyright = author
release = version = installed_version("discovr_sc")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas without a network, too
]
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

# References to this package's public names must be found. Other packages' names are text, since there may be no
# network, and so are private names in signatures.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!discovr_sc\.).*"), ("py:.*", r"discovr_sc(\.\w+){3,}|discovr_sc\.model\..*")]

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
    api_pages.write_pages(generated / "api")
    (generated / "readme.md").write_text(_readme((HERE.parent / "README.md").read_text()))


def _escape_bars(app, what, name, obj, options, lines: list[str]) -> None:
    """A norm, |x|, is no substitution of reStructuredText."""
    lines[:] = [line if "`" in line or ">>>" in line else re.sub(r"\|(?=\S)", r"\\|", line) for line in lines]


def setup(app) -> None:
    """Connect the preparation, before Sphinx looks for pages."""
    app.connect("builder-inited", _prepare)
    app.connect("autodoc-process-docstring", _escape_bars)
