"""Results of a study: one CSV, written atomically, that a later run reads to know what is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

import discovr_sc
from discovr_sc.experiments.published import load_published
from discovr_sc.experiments.study import Study

if TYPE_CHECKING:
    from discovr_sc.experiments.runner import Row

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
    """

    def __init__(self, study: Study, folder: Path, table: pd.DataFrame, made_by: dict[str, dict[str, str]]):
        self.study = study
        self.folder = folder
        self.table = table
        self.made_by = made_by

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
        keys = table[KEYS].astype(str).agg("|".join, axis=1)
        return cls(study, folder, table[keys.isin(current)].reset_index(drop=True), current)

    def has(self, row: Row) -> bool:
        """Whether a row is done."""
        return _key(row) in self.made_by

    def add(self, row: Row, metrics: dict[str, float], command: str) -> None:
        """Add a row's metrics and write both files."""
        new = pd.DataFrame(
            [(self.study.name, *row, metric, value) for metric, value in metrics.items()], columns=COLUMNS
        )
        self.table = new if self.table.empty else pd.concat([self.table, new], ignore_index=True)
        self.table = self.table.sort_values([*KEYS, "metric"], ignore_index=True)
        self.made_by[_key(row)] = {
            "fingerprint": self.study.fingerprint(row.method, row.variant, row.preset),
            "command": command,
            "version": discovr_sc.__version__,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(self.folder / f"{self.study.file_stem}.csv", self.table.to_csv(index=False))
        meta = {"study": self.study.name, "settings": self._settings(), "rows": dict(sorted(self.made_by.items()))}
        _write_atomically(self.folder / f"{self.study.file_stem}.json", json.dumps(meta, indent=1, default=repr))

    def _settings(self) -> dict:
        study = self.study
        return {
            "experiment": study.experiment,
            "presets": {name: vars(preset) for name, preset in study.presets.items()},
            "methods": {name: vars(method) for name, method in study.methods.items()},
            "variants": {name: vars(variant) for name, variant in study.variants.items()},
        }

    def _is_current(self, key: str, made: dict[str, str]) -> bool:
        variant, preset, method, _ = key.split("|")
        known = variant in self.study.variants and preset in self.study.presets and method in self.study.methods
        return known and made["fingerprint"] == self.study.fingerprint(method, variant, preset)

    # Summaries -------------------------------------------------------------------------------------------------

    def means(self, preset: str | None = None) -> pd.DataFrame:
        """Mean, standard deviation and number of seeds, by variant, method and metric."""
        table = self.table if preset is None else self.table[self.table["preset"] == preset]
        grouped = table.groupby(["variant", "method", "metric"], sort=False)["value"]
        return grouped.agg(["mean", "std", "count"]).reset_index()

    def against_published(self, preset: str | None = None) -> pd.DataFrame:
        """Our means beside the paper's; its DisCoVR stands beside all of ours."""
        ours = self.means(preset)
        published = load_published(self.study.name).rename(columns={"mean": "paper", "sd": "paper_sd"})
        ours["paper_method"] = ours["method"].replace({"discovr": "discovr-paper"})
        merged = ours.merge(
            published.drop(columns="study").rename(columns={"method": "paper_method"}),
            on=["variant", "paper_method", "metric"],
            how="left",
        )
        return merged.drop(columns="paper_method")

    def markdown(self, metrics: list[str], variant: str = "", preset: str | None = None) -> str:
        """A table of methods by metrics, each cell ours (mean ± sd) and the paper's in parentheses."""
        table = self.against_published(preset)
        table = table[(table["variant"] == variant) & table["metric"].isin(metrics)]
        cells = {
            (row.method, row.metric): f"{row.mean:.3f} ± {0.0 if pd.isna(row.std) else row.std:.3f}"
            + ("" if pd.isna(row.paper) else f" ({row.paper:g})")
            for row in table.rename(columns={"mean": "mean_"}).rename(columns={"mean_": "mean"}).itertuples()
        }
        lines = ["| method | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 1) + "|"]
        for method in self.study.methods:
            if any(key[0] == method for key in cells):
                lines.append(f"| {method} | " + " | ".join(cells.get((method, m), "") for m in metrics) + " |")
        return "\n".join(lines) + "\n"


def _key(row: Row) -> str:
    return "|".join(map(str, row))


def _write_atomically(path: Path, text: str) -> None:
    """Write beside the file, then replace it, so that a stop leaves the old file or the new one."""
    temporary = path.with_suffix(path.suffix + f".{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
