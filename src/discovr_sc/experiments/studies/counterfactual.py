"""Leave cells of one condition out, and predict them from their controls: a cell type of Kang's, or a patient.

Every task has its condition in ``obs["condition"]`` and, in ``obs["group"]``, what a group of cells is left out of.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import scanpy as sc
import scvi
import torch
from anndata import AnnData
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from discovr_sc import data, metrics
from discovr_sc.data import log_counts
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.fitting import train_scvi
from discovr_sc.experiments.studies.kang import TYPES, load_kang
from discovr_sc.model import DISCOVR
from discovr_sc.settings import default_epochs

CONTROL, TARGET = "CTRL", "STIM"
CONDITION, GROUP, BATCH = "condition", "group", "batch"
TYPE = TYPES["8"]
HELD_OUT = (
    *("B cells", "CD14+ Monocytes", "CD4 T cells", "CD8 T cells"),
    *("Dendritic cells", "FCGR3A+ Monocytes", "Megakaryocytes", "NK cells"),
)
PATIENTS = ("PW030", "PW032", "PW034", "PW036", "PW040")
#: Predicted cells, about: where a group has fewer controls, each is predicted several times, with other draws.
N_PREDICTED = 2000
#: Genes that differ most between the group's real conditions, by Welch's t-test on log counts.
N_TOP = 100
#: Principal components, and like controls of other groups, of the neighbour rule without a model.
N_COMPONENTS, N_LIKE = 20, 50

# Epochs are those that the model takes by default, so the presets give none.
PRESETS = {
    "full": Preset(n_train=None, n_eval=None, max_epochs=0, patience=50, batch_size=256),
    "laptop": Preset(n_train=4_000, n_eval=1_500, max_epochs=20, patience=50, batch_size=256),
}

#: From controls to predicted cells, as log(1 + counts per 10,000).
Predictor = Callable[[AnnData], np.ndarray]


# Data ------------------------------------------------------------------------------------------------------------


def load_cells(name: str) -> AnnData:
    """Cells of a set, with condition, group and (where there is one) batch; CONTROL and TARGET name the conditions."""
    loaders: dict[str, Callable[[], AnnData]] = {"kang": load_kang, "kang-5000": kang_5000}
    adata = loaders.get(name, data.glioblastoma)().copy()
    if name == "glioblastoma":
        adata.obs[GROUP] = adata.obs[BATCH] = adata.obs["patient_id"].astype(str)
        adata.obs[CONDITION] = adata.obs["condition"].astype(str).map({"ctrl": CONTROL, "panobinostat": TARGET})
    else:
        adata.obs[GROUP], adata.obs[CONDITION] = adata.obs[TYPE].astype(str), adata.obs["stim"].astype(str)
    return adata


@cache
def kang_5000() -> AnnData:
    """Kang's cells with 5,000 genes, as scPerturBench has them."""
    return data.kang(n_top_genes=5000)


def make_heldout(preset: Preset, seed: int, held_out: str, name: str = "kang") -> Task:
    """Train without the target cells of a group; evaluate on the group's cells of both conditions."""
    return leave_out(load_cells(name), held_out, preset.n_train, seed)


def leave_out(adata: AnnData, held_out: str, n_train: int | None, seed: int) -> Task:
    """Cells but the target's of a group (a random sample of ``n_train``), and all cells of that group."""
    of_group = (adata.obs[GROUP] == held_out).to_numpy()
    if not of_group.any():
        raise ValueError(f"held_out={held_out!r} is not in adata.obs[{GROUP!r}].")
    rows = np.flatnonzero(~(of_group & (adata.obs[CONDITION] == TARGET).to_numpy()))
    if n_train is not None and n_train < len(rows):
        rows = np.sort(np.random.default_rng(seed).choice(rows, n_train, replace=False))
    batch = {"batch_key": BATCH} if BATCH in adata.obs else {}
    return Task(adata[rows].copy(), adata[of_group].copy(), setup={"condition_key": CONDITION} | batch)


# Ours --------------------------------------------------------------------------------------------------------------


def fit_discovr(task: Task, preset: Preset, seed: int) -> Predictor:
    """The plain constructor, training and call: it is told no groups."""
    return predictor_of(trained(task, preset), seed)


def fit_discovr_types(task: Task, preset: Preset, seed: int) -> Predictor:
    """The same, with ``cell_type_key`` in ``setup_anndata``."""
    return predictor_of(trained(task, preset, cell_type_key=GROUP), seed)


def fit_discovr_neighbors(task: Task, preset: Preset, seed: int) -> Predictor:
    """The plain model with the neighbour rule around it, told the groups."""
    return predictor_of(trained(task, preset), seed, by="neighbor-shift", cell_type_key=GROUP)


def trained(task: Task, preset: Preset, **setup) -> DISCOVR:
    """A plain model of the training cells."""
    DISCOVR.setup_anndata(task.train, **task.setup, **setup)
    model = DISCOVR(task.train)
    model.train(preset.max_epochs or None, batch_size=preset.batch_size, enable_progress_bar=False)
    return model


def predictor_of(model: DISCOVR, seed: int, **settings) -> Predictor:
    """Cells as the model predicts them, with the noise of counts."""
    return lambda controls: log_counts(
        model.predict_counterfactual(
            controls, target=TARGET, kind="counts", indices=_repeated(controls), seed=seed, **settings
        ).X
    )


# References --------------------------------------------------------------------------------------------------------


def fit_nothing(task: Task, preset: Preset, seed: int) -> Predictor:
    """No change: the controls."""
    return lambda controls: log_counts(controls.X)


def fit_half(task: Task, preset: Preset, seed: int) -> Predictor:
    """The ceiling: half of the real cells, scored against the other half."""
    real = task.evaluation[(task.evaluation.obs[CONDITION] == TARGET).to_numpy()]
    half = np.random.default_rng(seed).permutation(real.n_obs)[: real.n_obs // 2]
    return RealHalf(real.obs_names[half], log_counts(real[half].X))


class RealHalf:
    """Some of the real cells in the place of a prediction; the names tell which not to score against."""

    def __init__(self, names, cells: np.ndarray):
        self.names, self.cells = names, cells

    def __call__(self, controls: AnnData) -> np.ndarray:
        """The cells, whatever the controls."""
        return self.cells


def group_shifts(task: Task) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Mean change (log counts) and mean of the controls of every other group that has both conditions, and names."""
    others = _other_groups(task)
    x, condition, group = log_counts(others.X), others.obs[CONDITION].to_numpy(), others.obs[GROUP].to_numpy()
    names = [name for name in np.unique(group) if len(np.unique(condition[group == name])) == 2]
    controls, targets = (
        np.stack([x[(group == name) & (condition == which)].mean(0) for name in names]) for which in (CONTROL, TARGET)
    )
    return targets - controls, controls, names


def fit_nearest_shift(task: Task, preset: Preset, seed: int) -> Predictor:
    """Each control plus the mean change of the group whose controls are most like."""
    shifts, means, _ = group_shifts(task)

    def predict(controls: AnnData) -> np.ndarray:
        x = log_counts(controls.X)
        nearest = np.argmax([np.corrcoef(x.mean(0), mean)[0, 1] for mean in means])
        return np.maximum(x + shifts[nearest], 0)

    return predict


def fit_neighbor_shift(task: Task, preset: Preset, seed: int) -> Predictor:
    """No model: each control plus the mean change of the groups of its nearest controls of other groups, by PCA."""
    shifts, _, names = group_shifts(task)
    others = _other_groups(task)
    others = others[(others.obs[CONDITION] == CONTROL).to_numpy() & others.obs[GROUP].isin(names).to_numpy()]
    pca = PCA(N_COMPONENTS, random_state=seed).fit(log_counts(others.X))
    search = NearestNeighbors(n_neighbors=min(N_LIKE, others.n_obs)).fit(pca.transform(log_counts(others.X)))
    of_others = np.searchsorted(names, others.obs[GROUP].to_numpy().astype(str))

    def predict(controls: AnnData) -> np.ndarray:
        x = log_counts(controls.X)
        near = search.kneighbors(pca.transform(x), return_distance=False)
        return np.maximum(x + shifts[of_others[near]].mean(1), 0)

    return predict


def fit_shift(task: Task, preset: Preset, seed: int) -> Predictor:
    """Each control plus the mean difference between the conditions, over the cells of all other groups."""
    others = _other_groups(task)
    x, condition = log_counts(others.X), others.obs[CONDITION].to_numpy()
    shift = x[condition == TARGET].mean(0) - x[condition == CONTROL].mean(0)
    return lambda controls: np.maximum(log_counts(controls.X) + shift, 0)


def fit_scgen(task: Task, preset: Preset, seed: int) -> Predictor:
    """Arithmetic as in scGen on an scVI latent: the mean difference between the conditions is added to the controls' z.

    As in scGen the difference is over all other groups, each with equally many cells of both conditions.
    """
    model = train_scvi(task.train, replace(preset, max_epochs=_epochs(task, preset)))
    others = _other_groups(task)
    others = others[_equal_numbers(others, seed)].copy()
    z, condition = model.get_latent_representation(others), others.obs[CONDITION].to_numpy()
    shift = z[condition == TARGET].mean(0) - z[condition == CONTROL].mean(0)
    return lambda controls: log_counts(_decode_shifted(model, controls, _repeated(controls), shift))


def fit_scvi(task: Task, preset: Preset, seed: int) -> Predictor:
    """SCVI with the condition as its batch: the controls' counts drawn as if of the target's batch."""
    model = train_scvi(task.train, replace(preset, max_epochs=_epochs(task, preset)), batch_key=CONDITION)
    return lambda controls: log_counts(
        model.posterior_predictive_sample(controls, _repeated(controls), transform_batch=[TARGET]).todense()
    )


def _other_groups(task: Task) -> AnnData:
    return task.train[~task.train.obs[GROUP].isin(task.evaluation.obs[GROUP]).to_numpy()]


def _epochs(task: Task, preset: Preset) -> int:
    return preset.max_epochs or default_epochs(task.train.n_obs)


def _repeated(controls: AnnData) -> np.ndarray:
    """Rows of the controls, each several times, so that the noise of few draws does not count as an error."""
    return np.tile(np.arange(controls.n_obs), max(1, round(N_PREDICTED / controls.n_obs)))


def _equal_numbers(adata: AnnData, seed: int) -> np.ndarray:
    """Rows such that in each group both conditions have as many as the larger one; those of the smaller drawn again."""
    rng = np.random.default_rng(seed)
    picked = []
    for name in adata.obs[GROUP].unique():
        of_group = adata.obs[GROUP] == name
        groups = [np.flatnonzero(of_group & (adata.obs[CONDITION] == condition)) for condition in (CONTROL, TARGET)]
        size = max(map(len, groups))
        picked += [rng.choice(rows, size) if 0 < len(rows) < size else rows for rows in groups]
    return np.concatenate(picked)


@torch.inference_mode()
def _decode_shifted(model: scvi.model.SCVI, cells: AnnData, rows: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Counts drawn at z + shift, at the cells' own totals."""
    drawn = []
    for tensors in model._make_data_loader(model._validate_anndata(cells), indices=rows):
        inference = model.module.inference(**model.module._get_inference_input(tensors))
        inputs = model.module._get_generative_input(tensors, inference)
        inputs["z"] = inputs["z"] + torch.as_tensor(shift, dtype=inputs["z"].dtype)
        drawn.append(model.module.generative(**inputs)["px"].sample().numpy())
    return np.concatenate(drawn)


def evaluate_heldout(run: Run) -> dict[str, float]:
    """Compare the predicted cells with the real ones, as log(1 + counts per 10,000 of the modelled genes)."""
    condition = run.evaluation.obs[CONDITION]
    real, controls = (run.evaluation[(condition == name).to_numpy()].copy() for name in (TARGET, CONTROL))
    predicted = run.model(controls)
    if isinstance(run.model, RealHalf):
        real = real[~real.obs_names.isin(run.model.names)]
    return score(predicted, log_counts(real.X), log_counts(controls.X))


def score(predicted: np.ndarray, real: np.ndarray, controls: np.ndarray) -> dict[str, float]:
    """Agreement of predicted with real cells, all as log counts ``(cells, genes)``; controls tell which genes differ.

    Of gene means, over all genes and over the 100 most differential ones: squared correlations (``r2``), coefficients
    of determination, correlations of the changes from the controls (``pcc_delta``), and mean squared errors. Beside
    these the share of those 100 genes that differ most in the prediction, too, and the energy distance of the cells.
    """
    top = differential_genes(real, controls, N_TOP)
    found = differential_genes(predicted, controls, N_TOP)
    values = {
        "energy_distance": metrics.energy_distance(predicted, real),
        "deg_overlap": len(np.intersect1d(top, found)) / len(top),
    }
    for name, genes in {"all": np.arange(real.shape[1]), "top100": top}.items():
        means = metrics.mean_score(predicted, real, genes)
        values |= {f"r2_{name}": means.r2, f"determination_{name}": means.determination}
        values[f"pcc_delta_{name}"] = metrics.delta_correlation(predicted, real, controls, genes)
        values[f"mse_{name}"] = float(np.mean((predicted.mean(0) - real.mean(0))[genes] ** 2))
    return values


def differential_genes(real: np.ndarray, controls: np.ndarray, n: int) -> np.ndarray:
    """Positions of the genes with the largest |t| of Welch's t-test."""
    cells = AnnData(np.vstack([real, controls]))
    cells.obs["group"] = ["real"] * len(real) + ["control"] * len(controls)
    sc.tl.rank_genes_groups(cells, "group", groups=["real"], reference="control", method="t-test")
    table = sc.get.rank_genes_groups_df(cells, "real").dropna(subset="scores")
    order = table["scores"].abs().sort_values(ascending=False, kind="stable").index
    return cells.var_names.get_indexer(table.loc[order[:n], "names"])


COUNTERFACTUAL = Study(
    name="counterfactual",
    experiment="kang",
    make_task=make_heldout,
    evaluate=evaluate_heldout,
    presets=PRESETS,
    variants={f"heldout={name}": Variant(data={"held_out": name}) for name in HELD_OUT},
    headline=("r2_all", "r2_top100", "pcc_delta_all", "pcc_delta_top100", "energy_distance", "deg_overlap"),
    methods={
        "discovr": Method("DISCOVR", fit=fit_discovr, version=3),
        "discovr-types": Method("DISCOVR", fit=fit_discovr_types),
        "discovr-neighbors": Method("DISCOVR", fit=fit_discovr_neighbors),
        "no-change": Method(fit=fit_nothing),
        "shift": Method(fit=fit_shift, version=2),
        "nearest-shift": Method(fit=fit_nearest_shift),
        "neighbor-shift": Method(fit=fit_neighbor_shift),
        "scgen-style": Method(fit=fit_scgen, version=2),
        "scvi": Method(fit=fit_scvi, version=2),
        "half": Method(fit=fit_half),
    },
    n_seeds=3,
)

#: Kang's cells with 5,000 genes, the protocol of scPerturBench.
COUNTERFACTUAL_5000 = replace(
    COUNTERFACTUAL,
    name="counterfactual-5000",
    variants={f"heldout={name}": Variant(data={"held_out": name, "name": "kang-5000"}) for name in HELD_OUT},
)

#: Patients left out: their untreated cells are seen, their treated ones are not; patients are batches.
COUNTERFACTUAL_GLIOBLASTOMA = replace(
    COUNTERFACTUAL,
    name="counterfactual-glioblastoma",
    variants={f"heldout={name}": Variant(data={"held_out": name, "name": "glioblastoma"}) for name in PATIENTS},
    methods={name: method for name, method in COUNTERFACTUAL.methods.items() if name != "discovr-types"},
)
