"""Tables of the README and of the results pages, from the committed CSVs: no number is typed.

``python docs/make_tables.py`` rewrites the README's table; with ``--check`` it only tells whether the table is current.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from discovr_sc.experiments import STUDIES
from discovr_sc.experiments.engine.files import markdown_table
from discovr_sc.experiments.engine.published import load_published
from discovr_sc.experiments.engine.results import STALE, Results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
START, END = "<!-- results: made by docs/make_tables.py -->", "<!-- end of results -->"

#: Columns of a study's CSV.
STUDY_COLUMNS = {"study", "variant", "preset", "method", "seed", "metric", "value"}


class Line(NamedTuple):
    """One line of the summary: where its numbers are, what they mean, and which way is better."""

    stem: str
    metric: str
    text: str
    better: str
    variant: str | None = ""


#: Better where the truth is a number, which stands in the table of the study, too.
NEAR = "near the truth"

#: Kang: real cells. The others: the paper's synthetic data and images, and predictions of cells left out.
LINES = (
    Line("kang", "probe_z_condition", "Kang: stimulation read from z, best of four probes (chance 0.5)", "low"),
    Line("kang", "nmi_z_condition", "Kang: z and stimulation, K-means NMI", "low"),
    Line("kang", "nmi_z_type_8", "Kang: z and 8 cell types, K-means NMI", "high"),
    Line("kang", "probe_z_type_13", "Kang: 13 cell types read from z, kNN probe", "high"),
    Line("kang", "probe_w_condition_hidden", "Kang: stimulation read from w, label hidden", "high"),
    Line("kang", "nmi_w_condition", "Kang: w and stimulation, which w is told, K-means NMI", "high"),
    Line("kang", "response_r2_within_types", "Kang: strength of the response within types read from w, R2", "high"),
    *(
        Line("composition", metric, f"Kang, {text}: {what}", better, variant)
        for variant, text in (("swap", "types in unequal shares"), ("missing", "types that a condition lacks"))
        for metric, what, better in (
            ("type_knn", "8 cell types read from z", "high"),
            ("leak_within_types", "stimulation read from z within types (chance 0.5)", "low"),
        )
    ),
    Line("counterfactual", "r2_all", "Kang: cells of a type left out predicted, R2 of gene means", "high", None),
    Line("counterfactual", "r2_top100", "the same, 100 most changed genes", "high", None),
    Line("swiss_roll", "probe_z_condition", "Swiss roll: label read from z (chance 0.5)", "low", "flip=0.3"),
    Line("swiss_roll", "mine_wz", "Swiss roll: I(w; z), nats, by MINE, clipped at 0", "low", "flip=0.3"),
    Line("swiss_roll", "knn_wz", "Swiss roll: I(w; z), nats, by neighbours", "low", "flip=0.3"),
    Line("swiss_roll", "nll", "Swiss roll: negative log-likelihood, nats", "low", "flip=0.3"),
    Line("swiss_roll", "delta_bayes_w", "Swiss roll: Delta-Bayes of w, points", "low", "flip=0.3"),
    Line("swiss_roll", "z_r2", "Swiss roll: the roll's plane read from z, R2", "high", "flip=0.3"),
    Line("parametric", "kl_z", "Parametric model: KL of the posterior of z from the truth", "low"),
    Line("parametric", "knn_yw", "Parametric model: I(y; w), nats", NEAR),
    Line("colored_mnist", "marginal_rmse", "Coloured MNIST: error of z-only digits", "low", "flip=0.3"),
)

#: Columns of the summary: heading, and the method whose rows fill it.
METHODS = {"ours": "discovr", "ours, the paper's settings": "discovr-paper", "scVI": "scvi"}

#: Metrics of the benchmark that are ratios to scVI's.
COSTS = {"epoch_vs_scvi": "a training epoch", "latents_vs_scvi": "latents", "peak_memory_vs_scvi": "peak memory"}


def summary(folder: Path = RESULTS) -> str:
    """The summary as Markdown: ours, the paper's and scVI's numbers, for the studies that are there."""
    rows, seeds = [], {}
    published = load_published().set_index(["study", "variant", "method", "metric"])["mean"]
    for line in LINES:
        path = folder / f"{line.stem}.csv"
        if not path.exists():
            continue
        table = _one_preset(pd.read_csv(path, keep_default_na=False))
        stale = _stale_methods(line.stem, folder)
        cells = {
            heading: f"{cell}{STALE if cell and method in stale else ''}"
            for heading, method in METHODS.items()
            for cell in (_cell(table, line, method),)
        }
        if cells["ours"] or cells["ours, the paper's settings"]:
            paper = published.get((line.stem.replace("_", "-"), line.variant or "", "discovr-paper", line.metric))
            cells = {"ours": cells.pop("ours"), "the paper": "" if paper is None else f"{paper:g}"} | cells
            truth = f", {_cell(table, line, 'truth').split()[0]}," if line.better == NEAR else ""
            rows.append({"": f"{line.text} ({line.better}{truth} is better)"} | cells)
            seeds[line.stem] = [table.loc[table["method"] == method, "seed"].nunique() for method in METHODS.values()]
    if not rows:
        return "No study of the table has been run to its end yet; the searches are on the results pages.\n"
    counts = ", ".join(f"{stem.replace('_', ' ')} {_listed(numbers)}" for stem, numbers in seeds.items())
    note = f"Mean ± standard deviation over seeds ({counts}), on data held out from training. "
    note += f"{_floor(folder)} {_costs(folder)}"
    text = markdown_table(pd.DataFrame(rows))
    if STALE in text:
        note += f" {STALE} marks numbers of earlier settings, which wait to be made anew."
    return f"{text}\n{note.strip()}\n"


def _stale_methods(stem: str, folder: Path) -> set[str]:
    """Methods of a study some of whose rows were made with other settings than the present ones."""
    name = stem.replace("_", "-")
    return {key.split("|")[2] for key in Results.open(STUDIES[name], folder).outdated} if name in STUDIES else set()


def _listed(seeds: list[int]) -> str:
    """Numbers of seeds of the columns of a study, one where all have the same."""
    present = [n for n in seeds if n]
    return str(present[0]) if len(set(present)) == 1 else " / ".join(map(str, present))


def _floor(folder: Path) -> str:
    """A sentence on what cell types alone tell of the stimulation, being unequally frequent."""
    path = folder / "kang.csv"
    if not path.exists():
        return ""
    table = _one_preset(pd.read_csv(path, keep_default_na=False))
    found = table.loc[(table["method"] == "types") & (table["metric"] == "probe_z_condition"), "value"]
    if found.empty:
        return ""
    return f"A classifier given only Kang's 13 cell types reaches {found.mean():.3f}."


def _costs(folder: Path) -> str:
    """A sentence on time and memory, from the benchmark."""
    path = folder / "speed.csv"
    if not path.exists():
        return ""
    values = pd.read_csv(path).drop_duplicates("metric").set_index("metric")["value"]
    found = [f"{text} {values[metric]:.2f}" for metric, text in COSTS.items() if metric in values]
    return f"Cost relative to scVI's on the same cells: {', '.join(found)}."


def _one_preset(table: pd.DataFrame) -> pd.DataFrame:
    presets = table["preset"].unique()
    return table[table["preset"] == ("full" if "full" in presets else presets[0])]


def _cell(table: pd.DataFrame, line: Line, method: str) -> str:
    chosen = table[(table["method"] == method) & (table["metric"] == line.metric)]
    if line.variant is not None:
        chosen = chosen[chosen["variant"] == line.variant]
    return _mean_and_sd(chosen.groupby("seed")["value"].mean())


def _mean_and_sd(values: pd.Series) -> str:
    if values.empty:
        return ""
    spread = f" ± {values.std():.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}"


# Pages ------------------------------------------------------------------------------------------------------------


def write_pages(out: Path, folder: Path = RESULTS) -> None:
    """Write the summary, and a page for every CSV that has no report of its own beside it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.md").write_text(f"# Summary\n\n{summary(folder)}")
    for path in sorted(folder.glob("*.csv")):
        if not path.with_suffix(".md").exists():
            (out / path.with_suffix(".md").name).write_text(page(path))


def page(path: Path) -> str:
    """A page for one CSV: its table, the pictures beside it, and the commands that made it."""
    table = pd.read_csv(path, keep_default_na=False)
    text = f"# {path.stem.replace('_', ' ')}\n"
    if set(table.columns) >= STUDY_COLUMNS:
        for (variant, preset), part in table.groupby(["variant", "preset"], sort=False):
            text += f"\n## {variant or 'all'}, preset {preset}\n\n{_study_table(part)}"
    else:
        text += f"\n{markdown_table(table)}"
    for picture in sorted(path.parent.glob(f"{path.stem}_*.png")):
        text += f"\n![{picture.stem}](../../results/{picture.name})\n"
    meta = path.with_suffix(".json")
    if meta.exists():
        commands = sorted({row["command"] for row in json.loads(meta.read_text()).get("rows", {}).values()})
        text += "\nMade by:\n\n```bash\n" + "\n".join(commands) + "\n```\n"
    return text


def _study_table(part: pd.DataFrame) -> str:
    """Metrics in rows, methods in columns, mean ± sd over seeds."""
    cells = part.groupby(["metric", "method"], sort=False)["value"].agg(_mean_and_sd).unstack("method", fill_value="")
    return markdown_table(cells.reset_index())


# README -----------------------------------------------------------------------------------------------------------


def main() -> int:
    """Rewrite the README's table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where the table is old")
    arguments = parser.parse_args()
    text = README.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    current = f"{before}{START}\n\n{summary()}\n{END}{after}"
    if arguments.check:
        if current != text:
            print("The README's results table is not made from docs/results; run `make tables`.", file=sys.stderr)
        return int(current != text)
    README.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
