"""Results of a study: one CSV, written atomically, that a later run reads to know what is done."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

import discovr_sc
from discovr_sc.experiments.engine.files import locked, markdown_table, replacing, write_atomically
from discovr_sc.experiments.engine.published import load_published
from discovr_sc.experiments.engine.study import Row, Study

COLUMNS = ["study", "variant", "preset", "method", "seed", "metric", "value"]
KEYS = ["variant", "preset", "method", "seed"]

#: Behind what was made with other settings than the present ones.
STALE = "†"


@dataclass
class Results:
    """The table of a study and the settings that made it."""

    study: Study
    #: Where ``<study>.csv`` and ``<study>.json`` are.
    folder: Path
    #: Tidy: columns study, variant, preset, method, seed, metric, value.
    table: pd.DataFrame
    #: For every row (``variant|preset|method|seed``) the fingerprint of its settings, the command and the version.
    made_by: dict[str, dict[str, str]]
    #: The same of rows that were made with other settings than the study's. They stay in the files, marked in the
    #: tables, until a row of their variant and method is made anew.
    outdated_table: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))
    outdated: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def open(cls, study: Study, folder: str | Path) -> Self:
        """Results so far; rows whose settings have changed since are kept apart."""
        folder = Path(folder)
        csv, meta = folder / f"{study.file_stem}.csv", folder / f"{study.file_stem}.json"
        if not csv.exists() or not meta.exists():
            return cls(study, folder, pd.DataFrame(columns=COLUMNS), {})
        table = pd.read_csv(csv, keep_default_na=False, dtype={"variant": str, "seed": int, "value": float})
        made_by = json.loads(meta.read_text(encoding="utf-8"))["rows"]
        current = {key: made for key, made in made_by.items() if _is_current(study, key, made)}
        is_current = _keys(table).isin(current)
        outdated = {key: made for key, made in made_by.items() if key not in current}
        tables = [table[of].reset_index(drop=True) for of in (is_current, ~is_current)]
        return cls(study, folder, tables[0], current, tables[1], outdated)

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
        with locked(self.folder):
            others = Results.open(self.study, self.folder)
            self.made_by = others.made_by
            self._keep_outdated(others, row)
            lines = [(self.study.name, *row, metric, value) for metric, value in metrics.items()]
            new = pd.DataFrame(lines, columns=COLUMNS)
            kept = others.table[_keys(others.table) != _key(row)]
            table = new if kept.empty else pd.concat([kept, new], ignore_index=True)
            self.table = table.sort_values([*KEYS, "metric"], ignore_index=True)
            self.made_by[_key(row)] = {
                "fingerprint": self.study.fingerprint(row.method, row.variant, row.preset),
                "command": command,
                "version": discovr_sc.__version__,
            }
            if sketch is not None:
                path = self._sketch_path(_key(row))
                path.parent.mkdir(exist_ok=True)
                with replacing(path) as temporary:
                    np.savez_compressed(temporary, **sketch)  # type: ignore[arg-type]
            written = self._with_outdated().sort_values([*KEYS, "metric"], ignore_index=True)
            write_atomically(self.folder / f"{self.study.file_stem}.csv", written.to_csv(index=False))
            meta = {"study": self.study.name, "settings": self.study.all_settings()}
            meta["rows"] = dict(sorted((self.outdated | self.made_by).items()))
            write_atomically(self.folder / f"{self.study.file_stem}.json", json.dumps(meta, indent=1, default=repr))

    def _keep_outdated(self, others: Self, row: Row) -> None:
        """Outdated rows but those of the new row's variant and method: a mean is over seeds of one setting."""
        replaced = _key(row).rsplit("|", 1)[0]
        self.outdated = {key: made for key, made in others.outdated.items() if key.rsplit("|", 1)[0] != replaced}
        self.outdated_table = others.outdated_table[_keys(others.outdated_table).isin(self.outdated)]

    def _with_outdated(self) -> pd.DataFrame:
        """The table with the outdated rows."""
        tables = [table for table in (self.table, self.outdated_table) if len(table)]
        return pd.concat(tables, ignore_index=True) if tables else self.table

    def _sketch_path(self, key: str) -> Path:
        """The file of a row's arrays; one of an earlier version, whose name had bars, counts as well."""
        folder = self.folder / f"{self.study.file_stem}_sketches"
        old = folder / f"{key}.npz"
        return old if old.exists() else folder / f"{key.replace('|', '__')}.npz"

    def sketches(self, preset: str) -> dict[tuple[str, str], dict[str, np.ndarray]]:
        """What figures are drawn from, by (variant, method)."""
        found = {}
        for variant in self.study.variants:
            for method in self.study.methods:
                key = _key(Row(variant, preset, method, self.study.first_seed))
                if key in self.made_by and self._sketch_path(key).exists():
                    with np.load(self._sketch_path(key)) as arrays:
                        found[variant, method] = dict(arrays)
        return {row: arrays for row, arrays in found.items() if arrays}  # some rows have nothing to show

    def missing_sketches(self, preset: str) -> list[str]:
        """Rows of the first seed whose arrays for figures are not here."""
        if self.study.sketch is None:
            return []
        trained = [name for name, method in self.study.methods.items() if method.is_trained]
        seed, variants = self.study.first_seed, self.study.variants
        rows = [Row(variant, preset, name, seed) for variant in variants for name in trained]
        return [_key(row) for row in rows if self.has(row) and not self._sketch_path(_key(row)).exists()]

    def commands(self, preset: str) -> list[str]:
        """The commands that made a preset's rows."""
        made_by = self.outdated | self.made_by
        return sorted({made["command"] for key, made in made_by.items() if key.split("|")[1] == preset})

    def means(self, preset: str | None = None, *, outdated: bool = False) -> pd.DataFrame:
        """Mean, standard deviation and number of seeds, by variant, method and metric; with or without old rows."""
        table = self._with_outdated() if outdated else self.table
        table = table if preset is None else table[table["preset"] == preset]
        grouped = table.groupby(["variant", "method", "metric"], sort=False)["value"]
        return grouped.agg(["mean", "std", "count"]).reset_index()

    def is_outdated(self, method: str, preset: str) -> bool:
        """Whether some of a method's rows were made with other settings than the present ones."""
        return any(key.split("|")[1:3] == [preset, method] for key in self.outdated)

    def against_published(self, preset: str | None = None) -> pd.DataFrame:
        """Our means beside the paper's; its DisCoVR stands beside all of ours."""
        ours = self.means(preset, outdated=True)
        published = load_published().rename(columns={"mean": "paper", "sd": "paper_sd", "method": "paper_method"})
        published = published[published["study"] == self.study.name].drop(columns="study")
        ours["paper_method"] = ours["method"].replace({"discovr": "discovr-paper"})
        return ours.merge(published, on=["variant", "paper_method", "metric"], how="left")

    def markdown(self, preset: str, *, by: str = "method", of: str = "") -> str:
        """A table of the headline's metrics that there are: ours (mean ± sd), the paper's in parentheses, and seeds.

        It has a line for each method of the variant ``of``, or, with ``by="variant"``, for each variant of a method;
        lines of outdated rows are marked.
        """
        fixed, names = ("variant", self.study.methods) if by == "method" else ("method", self.study.variants)
        table = self.against_published(preset)
        table = table[table[fixed] == of]
        metrics = [metric for metric in self.study.headline if metric in set(table["metric"])]
        table = table[table["metric"].isin(metrics)]
        cells = {
            (name, metric): f"{mean:.3f}"
            + ("" if pd.isna(sd) else f" ± {sd:.3f}")
            + ("" if pd.isna(paper) else f" ({paper:g})")
            for name, metric, mean, sd, paper in table[[by, "metric", "mean", "std", "paper"]].itertuples(index=False)
        }
        n_seeds = table.groupby(by)["count"].max()
        shown = [name for name in names if name in n_seeds]
        old = self.outdated_table[self.outdated_table[fixed] == of]
        stale = set(old.loc[old["preset"] == preset, by])
        lines = [
            (
                f"{name}{STALE if name in stale else ''}",
                n_seeds[name],
                *(cells.get((name, metric), "") for metric in metrics),
            )
            for name in shown
        ]
        return markdown_table(pd.DataFrame(lines, columns=[by, "seeds", *metrics]))


def _is_current(study: Study, key: str, made: dict[str, str]) -> bool:
    variant, preset, method, _ = key.split("|")
    known = variant in study.variants and preset in study.presets and method in study.methods
    return known and made["fingerprint"] == study.fingerprint(method, variant, preset)


def _key(row: Row) -> str:
    return "|".join(map(str, row))


def _keys(table: pd.DataFrame) -> pd.Series:
    return table[KEYS].astype(str).apply("|".join, axis=1) if len(table) else pd.Series(dtype=str)
