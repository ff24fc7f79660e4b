"""The command line: thin over the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from discovr_sc import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``discovr-sc``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="discovr-sc", description="Separate what conditions share from what a condition changes."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_demo(commands)
    _add_reproduce(commands)
    _add_benchmark(commands)
    argv = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_args(argv)
    arguments.command_line = " ".join(["discovr-sc", *argv])
    return arguments.run(arguments)


def _add_demo(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("demo", help="train on IFN-beta stimulated PBMCs; write a UMAP and an h5ad")
    parser.add_argument("--out", default="demo", help="folder to write to (default: demo)")
    parser.add_argument("--max-epochs", type=int, help="passes over the training cells")
    parser.add_argument("--n-cells", type=int, help="take a random sample of that many cells")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from discovr_sc import demo

    demo.run(
        arguments.out,
        max_epochs=arguments.max_epochs or demo.MAX_EPOCHS,
        n_cells=arguments.n_cells,
        seed=arguments.seed,
    )
    return 0


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("reproduce", help="run a study of the paper; goes on where it was stopped")
    parser.add_argument(
        "study",
        help="parametric, parametric-search, parametric-noise, swiss-roll, swiss-roll-search, ablations, kang, "
        "kang-ablations",
    )
    parser.add_argument("--seeds", type=int, help="number of seeds (default: the study's, 10 for the paper's tables)")
    parser.add_argument("--jobs", type=int, help="processes, of one thread each (default: one for each core)")
    parser.add_argument("--methods", nargs="+", help="some methods only")
    parser.add_argument("--variants", nargs="+", help="some variants only, such as flip=0.3")
    parser.add_argument("--preset", help="size: full (default) or laptop")
    parser.add_argument("--out", default="results", help="folder of the tables and figures (default: results)")
    parser.set_defaults(run=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    import matplotlib

    matplotlib.use("Agg")
    from discovr_sc.experiments import STUDIES, run_study
    from discovr_sc.experiments.report import write_report

    if arguments.study not in STUDIES:
        print(f"study {arguments.study!r} is not known; choose from {list(STUDIES)}", file=sys.stderr)
        return 2
    study = STUDIES[arguments.study]
    preset = arguments.preset or next(iter(study.presets))
    try:
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
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(write_report(results, preset))
    return 0


def _add_benchmark(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser("benchmark", help="an epoch on the Swiss roll against a bare PyTorch loop")
    parser.add_argument("--n", type=int, default=20_000, help="points")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of each, after one to warm up")
    parser.set_defaults(run=_benchmark)


def _benchmark(arguments: argparse.Namespace) -> int:
    from discovr_sc.experiments.benchmark import swiss_roll_epoch

    seconds = swiss_roll_epoch(arguments.n, arguments.epochs)
    print(f"epoch of DISCOVR {seconds['model']:.2f} s, of a bare loop {seconds['bare']:.2f} s: {seconds['ratio']:.2f}x")
    return 0
