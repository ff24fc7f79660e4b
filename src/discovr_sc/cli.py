"""The command line: thin over the package, which each command imports when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from discovr_sc import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``discovr-sc``; returns the exit code.

    What a user can mend is said in one line, with exit code 2. Anything else is a bug and keeps its traceback.
    """
    parser = argparse.ArgumentParser(
        prog="discovr-sc", description="Separate what conditions share from what a condition changes."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    for add in (_add_fit, _add_report, _add_convert, _add_demo, _add_reproduce, _add_bench):
        add(commands)
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_args(argv)
    arguments.command_line = " ".join(["discovr-sc", *argv])
    try:
        arguments.run(arguments)
    except Exception as error:
        if not is_of_user(error):
            raise
        print(f"discovr-sc: {error}", file=sys.stderr)
        return 2
    return 0


def is_of_user(error: Exception) -> bool:
    """Whether the package refused an input or a file; a bare KeyError or TypeError is a bug."""
    from discovr_sc.data import DataUnavailableError

    return isinstance(error, (ValueError, OSError, DataUnavailableError))


def _add_fit(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("fit", help="train a model on an h5ad file of counts and save it")
    parser.add_argument("data", help="h5ad file with raw counts")
    parser.add_argument(
        "--condition-key", nargs="+", required=True, help="column of obs with the condition of each cell, or several"
    )
    parser.add_argument("--out", required=True, help="folder to write the model and the cells' latents to")
    parser.add_argument("--model", default="DISCOVR", help="DISCOVR (default), CSVAE, HCSVAE, DIVA, CCVAE or CVAE")
    parser.add_argument("--layer", help="layer with the counts (default: X)")
    parser.add_argument("--unlabeled-category", help="label of cells whose condition is unknown")
    parser.add_argument("--batch-key", help="column of obs with a technical batch")
    parser.add_argument("--size-factor-key", help="column of obs with size factors (default: total counts)")
    for kind in ("categorical", "continuous"):
        parser.add_argument(f"--{kind}-covariate-keys", nargs="+", help=f"columns of obs with {kind} nuisances")
    parser.add_argument("--n-top-genes", type=int, help="keep that many highly variable genes (default: all)")
    parser.add_argument("--max-epochs", type=int, help="passes over the training cells")
    parser.add_argument("--balance-conditions", action="store_true", help="show all conditions equally often")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    parser.add_argument(
        "--checkpoint-every",
        type=float,
        default=60.0,
        help="seconds between checkpoints, from which a killed training goes on when it is started again (default: 60)",
    )
    parser.set_defaults(run=_run_fit)


def _run_fit(arguments: argparse.Namespace) -> None:
    from discovr_sc.fit import fit

    others = ("command", "command_line", "run", "data", "out")
    settings = {name: value for name, value in vars(arguments).items() if name not in others}
    if len(arguments.condition_key) == 1:
        (settings["condition_key"],) = arguments.condition_key
    fit(arguments.data, arguments.out, **settings)
    print(f"Wrote {arguments.out} (latents are in adata.h5ad); see discovr-sc report {arguments.out}")


def _add_report(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("report", help="how well a fitted model separates: a table and pictures")
    parser.add_argument("model", help="folder that discovr-sc fit wrote")
    parser.add_argument("--cell-type-key", help="column of obs with what conditions share, such as the cell type")
    parser.add_argument("--probes", nargs="+", default=["linear", "knn"], help="linear, knn, boosting, mlp")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_run_report)


def _run_report(arguments: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from discovr_sc.fit import headline, report

    table = report(arguments.model, cell_type_key=arguments.cell_type_key, probes=arguments.probes, seed=arguments.seed)
    rows, text = headline(table)
    print(f"{rows.round(3).to_string(index=False)}\n{text}")
    print(f"Wrote report.csv (all {len(table)} rows), history.png and disentanglement.png to {arguments.model}")


def _add_convert(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "convert", help="make a model of an earlier version safe to read; converting it can run any code in its file"
    )
    parser.add_argument("model", help="folder of a saved model whose maker you trust")
    parser.add_argument("out", help="folder to write the converted model to")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    parser.set_defaults(run=_run_convert)


def _run_convert(arguments: argparse.Namespace) -> None:
    from discovr_sc.model.storage import convert

    convert(arguments.model, arguments.out, overwrite=arguments.overwrite)
    print(f"Wrote {arguments.out}")


def _add_demo(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("demo", help="train on IFN-beta stimulated PBMCs; write a UMAP and an h5ad")
    parser.add_argument("--out", default="demo", help="folder to write to (default: demo)")
    parser.add_argument("--max-epochs", type=int, help="passes over the training cells")
    parser.add_argument("--n-cells", type=int, help="take a random sample of that many cells")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> None:
    from discovr_sc import demo

    max_epochs = arguments.max_epochs or demo.MAX_EPOCHS
    demo.run(arguments.out, max_epochs=max_epochs, n_cells=arguments.n_cells, seed=arguments.seed)


class ListStudies(argparse.Action):
    """Print the names of all studies and stop, as ``--version`` does; only then are the studies imported."""

    def __call__(self, parser, *args) -> None:
        """Take the names from their registry."""
        from discovr_sc.experiments import STUDIES

        print(*STUDIES, sep="\n")
        parser.exit()


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("reproduce", help="run a study of the paper; goes on where it was stopped")
    parser.add_argument("study", help="name of a study, such as kang; --list has them all")
    parser.add_argument("--list", action=ListStudies, nargs=0, help="print the names of all studies")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: the study's, 10 for the paper's tables)")
    parser.add_argument("--jobs", type=int, help="processes, of one thread each (default: one for each core)")
    parser.add_argument("--methods", nargs="+", help="some methods only")
    parser.add_argument("--variants", nargs="+", help="some variants only, such as flip=0.3")
    parser.add_argument("--preset", help="size: full (default) or laptop")
    parser.add_argument("--out", default="results", help="folder of the tables and figures (default: results)")
    parser.set_defaults(run=_run_reproduce)


def _run_reproduce(arguments: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from discovr_sc.experiments import STUDIES, run_study
    from discovr_sc.experiments.engine.report import write_report

    if arguments.study not in STUDIES:
        raise ValueError(f"study {arguments.study!r} is not known; choose from {list(STUDIES)}")
    for argument in ("seeds", "jobs"):
        if getattr(arguments, argument) is not None and getattr(arguments, argument) < 1:
            raise ValueError(f"--{argument} {getattr(arguments, argument)}; give a whole number of at least 1")
    study = STUDIES[arguments.study]
    preset = arguments.preset or next(iter(study.presets))
    results = run_study(
        study,
        arguments.out,
        preset=preset,
        n_seeds=arguments.seeds,
        methods=arguments.methods,
        variants=arguments.variants,
        jobs=arguments.jobs or os.cpu_count() or 1,
        command=arguments.command_line,
    )
    print(write_report(results, preset))


def _add_bench(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "bench", help="speed and memory beside scVI, its kin and a bare loop, and as cells and genes grow"
    )
    parser.add_argument("--out", default="docs/results", help="folder of the table (default: docs/results)")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each model, in turn (default: 3)")
    parser.add_argument("--batches", type=int, help="mini-batches of an epoch to run, scaled up (default: all)")
    parser.add_argument("--steps", type=int, default=20, help="steps of a scaling run, three times (default: 20)")
    parser.add_argument("--cells", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="sizes to scale to")
    parser.add_argument("--genes", type=int, nargs="+", default=[2_000, 20_000], help="numbers of genes to scale to")
    parser.add_argument("--points", type=int, default=20_000, help="points of the Swiss roll (default: 20,000)")
    parser.add_argument("--parts", nargs="+", help="memory, scaling, kang, swiss-roll (default: all)")
    parser.set_defaults(run=_run_bench)


def _run_bench(arguments: argparse.Namespace) -> None:
    from discovr_sc.experiments.bench import speed

    table = speed.run(
        arguments.out,
        command=arguments.command_line,
        rounds=arguments.rounds,
        n_batches=arguments.batches,
        n_steps=arguments.steps,
        n_cells=arguments.cells,
        n_genes=arguments.genes,
        n_points=arguments.points,
        parts=arguments.parts,
    )
    print(table)
