"""Results of a study: one CSV, written atomically, that a later run reads to know what is done."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import discovr_sc
from discovr_sc.experiments.engine.published import load_published
from discovr_sc.experiments.engine.study import Study, changed_fields

if TYPE_CHECKING:
    from discovr_sc.experiments.engine.runner import Row

COLUMNS = ["study", "variant", "preset", "method", "seed", "metric", "value"]
KEYS = ["variant", "preset", "method", "seed"]


class Results:
    """The table of a study and the settings that made it.

    Parameters
    ----------
    study
        Whose results.
    folder
        Where ``<study>.csv`` and ``<study>.json`` are.
    table
        Tidy: columns study, variant, preset, method, seed, metric, value.
    made_by
        For every row (``variant|preset|method|seed``) the fingerprint of its settings, the command and the version.
    outdated
        Rows of the files that were made with other settings than the study's: left out, and gone with the next write.
    """

    def __init__(
        self,
        study: Study,
        folder: Path,
        table: pd.DataFrame,
        made_by: dict[str, dict[str, str]],
        outdated: Sequence[str] = (),
    ):
        self.study = study
        self.folder = folder
        self.table = table
        self.made_by = made_by
        self.outdated = list(outdated)

    @classmethod
    def open(cls, study: Study, folder: str | Path) -> Results:
        """Results so far; rows whose settings have changed since are left out."""
        folder = Path(folder)
        csv, meta = folder / f"{study.file_stem}.csv", folder / f"{study.file_stem}.json"
        if not csv.exists() or not meta.exists():
            return cls(study, folder, pd.DataFrame(columns=COLUMNS), {})
        table = pd.read_csv(csv, keep_default_na=False, dtype={"variant": str, "seed": int, "value": float})
        made_by = json.loads(meta.read_text())["rows"]
        results = cls(study, folder, table, made_by)
        current = {key: made for key, made in made_by.items() if results._is_current(key, made)}
        table = table[_keys(table).isin(current)].reset_index(drop=True)
        return cls(study, folder, table, current, outdated=sorted(made_by.keys() - current.keys()))

    def has(self, row: Row) -> bool:
        """Whether a row is done."""
        return _key(row) in self.made_by

    def add(
        self, row: Row, metrics: dict[str, float], command: str, sketch: dict[str, np.ndarray] | None = None
    ) -> None:
        """Add a row's metrics, and what its figures are drawn from, and write all files.

        What another run has written to the same files in the meantime is kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            others = Results.open(self.study, self.folder)
            self.table, self.made_by = others.table, others.made_by
            self._add(row, metrics, command, sketch)

    def _add(self, row: Row, metrics: dict[str, float], command: str, sketch: dict[str, np.ndarray] | None) -> None:
        new = pd.DataFrame(
            [(self.study.name, *row, metric, value) for metric, value in metrics.items()], columns=COLUMNS
        )
        kept = self.table[_keys(self.table) != _key(row)]
        self.table = new if kept.empty else pd.concat([kept, new], ignore_index=True)
        self.table = self.table.sort_values([*KEYS, "metric"], ignore_index=True)
        self.made_by[_key(row)] = {
            "fingerprint": self.study.fingerprint(row.method, row.variant, row.preset),
            "command": command,
            "version": discovr_sc.__version__,
        }
        if sketch is not None:
            self._sketches.mkdir(exist_ok=True)
            with _replacing(self._sketches / f"{_key(row)}.npz") as temporary:
                np.savez_compressed(temporary, **sketch)
        _write_atomically(self.folder / f"{self.study.file_stem}.csv", self.table.to_csv(index=False))
        meta = {"study": self.study.name, "settings": self._settings(), "rows": dict(sorted(self.made_by.items()))}
        _write_atomically(self.folder / f"{self.study.file_stem}.json", json.dumps(meta, indent=1, default=repr))

    def _settings(self) -> dict:
        study = self.study
        return {
            "experiment": study.experiment,
            "presets": {name: changed_fields(preset) for name, preset in study.presets.items()},
            "methods": {name: changed_fields(method) for name, method in study.methods.items()},
            "defaults": {name: found for name in study.methods if (found := study.plain_settings(name))},
            "variants": {name: changed_fields(variant) for name, variant in study.variants.items()},
        }

    def _is_current(self, key: str, made: dict[str, str]) -> bool:
        variant, preset, method, _ = key.split("|")
        known = variant in self.study.variants and preset in self.study.presets and method in self.study.methods
        return known and made["fingerprint"] == self.study.fingerprint(method, variant, preset)

    @property
    def _sketches(self) -> Path:
        return self.folder / f"{self.study.file_stem}_sketches"

    def sketches(self, preset: str) -> dict[tuple[str, str], dict[str, np.ndarray]]:
        """What figures are drawn from, by (variant, method)."""
        found = {}
        for variant in self.study.variants:
            for method in self.study.methods:
                key = f"{variant}|{preset}|{method}|{self.study.first_seed}"
                path = self._sketches / f"{key}.npz"
                if key in self.made_by and path.exists():
                    with np.load(path) as arrays:
                        found[variant, method] = dict(arrays)
        return {row: arrays for row, arrays in found.items() if arrays}  # some rows have nothing to show

    def missing_sketches(self, preset: str) -> list[str]:
        """Rows of the first seed whose arrays for figures are not here."""
        if self.study.sketch is None:
            return []
        return [
            key
            for key in self.made_by
            if key.endswith(f"|{self.study.first_seed}")
            and key.split("|")[1] == preset
            and self.study.methods[key.split("|")[2]].is_trained
            and not (self._sketches / f"{key}.npz").exists()
        ]

    def commands(self, preset: str) -> list[str]:
        """The commands that made a preset's rows."""
        return sorted({made["command"] for key, made in self.made_by.items() if key.split("|")[1] == preset})

    # Summaries -------------------------------------------------------------------------------------------------

    def means(self, preset: str | None = None) -> pd.DataFrame:
        """Mean, standard deviation and number of seeds, by variant, method and metric."""
        table = self.table if preset is None else self.table[self.table["preset"] == preset]
        grouped = table.groupby(["variant", "method", "metric"], sort=False)["value"]
        return grouped.agg(["mean", "std", "count"]).reset_index()

    def against_published(self, preset: str | None = None) -> pd.DataFrame:
        """Our means beside the paper's; its DisCoVR stands beside all of ours."""
        ours = self.means(preset)
        published = load_published().rename(columns={"mean": "paper", "sd": "paper_sd"})
        published = published[published["study"] == self.study.name]
        ours["paper_method"] = ours["method"].replace({"discovr": "discovr-paper"})
        merged = ours.merge(
            published.drop(columns="study").rename(columns={"method": "paper_method"}),
            on=["variant", "paper_method", "metric"],
            how="left",
        )
        return merged.drop(columns="paper_method")

    def markdown(self, metrics: Sequence[str], variant: str = "", preset: str | None = None) -> str:
        """A table of methods by metrics, each cell ours (mean ± sd) and the paper's in parentheses, and their seeds."""
        table = self.against_published(preset)
        return _markdown(table[table["variant"] == variant], "method", list(self.study.methods), metrics)

    def markdown_of_variants(self, metrics: Sequence[str], method: str, preset: str | None = None) -> str:
        """The same of one method, by variants."""
        table = self.against_published(preset)
        return _markdown(table[table["method"] == method], "variant", list(self.study.variants), metrics)


def _markdown(table: pd.DataFrame, by: str, names: Sequence[str], metrics: Sequence[str]) -> str:
    """One line for each name that has results in the column ``by``."""
    table = table[table["metric"].isin(metrics)]
    columns = [by, "metric", "mean", "std", "paper"]
    cells = {
        (name, metric): f"{mean:.3f}"
        + ("" if pd.isna(sd) else f" ± {sd:.3f}")
        + ("" if pd.isna(paper) else f" ({paper:g})")
        for name, metric, mean, sd, paper in table[columns].itertuples(index=False)
    }
    n_seeds = table.groupby(by)["count"].max()
    lines = [f"| {by} | seeds | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 2) + "|"]
    for name in names:
        if name in n_seeds:
            values = " | ".join(cells.get((name, m), "") for m in metrics)
            lines.append(f"| {name} | {n_seeds[name]} | {values} |")
    return "\n".join(lines) + "\n"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _key(row: Row) -> str:
    return "|".join(map(str, row))


def _keys(table: pd.DataFrame) -> pd.Series:
    return table[KEYS].astype(str).apply("|".join, axis=1) if len(table) else pd.Series(dtype=str)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write beside another, which it then replaces: a stop leaves the old file or the new one."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_atomically(path: Path, text: str) -> None:
    with _replacing(path) as temporary:
        temporary.write_text(text)
