"""The gallery: trains on real cells, draws every plot with the call that the page shows, and writes the page.

``python docs/make_gallery.py`` takes some minutes; ``--page`` writes the page only. The pictures have 256 colours.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PICTURES = HERE / "gallery"
PAGE = HERE / "gallery.md"
N_CELLS, N_EPOCHS = 5000, 60
#: Of a picture, in pixels: wider ones are made smaller.
WIDTH = 1000


class Plot(NamedTuple):
    """A plot: its function, what it shows, and the call."""

    name: str
    text: str
    call: str


SECTIONS = {
    "Cells": (
        Plot(
            "latents",
            "z mixes the conditions and keeps the types apart; w tells the conditions apart.",
            'pl.latents(adata, ["stim", "cell_type", "ISG15"])',
        ),
        Plot("response", "How far the condition moves each cell.", "pl.response(adata, effect)"),
        Plot("composition", "Which types each sample has.", 'pl.composition(adata, "donor", "cell_type")'),
    ),
    "Genes": (
        Plot("volcanoes", "The response of each type, side by side.", "pl.volcanoes(genes)"),
        Plot(
            "condition_effect",
            "The volcano of one type. With replicates, p-values are those of a test over donors.",
            'pl.condition_effect(genes, group="CD14+ Monocytes")',
        ),
        Plot("ma", "Fold changes against mean expression.", 'pl.ma(genes, group="CD14+ Monocytes")'),
        Plot(
            "response_heatmap",
            "Fold changes of the top genes of each type. Dots mark calls; grey genes have too few counts for a test.",
            "pl.response_heatmap(genes)",
        ),
        Plot(
            "response_dotplot",
            "Measured expression of the same genes, by type and condition.",
            'pl.response_dotplot(genes, adata, "stim", "cell_type", n_genes=4)',
        ),
        Plot("upset", "Which types share the genes that respond.", "pl.upset(genes)"),
        Plot("gene_variance", "Genes whose variance w restores.", "pl.gene_variance(effect)"),
    ),
    "Predictions and distances": (
        Plot(
            "counterfactual",
            "Predicted cells beside measured ones, and beside no change.",
            "pl.counterfactual(predicted, stimulated, unchanged=control)",
        ),
        Plot("condition_tree", "Which donors respond alike.", "pl.condition_tree(differences)"),
    ),
    "Training and separation": (
        Plot("history", "The loss and the adversary.", "pl.history(model)"),
        Plot("disentanglement", "What classifiers read from z and w.", "pl.disentanglement(report)"),
    ),
}

#: What the calls take.
START = """\
import numpy as np
from discovr_sc import DISCOVR, data, pl

DISCOVR.setup_anndata(adata, condition_key="stim")
model = DISCOVR(adata)
model.train(train_size=0.8, validation_size=0.1)

for kind in ("z", "w"):
    adata.obsm[f"X_discovr_{kind}"] = model.get_latent_representation(kind=kind)
effect = model.get_condition_effect()
genes = model.differential_expression(target="STIM", groupby="cell_type", replicate_key="donor")
differences = model.get_w_differences(sample_key="donor", groupby="cell_type")
report = model.disentanglement_report("cell_type")
monocytes = adata[adata.obs["cell_type"] == "CD14+ Monocytes"].copy()
control, stimulated = (monocytes[monocytes.obs["stim"] == name].copy() for name in ("CTRL", "STIM"))
predicted = model.predict_counterfactual(control, target="STIM")
"""

INTRODUCTION = f"""\
# Gallery

Every plot takes a finished result, returns matplotlib Axes, and draws on yours with `ax=`. `save="figure.pdf"` writes a
file; its ending chooses the format and `scanpy.set_figure_params(dpi_save=300)` the resolution. Types and conditions
have the colours that scanpy stores in `adata.uns`. A picture leads to the page of its function.

The cells are {N_CELLS:,} of Kang's interferon set, trained for {N_EPOCHS} epochs. `make gallery` draws all of it.

"""


def page() -> str:
    """The text of docs/gallery.md."""
    parts = [INTRODUCTION.rstrip()]
    for title, plots in SECTIONS.items():
        parts.append(f"## {title}\n\n::::{{container}} gallery")
        for plot in plots:
            link = f"generated/api/discovr_sc.pl.{plot.name}.rst"
            parts.append(
                f":::{{container}} plot\n[![{plot.text}](gallery/{plot.name}.png)]({link})\n\n"
                f"{{py:func}}`~discovr_sc.pl.{plot.name}`: {plot.text}\n\n```python\n{plot.call}\n```\n:::"
            )
        parts.append("::::")
    parts.append(f"## What the calls take\n\n```python\n{START}```")
    return "\n\n".join(parts) + "\n"


def draw() -> None:
    """Train, and write every picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    from PIL import Image

    from discovr_sc import data

    adata = data.kang()
    chosen = np.random.default_rng(0).choice(adata.n_obs, N_CELLS, replace=False)
    names = {"adata": adata[np.sort(chosen)].copy()}
    exec(START.replace("model.train(", f"model.train(max_epochs={N_EPOCHS}, "), names)
    PICTURES.mkdir(exist_ok=True)
    for plot in (plot for plots in SECTIONS.values() for plot in plots):
        axes = eval(f"{plot.call[:-1]}, show=False)", names)
        buffer = io.BytesIO()
        figure = np.asarray(axes, dtype=object).flat[0].figure
        figure.savefig(buffer, dpi=110, bbox_inches="tight")
        plt.close(figure)
        picture = Image.open(buffer).convert("RGB")
        picture.thumbnail((WIDTH, 10 * WIDTH), Image.Resampling.LANCZOS)
        few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
        few.save(PICTURES / f"{plot.name}.png", optimize=True)


def main() -> None:
    """Write the page, and the pictures unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page only")
    if not parser.parse_args().page:
        draw()
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
