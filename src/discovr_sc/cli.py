"""The command line: thin over the package."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from discovr_sc import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``discovr-sc``; returns the exit code."""
    parser = argparse.ArgumentParser(prog="discovr-sc", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_demo(commands)
    arguments = parser.parse_args(argv)
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
