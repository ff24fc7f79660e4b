"""Look at the built site: sheets of all its pages at two widths, light and dark, and what reaches beyond the window.

``python docs/screenshots.py docs/_build/html sheets`` needs chromium; it fails where a page is wider than its window.
``--check`` only measures.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

#: Widths of a phone and of a desktop, and how many pages one sheet shows in a row and in all.
WIDTHS = {390: (8, 8), 1280: (3, 6)}
HEIGHT = 1600
THEMES = ("light", "dark")

#: Sets the theme as the site's button does, and notes what reaches beyond the window and cannot be scrolled to.
SCRIPT = """
function look(frame, theme) {
  const doc = frame.contentDocument, root = doc.documentElement, width = frame.clientWidth;
  root.dataset.theme = theme; root.dataset.mode = theme;
  const within = (e) => { for (e = e.parentElement; e && e !== doc.body; e = e.parentElement)
    if (/auto|scroll/.test(frame.contentWindow.getComputedStyle(e).overflowX)
        && e.getBoundingClientRect().right <= width + 1) return true; return false; };
  const page = doc.querySelector('article') || doc.querySelector('main');
  const wide = [...page.querySelectorAll('*')].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && box.right > width + 1 && !within(e); });
  const found = root.scrollWidth > width ? ['the page: ' + root.scrollWidth] : [];
  for (const e of wide.slice(0, 3)) found.push(e.tagName + ': ' + e.textContent.trim().slice(0, 60));
  const line = document.createElement('p');
  line.textContent = found.length ? frame.dataset.name + ' | ' + found.join(' | ') : '';
  document.body.append(line);
}
// When all frames are there: one that has just loaded may not be laid out.
function lookAtAll(theme) { for (const frame of document.querySelectorAll('iframe')) look(frame, theme); }
"""


def sheet(site: Path, pages: Sequence[Path], width: int, theme: str) -> str:
    """A page with frames of other pages."""
    frames = "".join(
        f'<iframe src="{page.as_uri()}" data-name="{html.escape(str(page.relative_to(site)))}" width="{width}" '
        f'height="{HEIGHT}"></iframe>'
        for page in pages
    )
    body = f"<body onload=\"lookAtAll('{theme}')\">"
    style = "body{margin:0;background:#888}iframe{border:0;margin:0 10px 10px 0;vertical-align:top}p{margin:0}"
    return f"<!doctype html><style>{style}</style><script>{SCRIPT}</script>{body}{frames}</body>"


def run(chromium: str, source: Path, *options: str) -> str:
    """What chromium prints of a page."""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    command += ["--hide-scrollbars", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
    command += [
        f"--user-data-dir={source.parent / 'profile'}",
        "--virtual-time-budget=15000",
        *options,
        source.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def look(site: Path, out: Path | None, chromium: str, only: str) -> Iterator[str]:
    """Draw all sheets, where there is a folder for them, and tell what is too wide."""
    site = site.resolve()
    pages = [page for page in sorted(site.rglob("*.html")) if not {"_modules", "_static"} & set(page.parts)]
    pages = [page for page in pages if re.search(only, str(page.relative_to(site)))]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "sheet.html"
        for width, theme in product(WIDTHS, THEMES if out is not None else THEMES[:1]):
            columns, n_pages = WIDTHS[width]
            for number, some in enumerate(pages[i : i + n_pages] for i in range(0, len(pages), n_pages)):
                source.write_text(sheet(site, some, width, theme))
                if out is not None:
                    size = f"--window-size={columns * (width + 10)},{-(-len(some) // columns) * (HEIGHT + 10)}"
                    picture = out / f"{width}_{theme}_{number:02}.png"
                    run(chromium, source, size, f"--screenshot={picture.resolve()}")
                if theme == THEMES[0]:
                    told = re.findall(r"<p>([^<]+)</p>", run(chromium, source, "--window-size=4000,3000", "--dump-dom"))
                    yield from (f"{width} px: {html.unescape(line)}" for line in told)


def main() -> int:
    """Return 1 where a page is too wide."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the built site")
    parser.add_argument("out", type=Path, nargs="?", help="folder for the sheets")
    parser.add_argument("--only", default="", help="pages whose path has this pattern")
    parser.add_argument("--check", action="store_true", help="draw nothing")
    arguments = parser.parse_args()
    if not arguments.check and arguments.out is None:
        parser.error("name a folder for the sheets, or pass --check")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("chromium is not installed")
    out = None if arguments.check else arguments.out
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    found = list(look(arguments.site, out, chromium, arguments.only))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
