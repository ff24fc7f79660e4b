"""The command line: thin over the package, which each command imports when it runs."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

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
    settings = vars(parser.parse_args(argv))
    settings["command"] = " ".join(["discovr-sc", *argv])
    logging.getLogger("lightning.fabric.utilities.seed").setLevel(logging.WARNING)  # it tells every seed
    try:
        settings.pop("run")(**settings)
    except Exception as error:
        from discovr_sc.data import DataUnavailableError

        # The package refused an input or a file; a bare KeyError or TypeError is a bug.
        if not isinstance(error, (ValueError, OSError, DataUnavailableError)):
            raise
        print(f"discovr-sc: {error}", file=sys.stderr)
        return 2
    return 0


def _add_command(commands: argparse._SubParsersAction, name: str, run: Callable, text: str) -> argparse.ArgumentParser:
    """A command that calls a function with the arguments that are given; the others have the function's defaults."""
    parser = commands.add_parser(name, help=text, argument_default=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser


def _add_fit(commands: argparse._SubParsersAction) -> None:
    parser = _add_command(commands, "fit", _run_fit, "train a model on an h5ad file of counts and save it")
    parser.add_argument("data", help="h5ad file with raw counts")
    parser.add_argument(
        "--condition-key", nargs="+", required=True, help="column of obs with the condition of each cell, or several"
    )
    parser.add_argument("--out", required=True, help="folder to write the model and the cells' latents to")
    parser.add_argument("--model", help="DISCOVR (default), CSVAE, HCSVAE, DIVA, CCVAE or CVAE")
    parser.add_argument("--layer", help="layer with the counts (default: X)")
    parser.add_argument("--unlabeled-category", help="label of cells whose condition is unknown")
    parser.add_argument("--batch-key", help="column of obs with a technical batch")
    parser.add_argument("--size-factor-key", help="column of obs with size factors (default: total counts)")
    for kind in ("categorical", "continuous"):
        parser.add_argument(f"--{kind}-covariate-keys", nargs="+", help=f"columns of obs with {kind} nuisances")
    parser.add_argument("--n-top-genes", type=int, help="keep that many highly variable genes (default: all)")
    parser.add_argument("--max-epochs", type=int, help="passes over the training cells")
    parser.add_argument("--balance-conditions", action="store_true", help="show all conditions equally often")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    parser.add_argument(
        "--checkpoint-every",
        type=float,
        help="seconds between checkpoints, from which a killed training goes on when it is started again (default: 60)",
    )


def _run_fit(*, command: str, data: str, out: str, condition_key: list[str], **settings) -> None:
    from discovr_sc.fit import fit

    fit(data, out, condition_key=condition_key[0] if len(condition_key) == 1 else condition_key, **settings)
    print(f"Wrote {out} (latents are in adata.h5ad); see discovr-sc report {out}")


def _add_report(commands: argparse._SubParsersAction) -> None:
    parser = _add_command(commands, "report", _run_report, "how well a fitted model separates: one HTML page, a table")
    parser.add_argument("model", help="folder that discovr-sc fit wrote")
    parser.add_argument("--cell-type-key", help="column of obs with what conditions share, such as the cell type")
    parser.add_argument("--target", help="condition whose genes to list by cell type (default: the second of two)")
    parser.add_argument("--reference", help="condition to compare the target with (default: the first of two)")
    parser.add_argument("--replicate-key", help="column of obs with replicates, such as donors, to test genes over")
    parser.add_argument("--probes", nargs="+", help="linear, knn, boosting, mlp (default: linear knn)")
    parser.add_argument("--seed", type=int)


def _run_report(*, command: str, model: str, **settings) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from discovr_sc.fit import report
    from discovr_sc.tools.report import headline

    table = report(model, **settings)
    rows, text = headline(table)
    print(f"{rows.round(3).to_string(index=False)}\n{text}")
    print(f"Wrote report.html, report.csv (all {len(table)} rows), history.png and disentanglement.png to {model}")


def _add_convert(commands: argparse._SubParsersAction) -> None:
    text = "make a model of an earlier version safe to read; converting it can run any code in its file"
    parser = _add_command(commands, "convert", _run_convert, text)
    parser.add_argument("model", help="folder of a saved model whose maker you trust")
    parser.add_argument("out", help="folder to write the converted model to")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")


def _run_convert(*, command: str, model: str, out: str, **settings) -> None:
    from discovr_sc.model.storage import convert

    convert(model, out, **settings)
    print(f"Wrote {out}")


def _add_demo(commands: argparse._SubParsersAction) -> None:
    parser = _add_command(commands, "demo", _run_demo, "train on IFN-beta stimulated PBMCs; write a UMAP and an h5ad")
    parser.add_argument("--out", help="folder to write to (default: demo)")
    parser.add_argument("--max-epochs", type=int, help="passes over the training cells")
    parser.add_argument("--n-cells", type=int, help="take a random sample of that many cells")
    parser.add_argument("--seed", type=int)


def _run_demo(*, command: str, **settings) -> None:
    from discovr_sc import demo

    demo.run(**settings)


class ListStudies(argparse.Action):
    """Print the names of all studies and stop, as ``--version`` does; only then are the studies imported."""

    def __call__(self, parser, *args) -> None:
        """Take the names from their registry."""
        from discovr_sc.experiments import STUDIES

        print(*STUDIES, sep="\n")
        parser.exit()


def _add_reproduce(commands: argparse._SubParsersAction) -> None:
    parser = _add_command(
        commands, "reproduce", _run_reproduce, "run a study of the paper; goes on where it was stopped"
    )
    parser.add_argument("study", help="name of a study, such as kang; --list has them all")
    parser.add_argument("--list", action=ListStudies, nargs=0, help="print the names of all studies")
    parser.add_argument(
        "--seeds", type=int, dest="n_seeds", help="number of seeds (default: the study's, 10 for the paper's tables)"
    )
    parser.add_argument("--jobs", type=int, help="processes, of one thread each (default: one for each core)")
    parser.add_argument("--methods", nargs="+", help="some methods only")
    parser.add_argument("--variants", nargs="+", help="some variants only, such as flip=0.3")
    parser.add_argument("--preset", help="size: full (default) or laptop")
    parser.add_argument("--out", default="results", help="folder of the tables and figures (default: results)")


def _run_reproduce(*, study: str, preset: str | None = None, **settings) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from discovr_sc.experiments import STUDIES, run_study
    from discovr_sc.experiments.engine.report import write_report

    if study not in STUDIES:
        raise ValueError(f"study {study!r} is not known; choose from {list(STUDIES)}")
    for name, value in {"seeds": settings.get("n_seeds"), "jobs": settings.get("jobs")}.items():
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value}; give a whole number of at least 1")
    preset = preset or next(iter(STUDIES[study].presets))
    print(write_report(run_study(STUDIES[study], preset=preset, **settings), preset))


def _add_bench(commands: argparse._SubParsersAction) -> None:
    about = "speed and memory against scVI, related models and a bare loop, and as cells and genes grow"
    parser = _add_command(commands, "bench", _run_bench, about)
    parser.add_argument("--out", help="folder of the table (default: docs/results)")
    parser.add_argument("--rounds", type=int, help="epochs of each model, in turn (default: 3)")
    parser.add_argument(
        "--batches", type=int, dest="n_batches", help="mini-batches of an epoch to run, scaled up (default: all)"
    )
    parser.add_argument("--steps", type=int, dest="n_steps", help="steps of a scaling run, three times (default: 20)")
    parser.add_argument("--cells", type=int, nargs="+", dest="n_cells", help="sizes to scale to (default: 1e4 to 1e6)")
    parser.add_argument("--genes", type=int, nargs="+", dest="n_genes", help="numbers of genes to scale to")
    parser.add_argument("--points", type=int, dest="n_points", help="points of the Swiss roll (default: 20,000)")
    parser.add_argument("--asked", type=int, dest="n_asked", help="cells asked for counterfactuals (default: 50,000)")
    parts = "import, memory, scaling, genes, counterfactuals, kang, swiss-roll (default: all)"
    parser.add_argument("--parts", nargs="+", help=parts)


def _run_bench(**settings) -> None:
    from discovr_sc.experiments.bench import speed

    print(speed.run(**settings))
