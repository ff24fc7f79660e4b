"""Keep what a reader wants of the executed notebooks: no logs or progress bars, pictures in few colours."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
from PIL import Image

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
#: What tells a log or a progress bar in an output: scvi-tools' levels in colour, a carriage return, tqdm's speed.
NOISE = ("\x1b[", "\r", "it/s]", "s/it]", "s/it,", "it/s,")


def is_noise(output: nbformat.NotebookNode) -> bool:
    """Whether an output is a warning (with paths of the machine that ran it), a log or a progress bar."""
    if output.output_type != "stream":
        return False
    return output.name == "stderr" or any(mark in output.text for mark in NOISE) or not output.text.strip()


def in_few_colors(png: str) -> str:
    """A picture, base64 of PNG, in 256 colours: a third of the size."""
    drawn = Image.open(io.BytesIO(base64.b64decode(png)))
    if drawn.mode == "P":
        return png
    buffer = io.BytesIO()
    few = drawn.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(buffer, format="png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    """Clean every notebook in place."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.metadata.clear()  # times of the execution
                cell.outputs = [output for output in cell.outputs if not is_noise(output)]
                for output in cell.outputs:
                    if "image/png" in output.get("data", {}):
                        output.data["image/png"] = in_few_colors(output.data["image/png"])
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
