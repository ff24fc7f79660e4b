"""The report as one page: complete, self-contained, and readable at the width of a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest

from discovr_sc import CVAE, DISCOVR
from discovr_sc.data import simulate_counts

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def model():
    adata = simulate_counts(n_cells=300, n_genes=50, n_types=2, seed=1)
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories({"type_0": "<b>T & B</b>"})
    DISCOVR.setup_anndata(adata, "condition")
    model = DISCOVR(adata, n_latent_z=3, n_hidden=16)
    model.train(2, train_size=0.7, enable_progress_bar=False)
    return model


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    return model.report(path, cell_type_key="cell_type", probes=["linear"], n_cells=100), path


class Tags(HTMLParser):
    """Checks that tags are closed in order, and keeps all attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes = [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_complete_and_needs_no_other_file(page, model):
    report, path = page
    html = path.read_text()
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    for title in ("Cells before and after", "Separation", "Training", "Genes by cell type", "Settings and versions"):
        assert f"<h2>{title}</h2>" in html
    sources = [value for name, value in tags.attributes if name in ("src", "href")]
    assert len(sources) in (3 * 2 + 2, 3 * 2 + 3)  # with genes to show, or without
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", html)
    assert "<b>T" not in html and "&lt;b&gt;T &amp; B" in html  # names are text, not markup
    assert "300 cells are few" in html
    assert "scvi-tools = " in html
    expected = model.disentanglement_report("cell_type", probes=["linear"])
    pd.testing.assert_frame_equal(report.table, expected)


def test_jupyter_shows_the_same(page):
    report, path = page
    assert report._repr_html_() in path.read_text()


def test_what_a_model_lacks_is_left_out(images):
    CVAE.setup_anndata(images, "condition", tensor_key="x")
    model = CVAE(images, likelihood="image-gaussian", network="cnn")
    model.train(1, train_size=0.5, enable_progress_bar=False)
    html = model.report(probes=["linear"]).body
    assert "Genes by cell type" not in html
    assert "no adversary" in html
    assert "w: what the condition adds" not in html


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(page, tmp_path, width):
    """The frame is as wide as a phone; the title says how far the page inside reaches."""
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="{page[1].as_uri()}" width="{width}" height="800" style="border:0" onload="'
        "document.title = 'reaches ' + this.contentDocument.documentElement.scrollWidth\"></iframe>"
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", frame.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert int(re.search(r"<title>reaches (\d+)</title>", dom)[1]) <= width
