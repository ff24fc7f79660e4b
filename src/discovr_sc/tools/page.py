"""A model's report as one page of HTML: its cells, its training, how well it separates, which genes change."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from sklearn.decomposition import PCA

from discovr_sc.data import log_counts
from discovr_sc.tools.progress import shown
from discovr_sc.tools.report import disentanglement_report, headline, judged_split
from discovr_sc.train.health import LEAST_SPREAD

if TYPE_CHECKING:
    from discovr_sc.model.interface import ModelInterface

#: Classifiers of the page; those of the table that is asked for by itself are more, and take longer.
PROBES = ("linear", "knn")
#: Genes to list of each cell type, up and down, and posterior samples that they are found with.
N_GENES, N_SAMPLES = 8, 1000
#: Genes of each cell type in the picture.
N_PICTURED = 3
#: Fewer cells than these are too few for an adversary and for classifiers that judge it.
FEW_CELLS = 1000
PACKAGES = ("discovr_sc", "scvi-tools", "torch", "lightning", "anndata", "scanpy")

#: Names of rows, as a reader understands them.
COMPOSITION = {
    "composition_floor": "Reading the condition from the cell type (or cluster) alone: a z that keeps types gives this",
    "leak_within_types": "Reading the condition from z within cell types (0.5 is chance, and best)",
    "type_transfer": "Naming a cell's type by its neighbours in another condition (1 is best)",
}
HEALTH = {
    "adversary_accuracy": "Share of cells whose condition the adversary names",
    "adversary_gain": "Its gain over always naming the most frequent condition, before it is told a cell's kind",
    "adversary_living_units": "Share of its hidden units that are active",
    "adversary_logit_sd": "How much its answers differ from cell to cell",
}

STYLE = """
.discovr-report{font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}
.discovr-report{max-width:72rem;margin:0 auto;padding:1rem}
.discovr-report h1{font-size:1.6rem;margin:.2rem 0}.discovr-report h2{font-size:1.2rem;margin:2rem 0 .5rem}
.discovr-report .grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(20rem,100%),1fr));gap:1rem}
.discovr-report figure{margin:0}.discovr-report img{max-width:100%;height:auto}
.discovr-report .wide{overflow-x:auto;margin-bottom:1rem}.discovr-report table{border-collapse:collapse;font-size:.9rem}
.discovr-report td,.discovr-report th{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid #d8dee4}
.discovr-report .verdict{border-left:4px solid #0969da;padding:.4rem .8rem;background:#f0f6fc}
.discovr-report .warning{border-left:4px solid #bf8700;padding:.4rem .8rem;background:#fff8e5;margin:.5rem 0}
.discovr-report pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}
.discovr-report summary{cursor:pointer;padding:.2rem 0}
/* Jupyter's own colours, in its dark theme light text and dark rows, are for its own background. */
.discovr-report{color-scheme:light}.discovr-report :is(h1,h2,p,pre,code,table,tr,th,td,summary){color:inherit!important}
.discovr-report :is(pre,code,table,tr,th,td){background:none!important;max-width:none}
@media (max-width:600px){
.discovr-report .genes :is(table,tbody,tr,td){display:block}.discovr-report .genes thead{display:none}
.discovr-report .genes tr{border-bottom:1px solid #d8dee4;padding:.4rem 0}
.discovr-report .genes td{border:0;padding:.1rem 0}.discovr-report .genes td:first-child{font-weight:bold}
.discovr-report .genes td:nth-child(2)::before{content:"genes called: "}
.discovr-report .genes td:nth-child(3)::before{content:"higher: "}
.discovr-report .genes td:nth-child(4)::before{content:"lower: "}
.discovr-report .genes td:empty{display:none}}
"""


@dataclass(frozen=True)
class Report:
    """A report: a page that a browser opens without a network and Jupyter shows, and the table behind it."""

    title: str
    #: What is on the page, as HTML.
    body: str
    #: See :meth:`DISCOVR.disentanglement_report`.
    table: pd.DataFrame

    def _repr_html_(self) -> str:
        return f'<style>{STYLE}</style><div class="discovr-report">{self.body}</div>'

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        head += f"<title>{escape(self.title)}</title><style>body{{margin:0;background:#fff}}</style>"
        html = f'<!doctype html><html lang="en"><head>{head}</head><body>{self._repr_html_()}</body></html>\n'
        Path(path).write_text(html, encoding="utf-8")


def report(
    model: ModelInterface,
    path: str | Path | None = None,
    *,
    cell_type_key: str | None = None,
    target: str | None = None,
    reference: str | None = None,
    replicate_key: str | None = None,
    probes: Sequence[str] = PROBES,
    n_cells: int = 5000,
    seed: int = 0,
) -> Report:
    """One page about the model: UMAPs before and after, separation, training, genes by cell type, warnings, settings.

    Parameters
    ----------
    path
        An HTML file to write. It holds its pictures, so it can be sent around and opens without a network.
    cell_type_key
        Column of ``obs`` with cell types; by default the one that the model was set up with.
    target, reference
        Conditions whose genes are compared within cell types; with two conditions, the second against the first.
    replicate_key
        Column of ``obs`` with replicates, such as donors; see :meth:`differential_expression`.
    probes
        Classifiers that try to read the condition; see :func:`discovr_sc.metrics.probe`.
    n_cells
        Cells to draw in the UMAPs, at most.
    seed
        Of everything random.

    Returns
    -------
    A report, which Jupyter displays; ``report.table`` is :meth:`disentanglement_report`.

    Examples
    --------
    >>> page = model.report("report.html", cell_type_key="cell_type")  # doctest: +SKIP
    """
    cell_type_key = cell_type_key or model.get_setup_arg("cell_type_key")
    compared = target is not None or len(model.conditions) == 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = disentanglement_report(model, cell_type_key, probes=probes, seed=seed)
        parts = [
            ("Cells before and after", _umaps(model, cell_type_key, n_cells, seed)),
            ("Separation", _separation(table)),
            ("Training", _training(model)),
        ]
        if cell_type_key is not None and compared and _has_genes(model):
            genes = {"target": target, "reference": reference, "replicate_key": replicate_key, "seed": seed}
            parts.append(("Genes by cell type", _genes(model, cell_type_key, genes)))
        parts.append(("Settings and versions", _settings(model)))
        sections = [f"<h2>{title}</h2>" + "".join(part) for title, part in shown(parts, "Page")]
    told = [str(item.message) for item in caught if issubclass(item.category, UserWarning)]
    title = f"{type(model).__name__}: {', '.join(model.condition_keys)}"
    top = [f"<h1>{escape(title)}</h1>", f"<pre>{escape(repr(model))}</pre>"]
    if verdict := headline(table)[1]:
        top.append(f'<p class="verdict">{escape(verdict)}</p>')
    for text in dict.fromkeys([*_concerns(model), *told]):
        top.append(f'<p class="warning">{escape(text)}</p>')
    found = Report(title, "".join([*top, *sections]), table)
    if path is not None:
        found.save(path)
    return found


def _has_genes(model: ModelInterface) -> bool:
    is_named = model.get_setup_arg("tensor_key") is None
    return model.module.likelihood.counts and is_named and model.minified_data_type is None


def _concerns(model: ModelInterface) -> Iterator[str]:
    """What a user should know before the rest is read."""
    if model.adata.n_obs < FEW_CELLS:
        yield f"{model.adata.n_obs} cells are few: the adversary and the classifiers here need some {FEW_CELLS:,}."
    last = _last(model)
    if last.get("adversary_living_units_train") == 0 or last.get("adversary_logit_sd_train", 1.0) < LEAST_SPREAD:
        yield (
            "The adversary did not work at the end of the training, so nothing removed the condition from z. Train "
            "again with classifier_batch_norm=True, or with a lower plan_kwargs={'adversary_lr': ...}."
        )


def _last(model: ModelInterface) -> dict[str, float]:
    """The last value of everything in the history."""
    return {name: float(values.iloc[-1, 0]) for name, values in (model.history_ or {}).items() if len(values)}


def _umaps(model: ModelInterface, cell_type_key: str | None, n_cells: int, seed: int) -> Iterator[str]:
    from discovr_sc import pl  # takes seconds

    adata, rng = model.adata, np.random.default_rng(seed)
    rows = np.sort(rng.choice(adata.n_obs, min(n_cells, adata.n_obs), replace=False))
    bases = {str(kind): model.get_latent_representation(indices=rows, kind=kind) for kind in model.latents}
    if model.minified_data_type is None:
        data = np.concatenate([model.module.data(batch).flatten(1).numpy() for batch in model.batches(indices=rows)])
        data = log_counts(data) if model.module.likelihood.counts else data
        pca = PCA(min(30, *data.shape), random_state=seed)
        bases = {"before": pca.fit_transform(data)} | bases
    titles = {"before": "Before: the data", "z": "After: z, what conditions share", "w": "w: what the condition adds"}
    columns = [key for key in (*model.condition_keys, cell_type_key) if key is not None]
    # Colours of earlier plots are kept.
    colors = {f"{key}_colors": adata.uns[f"{key}_colors"] for key in columns if f"{key}_colors" in adata.uns}
    yield '<div class="grid">'
    planes = {base: pl.to_plane(latent, seed=seed) for base, latent in bases.items()}
    drawn = AnnData(obs=adata.obs.iloc[rows][columns].copy(), obsm=planes, uns=colors)
    for column in columns:
        for base, latent in bases.items():
            ax = pl.latents(drawn, column, bases=base, show=False)[0, 0]
            ax.set_title(f"{titles[base]}\ncoloured by {column}")
            if latent.shape[1] != 2:
                ax.set(xlabel="UMAP 1", ylabel="UMAP 2")
            yield _picture(ax, f"{titles[base]}, coloured by {column}")
    yield "</div><p>A good z mixes the conditions and keeps cell types apart. A good w separates the conditions.</p>"


def _separation(table: pd.DataFrame) -> Iterator[str]:
    from discovr_sc import pl

    split = judged_split(table)
    yield '<div class="grid">' + _picture(pl.disentanglement(table, split=split, show=False), "What classifiers read")
    best = table[(table["split"] == split) & (table["metric"] == "probe_best")]
    interval = [f"{low:.3f} to {high:.3f}" for low, high in best[["low", "high"]].itertuples(index=False)]
    rows = pd.DataFrame(
        {"read": best["of"], "from": best["latent"], "accuracy": best["value"], "95 % interval": interval}
    ).assign(**{"chance reaches": best["null_high"]})
    yield f"<div><p>Best classifier, balanced accuracy on {split} cells:</p>{_table(rows)}"
    of_z = table[table["metric"].isin(COMPOSITION) | table["metric"].str.startswith("apart_")]
    told = of_z["metric"].map(COMPOSITION).fillna(of_z["metric"].str.replace("apart_", "Kept apart in z: "))
    yield f"{_table(pd.DataFrame({'composition and cell types': told, 'value': of_z['value']}))}</div></div>"


def _training(model: ModelInterface) -> Iterator[str]:
    from discovr_sc import pl

    if "train_loss" not in (model.history_ or {}):
        yield "<p>The model has no history of its training.</p>"
        return
    yield '<div class="grid">' + _picture(pl.history(model, show=False), "Loss and accuracy of the adversary by epoch")
    last = _last(model)
    rows = [(text, last.get(f"{name}_train"), last.get(f"{name}_validation")) for name, text in HEALTH.items()]
    health = pd.DataFrame(rows, columns=["the adversary, last epoch", "training", "validation"])
    health = health[health["training"].notna()].dropna(axis=1, how="all")
    yield f"<div>{_table(health) if len(health) else '<p>The model has no adversary.</p>'}</div></div>"


def _genes(model: ModelInterface, cell_type_key: str, arguments: dict[str, Any]) -> Iterator[str]:
    from discovr_sc import pl

    try:
        table = model.differential_expression(groupby=cell_type_key, n_samples=N_SAMPLES, **arguments)
    except ValueError as error:
        yield f"<p>{escape(str(error))}</p>"
        return
    lfc = "lfc_replicates" if "lfc_replicates" in table else "lfc"
    rows = []
    for group, part in table.groupby("group", sort=False, observed=True):
        called = part[part["is_de"].astype(bool)]
        up, down = (called[sign * called[lfc] > 0].head(N_GENES)["gene"].str.cat(sep=", ") for sign in (1, -1))
        rows.append((group, f"{len(called)} of {len(part)}", up, down))
    compared = f"{table['target'].iloc[0]} against {table['reference'].iloc[0]}" if len(table) else ""
    yield f"<p>{escape(compared)}; see <code>model.differential_expression</code> for fold changes and uncertainty.</p>"
    columns = [cell_type_key, "genes called", "higher, first of all", "lower"]
    yield f'<div class="genes">{_table(pd.DataFrame(rows, columns=columns))}</div>'
    if table["is_de"].astype(bool).any():
        yield _picture(pl.response_heatmap(table, n_genes=N_PICTURED, show=False), "Fold changes by cell type")
        yield f"<p>Log2 fold changes of the first {N_PICTURED} genes of each type. Dots mark genes that are called.</p>"


def _settings(model: ModelInterface) -> Iterator[str]:
    groups = {
        "Data": model.registry["setup_args"],
        "Model": vars(model.module.settings),
        "Training plan, where it differs from its defaults": model.plan_defaults_,
        "Versions": {name: version(name) for name in PACKAGES},
    }
    for name, values in groups.items():
        lines = "\n".join(f"{key} = {value!r}" for key, value in values.items() if value is not None)
        yield f"<details><summary>{name}</summary><pre>{escape(lines)}</pre></details>"


def _table(rows: pd.DataFrame) -> str:
    return f'<div class="wide">{rows.to_html(index=False, border=0, na_rep="", float_format="{:.3f}".format)}</div>'


def _picture(ax: Any, text: str) -> str:
    """The figure of Axes as an image that is part of the page."""
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    ax.figure.savefig(buffer, dpi=110, format="png", bbox_inches="tight")
    plt.close(ax.figure)
    image = base64.b64encode(buffer.getvalue()).decode()
    return f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{image}"></figure>'
