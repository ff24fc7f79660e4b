"""A condition added to a trained model from few cells, beside a model that has had it from the start."""

import numpy as np

from discovr_sc import metrics
from discovr_sc.data import simulate_counts
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task
from discovr_sc.experiments.studies.fitting import train_discovr
from discovr_sc.model import DISCOVR

CONDITION, NEW = "condition", "treated_2"
#: Cells of the new condition to learn it from.
N_NEW = 200

PRESETS = {
    "full": Preset(n_train=4_000, n_eval=1_600, max_epochs=100, patience=100, batch_size=256),
    "laptop": Preset(n_train=1_200, n_eval=800, max_epochs=100, patience=100, batch_size=256),
}


def make_growing(preset: Preset, seed: int) -> Task:
    """Simulated cells of two old conditions (``n_train``) and few of a new one; as many new as old ones to score on."""
    if preset.n_train is None or preset.n_eval is None:
        raise ValueError("cells are simulated here; the preset must give their numbers, n_train and n_eval.")
    half = preset.n_eval // 2
    n_old = preset.n_train + half
    # A third of the cells is of each condition, about.
    n_cells = 4 * max(n_old // 2, N_NEW + half)
    adata = simulate_counts(n_cells, 500, n_types=4, n_conditions=3, n_effect_genes=60, seed=seed)
    is_new = (adata.obs[CONDITION] == NEW).to_numpy()
    rng = np.random.default_rng(seed)
    new, old = (rng.permutation(np.flatnonzero(rows)) for rows in (is_new, ~is_new))
    train = np.concatenate([old[: preset.n_train], new[:N_NEW]])
    evaluation = np.concatenate([old[preset.n_train : n_old], new[N_NEW : N_NEW + half]])
    return Task(adata[train].copy(), adata[evaluation].copy(), setup={"condition_key": CONDITION})


def fit_added(task: Task, preset: Preset, seed: int) -> DISCOVR:
    """Train on the old conditions, then add the new one."""
    is_new = (task.train.obs[CONDITION] == NEW).to_numpy()
    # As in adding a condition: few cells are drawn as often as many.
    model = train_discovr(task.train[~is_new].copy(), preset, CONDITION, balance_conditions=True)
    return model.add_condition(task.train[is_new].copy(), enable_progress_bar=False)


def fit_whole(task: Task, preset: Preset, seed: int) -> DISCOVR:
    """Train on all conditions."""
    return train_discovr(task.train.copy(), preset, CONDITION, balance_conditions=True)


def evaluate_growing(run: Run) -> dict[str, float]:
    """What z and w tell of the new condition where its label is hidden, and how well cells are reconstructed."""
    is_new = (run.evaluation.obs[CONDITION] == NEW).to_numpy()
    unlabelled = run.evaluation.copy()
    unlabelled.obs[CONDITION] = np.nan
    z, w = (run.model.get_latent_representation(unlabelled.copy(), kind=kind) for kind in "zw")
    types = run.evaluation.obs["cell_type"].astype(str)
    return {
        "probe_z_new": metrics.best_probe(z, is_new.astype(str), seed=run.seed).accuracy,
        "probe_w_new": metrics.best_probe(w, is_new.astype(str), kinds=("linear", "knn"), seed=run.seed).accuracy,
        "probe_z_type": metrics.probe(z, types, kind="knn", seed=run.seed).accuracy,
        "error_new": run.model.get_reconstruction_error(run.evaluation[is_new].copy()),
        "error_old": run.model.get_reconstruction_error(run.evaluation[~is_new].copy()),
    }


NEW_CONDITION = Study(
    name="new-condition",
    experiment="simulated",
    make_task=make_growing,
    evaluate=evaluate_growing,
    presets=PRESETS,
    headline=("probe_z_new", "probe_w_new", "probe_z_type", "error_new", "error_old"),
    methods={
        "added": Method("DISCOVR", fit=fit_added),
        "from-start": Method("DISCOVR", fit=fit_whole),
    },
    n_seeds=5,
    # Seed 0 served to choose how a condition is added.
    first_seed=1,
)
