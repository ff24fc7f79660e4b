"""Conditions that differ in which cells they have: whether z keeps cell types and loses the condition within them.

Every task has its condition in ``obs["condition"]`` and, where cells have types, these in ``obs["cell_type"]``.
"""

import numpy as np
import pandas as pd
from anndata import AnnData
from sklearn.model_selection import train_test_split

from discovr_sc import data, metrics
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.kang import SPLIT_SEED, labels_of, load_kang, parts_of, probe_args
from discovr_sc.experiments.studies.kang_figures import draw_latents, umap_of
from discovr_sc.experiments.studies.references import fit_harmony, fit_pca, fit_scanvi, fit_scvi, fit_sysvi
from discovr_sc.model.base import DisentangledModel

CONDITION, TYPE = "condition", "cell_type"
#: Share of the cells that no training sees, the same cells for every seed.
TEST_SHARE = 0.3
#: Cells whose condition is hidden, to be read from w: averaging over many conditions takes long.
N_HIDDEN = 1_500
#: Classifiers that read the condition.
KINDS: tuple = ("linear", "knn")

MONOCYTES, T_CELLS = ("CD14+ Monocytes", "FCGR3A+ Monocytes"), ("CD4 T cells", "CD8 T cells")

# Epochs are those that the model takes by default, so the presets give none.
PRESETS = {
    "full": Preset(n_train=None, n_eval=None, max_epochs=0, patience=50, batch_size=256),
    "laptop": Preset(n_train=3_000, n_eval=1_500, max_epochs=20, patience=50, batch_size=256),
}


# Data ------------------------------------------------------------------------------------------------------------


def make_kang(preset: Preset, seed: int, keep: float = 1.0, missing: bool = False, held_out: str = "test") -> Task:
    """Kang's cells with shares of types that differ between the conditions.

    Parameters
    ----------
    preset, seed
        The size; the seed chooses cells.
    keep
        Share of the stimulated monocytes and of the control T cells that is kept.
    missing
        Leave out the stimulated B cells and the control NK cells.
    held_out
        ``"validation"`` takes apart training cells only, for a choice of settings.
    """
    adata = load_kang().copy()
    adata.obs[CONDITION] = adata.obs["stim"].astype(str)
    train, evaluation = split(np.arange(adata.n_obs), adata.obs, SPLIT_SEED)
    if held_out == "validation":
        train, evaluation = split(train, adata.obs, seed)
    is_kept = kept_cells(adata.obs, keep, missing, seed)
    return task_of(adata, train[is_kept[train]], evaluation[is_kept[evaluation]], preset, seed)


def kept_cells(obs: pd.DataFrame, keep: float, missing: bool, seed: int) -> np.ndarray:
    """Which cells are kept, ``(n_cells,)``."""
    types, stimulated = obs[TYPE].astype(str), (obs["stim"] == "STIM").to_numpy()
    is_rare = (types.isin(MONOCYTES) & stimulated) | (types.isin(T_CELLS) & ~stimulated)
    kept = ~is_rare.to_numpy() | (np.random.default_rng(seed).random(len(obs)) < keep)
    is_missing = ((types == "B cells") & stimulated) | ((types == "NK cells") & ~stimulated)
    return kept & ~is_missing.to_numpy() if missing else kept


def make_simulated(preset: Preset, seed: int) -> Task:
    """Six types: two are ten times as rare in one condition as in the other, and one condition lacks one."""
    shares = np.array([[0.40, 0.04, 0.20, 0.20, 0.16, 0.00], [0.04, 0.40, 0.20, 0.20, 0.08, 0.08]])
    adata = data.simulate_counts(
        5_000, 500, seed=seed, n_types=6, type_proportions=shares, effect_size=1.0, n_effect_genes=100
    )
    train, evaluation = split(np.arange(adata.n_obs), adata.obs, seed)
    return task_of(adata, train, evaluation, preset, seed)


def split(rows: np.ndarray, obs: pd.DataFrame, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two parts with conditions and types in equal shares; a group of one cell goes to the first."""
    columns = [column for column in (CONDITION, TYPE) if column in obs]
    groups = obs[columns].astype(str).agg(" ".join, axis=1).to_numpy()[rows]
    names, counts = np.unique(groups, return_counts=True)
    groups[np.isin(groups, names[counts < 2])] = "few"
    stratify = groups if np.unique(groups, return_counts=True)[1].min() > 1 else None
    return train_test_split(rows, test_size=TEST_SHARE, stratify=stratify, random_state=seed)


def task_of(adata: AnnData, train: np.ndarray, evaluation: np.ndarray, preset: Preset, seed: int, **setup) -> Task:
    """A task of some cells, as many as the preset has."""
    rng = np.random.default_rng(seed)
    train_cells, evaluation_cells = (
        adata[np.sort(rng.choice(rows, min(n or len(rows), len(rows)), replace=False))].copy()
        for rows, n in ((train, preset.n_train), (evaluation, preset.n_eval))
    )
    return Task(train_cells, evaluation_cells, setup={"condition_key": CONDITION} | setup)


# Scores ------------------------------------------------------------------------------------------------------------


def evaluate(run: Run) -> dict[str, float]:
    """Everything is scored on the evaluation cells; probes and neighbours are those of the training cells."""
    z = {name: np.asarray(run.model.get_latent_representation(cells)) for name, cells in parts_of(run).items()}
    conditions = labels_of(run, CONDITION)
    condition = probe_args(z, conditions)
    x, both, train = condition["x"], condition["labels"], np.arange(len(condition["x"])) < run.train.n_obs
    types = np.full(len(x), "all")
    values = {"probe_z_condition": metrics.best_probe(**condition, kinds=KINDS, seed=run.seed).accuracy}
    if TYPE in run.train.obs:
        types = np.concatenate(list(labels_of(run, TYPE).values()))
        values |= type_metrics(x, both, types, train)
    values["leak_within_types"] = metrics.leak_within_types(x, both, types, train=train, seed=run.seed).mean
    if isinstance(run.model, DisentangledModel):
        hidden = probe_args(*hidden_w(run))
        values["probe_w_condition_hidden"] = metrics.best_probe(**hidden, kinds=KINDS, seed=run.seed).accuracy
    return values


def type_metrics(x: np.ndarray, conditions: np.ndarray, types: np.ndarray, train: np.ndarray) -> dict[str, float]:
    """What z tells of the type, in all cells and across conditions, and what composition tells of the condition."""
    transfers = metrics.type_transfer(x, conditions, types, train=train)
    return {
        "type_knn": metrics.type_accuracy(x, types, train=train),
        "transfer_forward": float(np.nanmean([value for pair, value in transfers.items() if pair[0] < pair[1]])),
        "transfer_back": float(np.nanmean([value for pair, value in transfers.items() if pair[0] > pair[1]])),
        "floor": metrics.composition_floor(conditions, types, train=train),
    }


def hidden_w(run: Run) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """W of the training cells, and of evaluation cells whose condition the model is not told; and their conditions."""
    chosen = np.random.default_rng(0).permutation(run.evaluation.n_obs)[:N_HIDDEN]
    hidden = run.evaluation[np.sort(chosen)].copy()
    labels = {"train": labels_of(run, CONDITION)["train"], "evaluation": hidden.obs[CONDITION].astype(str).to_numpy()}
    hidden.obs[CONDITION] = np.nan
    w = {
        "train": run.model.get_latent_representation(run.train, kind="w"),
        "evaluation": run.model.get_latent_representation(hidden, kind="w"),
    }
    kept = np.isin(labels["train"], labels["evaluation"])
    w["train"], labels["train"] = w["train"][kept], labels["train"][kept]
    return w, labels


def sketch(run: Run) -> dict[str, np.ndarray]:
    """UMAP of z of the evaluation cells, with their labels."""
    arrays = {"condition": run.evaluation.obs[CONDITION].astype(str).to_numpy().astype(str)}
    if TYPE in run.evaluation.obs:
        arrays["type"] = run.evaluation.obs[TYPE].astype(str).to_numpy().astype(str)
    return arrays | {"umap_z": umap_of(np.asarray(run.model.get_latent_representation(run.evaluation)), run.seed)}


# Studies -----------------------------------------------------------------------------------------------------------

#: The plain constructor and the plain training.
OURS = Method("DISCOVR", train={"max_epochs": None, "early_stopping": False})
#: The same, told the types of the training cells.
OURS_TYPES = Method("DISCOVR", train=OURS.train, setup={"cell_type_key": TYPE})

COMPOSITION = Study(
    name="composition",
    experiment="kang",
    make_task=lambda preset, seed, simulated=False, **shift: (
        make_simulated(preset, seed) if simulated else make_kang(preset, seed, **shift)
    ),
    evaluate=evaluate,
    presets=PRESETS,
    headline=(
        *("type_knn", "transfer_forward", "transfer_back", "leak_within_types"),
        *("probe_z_condition", "floor", "probe_w_condition_hidden"),
    ),
    sketch=sketch,
    draw=draw_latents,
    variants={
        "all": Variant(),
        "swap": Variant(data={"keep": 0.15}),
        "missing": Variant(data={"missing": True}),
        "simulated": Variant(data={"simulated": True}),
    }
    | {
        f"ratio={ratio}": Variant(data={"keep": 1 / ratio}, methods=("discovr", "discovr-types", "scvi"))
        for ratio in (2, 5, 10, 20)
    },
    methods={
        "discovr": OURS,
        "discovr-types": OURS_TYPES,
        "scvi": Method(fit=fit_scvi),
        "scanvi": Method(fit=fit_scanvi),
        "harmony": Method(fit=fit_harmony),
        "sysvi": Method(fit=fit_sysvi),
        "pca": Method(fit=fit_pca),
        "discovr-paper": Method("DISCOVR", "discovr", train={"max_epochs": 60}),
    },
    n_seeds=3,
)
