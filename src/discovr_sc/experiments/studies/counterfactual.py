"""Leave one cell type out: predict its stimulated cells from its controls and from all other types."""

from collections.abc import Callable

import numpy as np
import scanpy as sc
import scvi
import torch
from anndata import AnnData

from discovr_sc import metrics
from discovr_sc.data import log_counts
from discovr_sc.experiments.engine.runner import Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.fitting import train_discovr, train_scvi
from discovr_sc.experiments.studies.kang import CONDITION, PRESETS, TYPES, load_kang
from discovr_sc.model import DISCOVR

CONTROL, TARGET = "CTRL", "STIM"
TYPE = TYPES["8"]
HELD_OUT = (
    *("B cells", "CD14+ Monocytes", "CD4 T cells", "CD8 T cells"),
    *("Dendritic cells", "FCGR3A+ Monocytes", "Megakaryocytes", "NK cells"),
)
#: Predicted cells, about: where a type has fewer controls, each is predicted several times, with other draws.
N_PREDICTED = 2000
#: Genes that differ most between the type's real conditions, by Welch's t-test on log counts.
N_TOP = 100

#: From controls to predicted cells, as log(1 + counts per 10,000).
Predictor = Callable[[AnnData], np.ndarray]


def make_heldout(preset: Preset, seed: int, held_out: str) -> Task:
    """Train without the stimulated cells of a type; evaluate on the type's cells of both conditions."""
    return leave_out(load_kang(), held_out, preset.n_train, seed)


def leave_out(adata: AnnData, held_out: str, n_train: int | None, seed: int) -> Task:
    """Cells but the stimulated ones of a type (a random sample of ``n_train``), and all cells of that type."""
    of_type = (adata.obs[TYPE] == held_out).to_numpy()
    if not of_type.any():
        raise ValueError(f"held_out={held_out!r} is not in adata.obs[{TYPE!r}].")
    rows = np.flatnonzero(~(of_type & (adata.obs[CONDITION] == TARGET).to_numpy()))
    if n_train is not None and n_train < len(rows):
        rows = np.sort(np.random.default_rng(seed).choice(rows, n_train, replace=False))
    return Task(adata[rows].copy(), adata[of_type].copy(), setup={"condition_key": CONDITION})


def fit_discovr(task: Task, preset: Preset, seed: int) -> Predictor:
    """The plain constructor; the prediction is told the types, as both shifts are."""
    return DiscovrPredictor(train_discovr(task.train, preset, CONDITION), seed)


class DiscovrPredictor:
    """DISCOVR's prediction, told the types; and others: not told, with new noise, by other choices of w."""

    def __init__(self, model: DISCOVR, seed: int):
        self.model, self.seed = model, seed
        self.others = {"unlabelled": {}, "new_noise": {"cell_type_key": TYPE, "keep_noise": False}}
        self.others |= {way: {"by": way} for way in model.counterfactual_ways[1:]}

    def __call__(self, controls: AnnData, name: str | None = None) -> np.ndarray:
        """Predicted cells, as log counts."""
        settings = {"cell_type_key": TYPE} if name is None else self.others[name]
        predicted = self.model.predict_counterfactual(
            controls, target=TARGET, kind="counts", indices=list(_repeated(controls)), seed=self.seed, **settings
        )
        return log_counts(predicted.X)


def fit_shift(task: Task, preset: Preset, seed: int) -> Predictor:
    """Each control plus the mean difference between the conditions, over the cells of all other types."""
    others = _other_types(task)
    x, condition = log_counts(others.X), others.obs[CONDITION].to_numpy()
    shift = x[condition == TARGET].mean(0) - x[condition == CONTROL].mean(0)
    return lambda controls: log_counts(controls.X) + shift


def fit_scgen(task: Task, preset: Preset, seed: int) -> Predictor:
    """Arithmetic as in scGen on an scVI latent: the mean difference between the conditions is added to the controls' z.

    As in scGen the difference is over all other types, each with equally many cells of both conditions.
    """
    model = train_scvi(task.train, preset)
    others = _other_types(task)
    others = others[_equal_numbers(others, seed)].copy()
    z, condition = model.get_latent_representation(others), others.obs[CONDITION].to_numpy()
    shift = z[condition == TARGET].mean(0) - z[condition == CONTROL].mean(0)
    return lambda controls: log_counts(_decode_shifted(model, controls, _repeated(controls), shift))


def fit_scvi(task: Task, preset: Preset, seed: int) -> Predictor:
    """SCVI with the condition as its batch: the controls' counts drawn as if of the target's batch."""
    model = train_scvi(task.train, preset, batch_key=CONDITION)
    return lambda controls: log_counts(
        model.posterior_predictive_sample(controls, _repeated(controls), transform_batch=[TARGET]).todense()
    )


def _other_types(task: Task) -> AnnData:
    return task.train[~task.train.obs[TYPE].isin(task.evaluation.obs[TYPE]).to_numpy()]


def _repeated(controls: AnnData) -> np.ndarray:
    """Rows of the controls, each several times, so that the noise of few draws does not count as an error."""
    return np.tile(np.arange(controls.n_obs), max(1, round(N_PREDICTED / controls.n_obs)))


def _equal_numbers(adata: AnnData, seed: int) -> np.ndarray:
    """Rows such that in each type both conditions have as many as the larger one; those of the smaller drawn again."""
    rng = np.random.default_rng(seed)
    picked = []
    for cell_type in adata.obs[TYPE].unique():
        of_type = adata.obs[TYPE] == cell_type
        groups = [np.flatnonzero(of_type & (adata.obs[CONDITION] == condition)) for condition in (CONTROL, TARGET)]
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
    """Compare the predicted cells with the real ones, as log(1 + counts per 10,000 of the modelled genes).

    For DISCOVR also other predictions of the same model: ``r2_all_unlabelled`` and so on.
    """
    condition = run.evaluation.obs[CONDITION]
    real, controls = (run.evaluation[(condition == name).to_numpy()].copy() for name in (TARGET, CONTROL))
    truth = log_counts(real.X), log_counts(controls.X)
    values = score(run.model(controls), *truth)
    for name in getattr(run.model, "others", ()):
        other = score(run.model(controls, name), *truth)
        values |= {f"{metric}_{name}": other[metric] for metric in ("r2_all", "r2_top100")}
    return values


def score(predicted: np.ndarray, real: np.ndarray, controls: np.ndarray) -> dict[str, float]:
    """Agreement of predicted with real cells, all as log counts ``(cells, genes)``; controls tell which genes differ.

    Squared correlations (``r2``) and coefficients of determination of gene means, over all genes and over the 100 most
    differential ones, and the energy distance.
    """
    values = {"energy_distance": metrics.energy_distance(predicted, real)}
    for name, genes in {"all": None, "top100": differential_genes(real, controls, N_TOP)}.items():
        means = metrics.mean_score(predicted, real, genes)
        values |= {f"r2_{name}": means.r2, f"determination_{name}": means.determination}
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
    headline=("r2_all", "r2_top100", "determination_all", "determination_top100", "energy_distance"),
    methods={
        "discovr": Method("DISCOVR", fit=fit_discovr, version=2),
        "shift": Method(fit=fit_shift),
        "scgen-style": Method(fit=fit_scgen),
        "scvi": Method(fit=fit_scvi),
    },
    n_seeds=3,
)
