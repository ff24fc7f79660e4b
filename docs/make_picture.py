"""The README's picture, docs/_static/kang.png: what the quickstart notebook drew of z and w."""

import base64
import json
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the picture that is stored with the cell that calls ``pl.latents``."""
    notebook = json.loads((ROOT / "notebooks" / "quickstart.ipynb").read_text())
    cell = next(cell for cell in notebook["cells"] if "pl.latents(" in "".join(cell["source"]))
    pictures = [output["data"]["image/png"] for output in cell["outputs"] if "image/png" in output.get("data", {})]
    (ROOT / "docs" / "_static" / "kang.png").write_bytes(base64.b64decode(pictures[0]))


if __name__ == "__main__":
    main()
