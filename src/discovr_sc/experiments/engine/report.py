"""What a study's results look like: tables beside the paper's, ranks, figures."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from discovr_sc import metrics
from discovr_sc.experiments.engine.files import markdown_table
from discovr_sc.experiments.engine.published import BLOCKS, load_published
from discovr_sc.experiments.engine.results import STALE, Results

#: The six columns of the paper's appendix, by both estimators.
RANKED = ("yz", "yw", "wz", "wz_given_y")
#: Columns of the paper's tables of time and memory: their titles, and the digits shown.
COSTS = {
    "seconds_per_epoch": ("seconds per epoch", 2),
    "inference_ms_per_batch": ("inference, ms per batch", 1),
    "peak_memory_mb": ("memory, MiB", 0),
}
#: Width of a figure: one of many panels would take megabytes.
MAX_PIXELS = 1600


def write_report(results: Results, preset: str) -> str:
    """Write ``<study>.md`` and the figures, and return the text."""
    study = results.study
    commands = ", ".join(f"`{command}`" for command in results.commands(preset))
    text = f"# {study.name}, preset {preset}\n\n"
    text += "Mean ± sd over seeds; the paper's mean in parentheses where it has one. "
    text += f"Made by {commands}; the settings of every row are in `{study.file_stem}.json`.\n"
    if results.outdated:
        text += f"\n{STALE} marks rows of earlier settings, which wait to be made anew.\n"
    text += _tables(results, preset) + _costs(results, preset)
    for name, path in _figures(results, preset).items():
        shown = f"Not to be passed on: `{path.name}`." if study.private_figures else f"![{name}]({path.name})"
        text += f"\n{shown}\n"
    if study.conclude is not None:
        text += f"\n{study.conclude(results)}\n"
    (results.folder / f"{study.file_stem}.md").write_text(text, encoding="utf-8")
    return text


def _figures(results: Results, preset: str) -> dict[str, Path]:
    """Draw the figures, and return their files by name.

    What they are drawn from stays where the rows were run, and is not passed on with the tables. Where that of some
    rows is missing, figures that are there from before, which may show more, are kept.
    """
    study = results.study
    if study.draw is None:
        return {}
    has_sketches = study.sketch is None or bool(results.sketches(preset))
    report = results.folder / f"{study.file_stem}.md"
    paths = {}
    if (results.missing_sketches(preset) or not has_sketches) and report.exists():
        before = re.findall(rf"{study.file_stem}_(\S+)\.png", report.read_text(encoding="utf-8"))
        paths = {name: path for name in before if (path := results.folder / f"{study.file_stem}_{name}.png").exists()}
    for name, figure in study.draw(results, preset).items() if has_sketches else ():
        if name not in paths:
            paths[name] = results.folder / f"{study.file_stem}_{name}.png"
            figure.savefig(paths[name], dpi=min(110, MAX_PIXELS / figure.get_figwidth()))
        plt.close(figure)
    return paths


def _tables(results: Results, preset: str) -> str:
    """A table of methods for each variant; of variants where there is one method."""
    study = results.study
    if len(study.methods) == 1 and len(study.variants) > 1:
        (method,) = study.methods
        return f"\n{results.markdown(preset, by='variant', of=method)}"
    text = ""
    run = set(results.means(preset, outdated=True)["variant"])
    for variant in (name for name in study.variants if name in run):
        text += f"\n{'## ' + variant if variant else ''}\n\n{results.markdown(preset, of=variant)}"
        text += _ranks(results, variant, preset)
    return text


def _costs(results: Results, preset: str) -> str:
    """Time and memory of every method beside the paper's, where the paper has this study."""
    published = load_published()
    published = published[(published["study"] == results.study.name) & published["metric"].isin(COSTS)]
    paper = published.groupby(["method", "metric"])["mean"].mean()
    ours = results.means(preset, outdated=True)
    means = ours[ours["metric"].isin(COSTS)].groupby(["method", "metric"])["mean"].mean()
    lines = []
    for method in results.study.methods:
        of_paper = "discovr-paper" if method == "discovr" else method
        if method not in means or of_paper not in paper:
            continue
        line = {"method": f"{method}{STALE if results.is_outdated(method, preset) else ''}"}
        for metric, (title, digits) in COSTS.items():
            line[title] = f"{means[method, metric]:.{digits}f} ({paper[of_paper, metric]:g})"
        lines.append(line)
    if not lines:
        return ""
    text = "\n## Time and memory\n\nHere on one core of a processor, at times beside other work, "
    text += "in parentheses in the paper on an H100 (its sizes of batches are not told):\n\n"
    return text + markdown_table(pd.DataFrame(lines))


def _ranks(results: Results, variant: str, preset: str) -> str:
    """Ranks by closeness to the truth, within the paper's blocks."""
    means = results.means(preset)
    table = means[means["variant"] == variant].pivot(index="method", columns="metric", values="mean")
    if "truth" not in table.index:
        return ""
    columns = [f"{estimator}_{name}" for estimator in ("knn", "mine") for name in RANKED]
    columns += ["mig", "mic", "mig_mine", "mic_mine"]
    truth = table.loc["truth", columns].to_dict()
    blocks = {name: run for name, methods in BLOCKS.items() if (run := [m for m in methods if m in table.index])}
    if not blocks:
        return ""
    table = table.loc[[method for methods in blocks.values() for method in methods], columns]
    text = "\nRank by closeness to the truth within the paper's blocks (1 is closest):\n\n"
    text += markdown_table(metrics.rank_methods(table, truth, blocks).reset_index())
    return text + _firsts(table, truth, blocks)


def _firsts(table, truth: dict[str, float], blocks: dict[str, list[str]]) -> str:
    """On how many columns each of our variants comes first among the methods of others in its block."""
    sentences = []
    for methods in blocks.values():
        others = [method for method in methods if not method.startswith("discovr")]
        for ours in (method for method in methods if method.startswith("discovr") and others):
            ranks = metrics.rank_methods(table.loc[[*others, ours]], truth, {"block": [*others, ours]})
            n_first = int((ranks.loc[ours, list(truth)] == 1).sum())
            sentences.append(f"{ours} against {', '.join(others)}: first on {n_first} of {len(truth)}.")
    return "\n" + " ".join(sentences) + "\n" if sentences else ""
