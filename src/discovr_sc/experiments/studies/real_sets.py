"""Real sets that no setting was chosen on: cells and nuclei, donors, patients with a drug, knocked-out genes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from anndata import AnnData

from discovr_sc import data, metrics
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Preset, Task, Variant
from discovr_sc.experiments.studies import composition
from discovr_sc.experiments.studies.composition import COMPOSITION, CONDITION, TYPE
from discovr_sc.experiments.studies.kang import labels_of, parts_of
from discovr_sc.model.base import DisentangledModel

#: The condition of cells in which no gene is knocked out.
CONTROL = "non-targeting"
#: Largest p-value of a probe that tells a knock-out from the control.
LEVEL = 0.01

#: By variant: the loader, and which columns are the condition, the cell type and the batch.
SETS: dict[str, tuple[Callable[[], AnnData], dict[str, str]]] = {
    "pancreas-suspension": (data.pancreas, {CONDITION: "suspension_type", TYPE: "cell_type"}),
    "pancreas-donor": (data.pancreas, {CONDITION: "donor_id", TYPE: "cell_type"}),
    "glioblastoma": (data.glioblastoma, {CONDITION: "condition", "batch": "patient_id"}),
    "papalexi": (data.papalexi, {CONDITION: "target", "batch": "bio_rep"}),
}


def make_set(preset: Preset, seed: int, name: str) -> Task:
    """A set, with cells held out of every condition and type; conditions of fewer than 30 cells are left out."""
    load, columns = SETS[name]
    adata = load()
    adata.obs = adata.obs[list(columns.values())].astype(str).set_axis(list(columns), axis=1)
    sizes = adata.obs[CONDITION].value_counts()
    adata = adata[adata.obs[CONDITION].isin(sizes.index[sizes >= 30])].copy()
    train, evaluation = composition.split(np.arange(adata.n_obs), adata.obs, seed)
    setup = {"batch_key": "batch"} if "batch" in columns else {}
    return composition.task_of(adata, train, evaluation, preset, seed, **setup)


def evaluate(run: Run) -> dict[str, float]:
    """See :func:`composition.evaluate`; where genes are knocked out, also how many of them z and w tell."""
    values = composition.evaluate(run)
    if CONTROL not in set(run.train.obs[CONDITION]):
        return values
    z = {name: np.asarray(run.model.get_latent_representation(cells)) for name, cells in parts_of(run).items()}
    values["targets_told_z"] = told_targets(z, labels_of(run, CONDITION), run.seed)
    if isinstance(run.model, DisentangledModel):
        values["targets_told_w"] = told_targets(*composition.hidden_w(run), run.seed)
    return values


def told_targets(x: dict[str, np.ndarray], labels: dict[str, np.ndarray], seed: int) -> float:
    """How many conditions a linear probe tells from the control better than chance, on the evaluation cells."""
    points, both = np.concatenate(list(x.values())), np.concatenate(list(labels.values()))
    train = np.arange(len(both)) < len(x["train"])
    told = 0
    for target in np.intersect1d(labels["train"], labels["evaluation"]):
        if target != CONTROL:
            rows = np.isin(both, (target, CONTROL))
            told += metrics.probe(points[rows], both[rows], train=train[rows], seed=seed).p_value < LEVEL
    return float(told)


REAL_SETS = replace(
    COMPOSITION,
    name="real-sets",
    make_task=make_set,
    evaluate=evaluate,
    headline=(*COMPOSITION.headline, "targets_told_z", "targets_told_w"),
    variants={
        name: Variant(
            data={"name": name},
            methods=None if TYPE in columns else ("discovr", "scvi", "harmony", "sysvi", "pca", "discovr-paper"),
        )
        for name, (_, columns) in SETS.items()
    },
)
