"""The README's picture, docs/_static/kang.png: what the quickstart notebook drew of z and w."""

import base64
import io
import json
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the picture that is stored with the cell that calls ``pl.latents``, in few colours: a third of the size."""
    notebook = json.loads((ROOT / "notebooks" / "quickstart.ipynb").read_text())
    cell = next(cell for cell in notebook["cells"] if "pl.latents(" in "".join(cell["source"]))
    pictures = [output["data"]["image/png"] for output in cell["outputs"] if "image/png" in output.get("data", {})]
    drawn = Image.open(io.BytesIO(base64.b64decode(pictures[0]))).convert("RGB")
    few = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(ROOT / "docs" / "_static" / "kang.png", optimize=True)


if __name__ == "__main__":
    main()
