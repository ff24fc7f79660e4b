"""The documentation: true tables, examples that run, notebooks with outputs."""

from __future__ import annotations

import base64
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import discovr_sc
from discovr_sc.data import simulate_counts

ROOT = Path(__file__).parents[1]
#: Pages whose code runs; those of a pattern run one after the other.
PAGES = ["README.md", "docs/guide/tasks.md", "docs/guide/weights.md", "docs/guide/models/*.md"]
PICTURES = ("results", "_static")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
MODULES = ["discovr_sc", "discovr_sc.data", "discovr_sc.metrics", "discovr_sc.pl"]


def _load(name: str, path: Path):
    """A script that is no part of the package."""
    spec = spec_from_file_location(name, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables():
    return _load("make_tables", ROOT / "docs" / "make_tables.py")


# Tables -----------------------------------------------------------------------------------------------------------


def test_the_readme_has_the_table_that_the_results_make(tables):
    assert f"{tables.START}\n\n{tables.summary()}\n{tables.END}" in (ROOT / "README.md").read_text()


def test_check_tells_an_old_table(tables, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "README", tmp_path / "README.md")
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--check"])
    tables.README.write_text(f"before {tables.START} old {tables.END} after")
    assert tables.main() == 1
    assert "make tables" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["make_tables.py"])
    assert tables.main() == 0
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--check"])
    assert tables.main() == 0
    assert tables.README.read_text().startswith("before ")
    assert tables.README.read_text().endswith(" after")


def test_a_summary_has_means_over_seeds_beside_the_papers(tables, tmp_path):
    rows = [
        ("kang", "", "full", "discovr", 0, "nmi_z_type_8", 0.70),
        ("kang", "", "full", "discovr", 1, "nmi_z_type_8", 0.74),
        ("kang", "", "full", "scvi", 0, "nmi_z_type_8", 0.66),
        ("kang", "", "laptop", "discovr", 0, "nmi_z_type_8", 0.10),
    ]
    header = "study,variant,preset,method,seed,metric,value\n"
    (tmp_path / "kang.csv").write_text(header + "".join(",".join(map(str, row)) + "\n" for row in rows))
    (tmp_path / "speed.csv").write_text("metric,value\nepoch_vs_scvi,1.25\n")
    assert "relative to scVI's on the same cells: a training epoch 1.25." in tables.summary(tmp_path)
    line = next(line for line in tables.summary(tmp_path).splitlines() if "8 cell types" in line)
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["0.720 ± 0.028", "0.716", "", "0.660"]


def test_a_page_is_made_for_results_without_a_report(tables, tmp_path):
    header = "study,variant,preset,method,seed,metric,value\n"
    (tmp_path / "toy.csv").write_text(f"{header}toy,flip=0.3,full,discovr,0,score,0.5\n")
    (tmp_path / "toy.json").write_text(json.dumps({"rows": {"a": {"command": "discovr-sc reproduce toy"}}}))
    (tmp_path / "speed.csv").write_text("metric,value\nepoch_vs_scvi,0.9\n")
    (tmp_path / "told.csv").write_text(header)
    (tmp_path / "told.md").write_text("# told\n")
    tables.write_pages(tmp_path / "pages", tmp_path)
    assert {path.name for path in (tmp_path / "pages").iterdir()} == {"summary.md", "toy.md", "speed.md"}
    toy = (tmp_path / "pages" / "toy.md").read_text()
    assert "| score | 0.500 |" in toy
    assert "discovr-sc reproduce toy" in toy
    assert "| epoch_vs_scvi | 0.9 |" in (tmp_path / "pages" / "speed.md").read_text()


# Metadata ---------------------------------------------------------------------------------------------------------


def test_versions_and_licences_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation, registered = (yaml.safe_load((ROOT / name).read_text()) for name in ("CITATION.cff", "scverse.yaml"))
    assert citation["version"] == project["version"]
    assert citation["license"] == registered["license"] == project["license"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["version"])


def test_actions_are_pinned_to_commits():
    workflows = [path.read_text() for path in (ROOT / ".github" / "workflows").iterdir()]
    uses = re.findall(r"uses: (\S+)", "\n".join(workflows))
    assert uses
    assert [action for action in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_are_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_ci_tests_the_python_versions_that_the_package_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.split()[-1] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python-version"] == named


# API --------------------------------------------------------------------------------------------------------------


def test_the_api_page_lists_the_public_modules():
    """``make docs`` fails where a name of their ``__all__`` has no page."""
    listed = re.findall(r"^   (discovr_sc[\w.]*)$", (ROOT / "docs" / "api.md").read_text(), flags=re.M)
    conf = (ROOT / "docs" / "conf.py").read_text()
    suffixes = re.search(r"for name in \(([^)]*)\)", conf[conf.index("PUBLIC_MODULES =") :])[1]
    assert listed == [f"discovr_sc{suffix}" for suffix in re.findall(r'"(.*?)"', suffixes)]
    assert set(MODULES) <= set(listed)


@pytest.mark.parametrize("module_name", [*MODULES, "discovr_sc.train", "discovr_sc.module", "discovr_sc.experiments"])
def test_public_names_have_a_description(module_name):
    module = import_module(module_name)
    assert [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))] == []


# Examples ---------------------------------------------------------------------------------------------------------


def _public_functions():
    for module_name in MODULES:
        module = import_module(module_name)
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isfunction(member):
                yield f"{module_name}.{name}", member
            elif inspect.isclass(member) and not issubclass(member, Exception):
                for method, function in vars(member).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{module_name}.{name}.{method}", function
    for base in discovr_sc.DISCOVR.__mro__:
        # The interface is for tools, whose examples show what it is for.
        if base.__module__.startswith("discovr_sc") and base.__name__ != "ModelInterface":
            for name, attribute in vars(base).items():
                function = getattr(attribute, "__func__", attribute)
                if inspect.isfunction(function) and not name.startswith("_") and name not in NO_EXAMPLE:
                    yield f"DISCOVR.{name}", function


#: The first raises by design, the second is for the runner, the third prints a coloured table.
NO_EXAMPLE = {"get_latent_library_size", "after_training", "view_setup_args"}


@pytest.mark.parametrize(("name", "function"), [pytest.param(*item, id=item[0]) for item in _public_functions()])
def test_public_functions_have_an_example(name, function):
    assert ">>> " in (inspect.getdoc(function) or ""), f"{name} has no example in its docstring"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(page, tmp_path):
    adata = simulate_counts(n_cells=300, n_genes=60, n_types=3, n_batches=2)
    adata.obs["stim"] = adata.obs["condition"].cat.rename_categories({"control": "CTRL", "treated_1": "STIM"})
    adata.obs["lane"] = adata.obs["batch"]
    adata.obs["donor"] = [f"donor_{i % 3}" for i in range(adata.n_obs)]
    adata.write_h5ad(tmp_path / "cells.h5ad")
    text = "\n".join(path.read_text() for path in sorted(ROOT.glob(page)))
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", text, flags=re.M | re.S)
    assert blocks
    code = "\n".join(re.sub(rf"^{indent}", "", block, flags=re.M) for indent, block in blocks)
    # As on the page, but with fewer epochs and genes.
    code = code.replace("n_top_genes=2000", "n_top_genes=40")
    start = "import discovr_sc.settings.defaults as defaults\ndefaults.CELLS_TO_SEE = 0\n"
    _run(start + code, tmp_path)


# Notebooks --------------------------------------------------------------------------------------------------------


def _cells(name: str) -> list[dict]:
    notebook = json.loads((ROOT / "notebooks" / name).read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_page_of_tutorials_and_the_readme_name_all_notebooks():
    names = [name.removesuffix(".ipynb") for name in NOTEBOOKS]
    assert names == ["composition", "donors", "images_and_synthetic", "own_data", "perturb_seq", "quickstart"]
    page, readme = ((ROOT / name).read_text() for name in ("docs/tutorials.md", "README.md"))
    assert sorted(re.findall(r"^generated/notebooks/(\w+)$", page, re.MULTILINE)) == names
    assert [name for name in names if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_with_outputs(name):
    cells = _cells(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "stream" and output["name"] == "stderr"]
    assert not [line for output in outputs for line in output.get("text", []) if "\x1b" in line or "it/s" in line]
    assert (ROOT / "notebooks" / name).stat().st_size < 600_000


def test_logs_bars_and_colours_go_from_a_notebook_and_tables_stay(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    clean = _load("clean_notebooks", ROOT / "docs" / "clean_notebooks.py")
    drawn = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(drawn, format="png")
    picture = {"image/png": base64.b64encode(drawn.getvalue()).decode()}
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="Warning: /home/me/x.py"),
        nbformat.v4.new_output("stream", name="stdout", text="\x1b[34mINFO\x1b[0m 2 conditions"),
        nbformat.v4.new_output("stream", name="stdout", text="Epoch 1/4:  25%| 1/4 [00:52<02:36, 52.21s/it]"),
        nbformat.v4.new_output("stream", name="stdout", text="0.95"),
        nbformat.v4.new_output("display_data", data=picture),
    ]
    cell = nbformat.v4.new_code_cell("x", outputs=outputs)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "a.ipynb")
    monkeypatch.setattr(clean, "NOTEBOOKS", tmp_path)
    for _ in range(2):  # a second time changes nothing
        clean.main()
        kept = nbformat.read(tmp_path / "a.ipynb", as_version=4).cells[0].outputs
        assert [output.output_type for output in kept] == ["stream", "display_data"]
        assert kept[0].text == "0.95"
        assert Image.open(io.BytesIO(base64.b64decode(kept[1].data["image/png"]))).mode == "P"


def test_the_readme_shows_what_the_quickstart_drew(tmp_path, monkeypatch):
    pictures = _load("make_picture", ROOT / "docs" / "make_picture.py")
    (tmp_path / "docs" / "_static").mkdir(parents=True)
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    pictures.main()
    drawn, shown = (
        np.asarray(Image.open(root / "docs" / "_static" / "kang.png").convert("RGB"), dtype=float)
        for root in (tmp_path, ROOT)
    )
    # Another release of Pillow may choose the few colours a little differently.
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 1


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in (ROOT / "docs").glob("*/*.png") if path.parent.name in PICTURES}
    assert len(sizes) > 10
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}
    assert sum(sizes.values()) < 3_000_000


def test_the_gallery_shows_every_plot():
    gallery = _load("make_gallery", ROOT / "docs" / "make_gallery.py")
    assert gallery.page() == (ROOT / "docs" / "gallery.md").read_text()
    plots = [plot for plots in gallery.SECTIONS.values() for plot in plots]
    assert {plot.name for plot in plots} == set(discovr_sc.pl.__all__) - {"to_plane"}
    assert all(plot.call.startswith(f"pl.{plot.name}(") for plot in plots)
    sizes = {path.stem: path.stat().st_size for path in (ROOT / "docs" / "gallery").iterdir()}
    assert sizes.keys() == {plot.name for plot in plots}
    assert sum(sizes.values()) < 700_000


def test_every_model_has_a_page():
    models = {name for name in discovr_sc.__all__ if hasattr(getattr(discovr_sc, name), "setup_anndata")}
    pages = {path.stem for path in (ROOT / "docs" / "guide" / "models").iterdir()}
    assert pages == {name.lower() for name in models} | {"index"}


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run_with_few_epochs(name, tmp_path):
    if name != "own_data.ipynb" and "DISCOVR_SC_DATA" not in os.environ:
        pytest.skip("the data are not at hand; name their folder in DISCOVR_SC_DATA")
    if name == "donors.ipynb":
        pytest.importorskip("decoupler")
    code = "\n".join("".join(cell["source"]) for cell in _cells(name))
    code = re.sub(r"max_epochs=\d+", "max_epochs=2", code)
    _run("import discovr_sc.settings.defaults as defaults\ndefaults.CELLS_TO_SEE = 0\n" + code, tmp_path)


def _run(code: str, folder: Path, **environment: str) -> None:
    script = folder / "script.py"
    script.write_text(code)
    environment = os.environ | {"MPLBACKEND": "Agg"} | environment
    done = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


# The site ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_page_that_is_wider_than_a_phone_is_found(tmp_path):
    look = _load("screenshots", ROOT / "docs" / "screenshots.py").look
    row = '<div style="width: 700px">a table</div>'
    (tmp_path / "good.html").write_text(f'<main><div style="overflow-x: auto">{row}</div></main>')
    (tmp_path / "wide.html").write_text(f"<main>{row}</main>")
    (tmp_path / "clipped.html").write_text(f'<main style="overflow: hidden">{row}</main>')
    assert list(look(tmp_path, None, CHROMIUM, "")) == [
        "390 px: clipped.html | DIV: a table",
        "390 px: wide.html | the page: 708 | DIV: a table",
    ]
    (tmp_path / "sheets").mkdir()
    list(look(tmp_path, tmp_path / "sheets", CHROMIUM, "good"))
    assert {path.name for path in (tmp_path / "sheets").iterdir()} == {
        f"{width}_{theme}_00.png" for width in (390, 1280) for theme in ("light", "dark")
    }


# Links ------------------------------------------------------------------------------------------------------------


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    check = _load("check_links", ROOT / "docs" / "check_links.py")
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there">b</a><a href="https://example.org/x">x</a>'
    )
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html#top">a</a><a href="#there">here</a></p>')
    assert check.broken_links(tmp_path) == []
    (tmp_path / "b.html").write_text('<a href="a.html#gone">a</a><img src="no.png"><a href="a.html">a</a>')
    assert check.broken_links(tmp_path) == [
        "a.html: b.html#there",
        "b.html: a.html#gone",
        "b.html: no.png",
    ]
