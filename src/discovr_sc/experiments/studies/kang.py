"""Single cells: interferon-beta stimulated blood cells, what their condition leaves in z and what it puts into w."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from scipy import sparse
from scipy.stats import pearsonr
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor

from discovr_sc import data, metrics
from discovr_sc.experiments.engine.results import Results
from discovr_sc.experiments.engine.runner import HEALTH_COLUMNS, Run
from discovr_sc.experiments.engine.study import Method, Preset, Study, Task, Variant
from discovr_sc.experiments.studies.fitting import train_scvi
from discovr_sc.experiments.studies.kang_figures import draw_kang, draw_trade_off, umap_of
from discovr_sc.experiments.studies.synthetic import BASELINES, PAPER, until_rest
from discovr_sc.model.base import DisentangledModel

CONDITION = "stim"
TYPES = {"8": "cell_type", "13": "seurat_annotations"}

#: Genes that the paper names as those whose variance z alone misses.
PAPER_GENES = ("ISG15", "FTL", "CCL8", "CXCL10", "CXCL11", "APOBEC3A", "IL1RN", "IFITM3", "RSAD2")

#: Share of the cells that neither a model nor a choice of settings ever sees, the same cells for every seed.
TEST_SHARE = 0.2
SPLIT_SEED = 2018

PRESETS = {
    "full": Preset(n_train=None, n_eval=None, max_epochs=60, patience=50, batch_size=256),
    "laptop": Preset(n_train=4_000, n_eval=1_500, max_epochs=30, patience=50, batch_size=256),
}


# Data -----------------------------------------------------------------------------------------------------------


@cache
def load_kang() -> AnnData:
    """All cells."""
    return data.kang()


def types_of(adata: AnnData) -> dict[str, str]:
    """Columns of cell types by their number, coarse ones first; a fetched file has no fine ones."""
    return {n_types: column for n_types, column in TYPES.items() if column in adata.obs}


def response_scores(train: AnnData, evaluation: AnnData, n_genes: int = 50) -> dict[str, np.ndarray]:
    """How strongly each cell responds: scanpy's score of the genes that the stimulation raises most in training cells.

    Types respond more or less strongly, so that the type alone tells much of the score. What is left is how a cell
    differs from the others of its type: the mean of the type's training cells in that condition is taken away.
    """
    cells = sc.concat({"train": train, "evaluation": evaluation}, label="part", index_unique="-")
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    is_train = (cells.obs["part"] == "train").to_numpy()
    fitted_on = cells[is_train].copy()
    sc.tl.rank_genes_groups(fitted_on, CONDITION, groups=["STIM"], reference="CTRL", method="t-test")
    genes = list(fitted_on.uns["rank_genes_groups"]["names"]["STIM"][:n_genes])
    sc.tl.score_genes(cells, genes, score_name="response", random_state=0)
    finest = list(types_of(train).values())[-1]
    groups = cells.obs[CONDITION].astype(str) + cells.obs[finest].astype(str)
    means = cells.obs["response"][is_train].groupby(groups[is_train]).mean()
    centred = cells.obs["response"].to_numpy() - groups.map(means).to_numpy(dtype=float)
    return {"train": centred[is_train], "evaluation": centred[~is_train]}


def make_kang(preset: Preset, seed: int, held_out: str = "test") -> Task:
    """Cells to train on, and the test cells.

    With ``held_out="validation"``, for a search, a part of the training cells stands in for those; a search must not
    see them. The seed chooses training cells where not all are taken, and splits for a search.
    """
    adata = load_kang()
    finest = list(types_of(adata).values())[-1]
    groups = adata.obs[CONDITION].astype(str) + adata.obs[finest].astype(str)
    train, evaluation = split(np.arange(adata.n_obs), groups, SPLIT_SEED)
    if held_out == "validation":
        train, evaluation = split(train, groups, seed)
    rng = np.random.default_rng(seed)
    train, evaluation = (
        np.sort(rng.choice(rows, min(n or len(rows), len(rows)), replace=False))
        for rows, n in ((train, preset.n_train), (evaluation, preset.n_eval))
    )
    return Task(adata[train].copy(), adata[evaluation].copy(), setup={"condition_key": CONDITION})


def split(rows: np.ndarray, groups, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two parts with the groups in equal shares."""
    return train_test_split(rows, test_size=TEST_SHARE, stratify=groups.iloc[rows], random_state=seed)


# References ------------------------------------------------------------------------------------------------------


def fit_scvi(task: Task, preset: Preset, seed: int) -> scvi.model.SCVI:
    """ScVI with the condition as batch."""
    return train_scvi(task.train, preset, batch_key=CONDITION)


class LogPCA:
    """Ten principal components of the logarithms of counts per ten thousand."""

    def __init__(self, adata: AnnData, seed: int):
        self.pca = PCA(10, random_state=seed).fit(self._logs(adata))

    def get_latent_representation(self, adata: AnnData) -> np.ndarray:
        """Components, ``(n_cells, 10)``."""
        return self.pca.transform(self._logs(adata))

    @staticmethod
    def _logs(adata: AnnData) -> np.ndarray:
        normalised = sc.pp.normalize_total(adata, target_sum=1e4, copy=True)
        return np.log1p(normalised.X.toarray())


def fit_pca(task: Task, preset: Preset, seed: int) -> LogPCA:
    """Principal components of the training cells."""
    return LogPCA(task.train, seed)


class TypeMeans:
    """What the labels alone allow: types in place of z, mean expression of a type (and condition) in place of rho.

    No model: it tells how far a score can go where z is the annotated type and nothing else.
    """

    def __init__(self, adata: AnnData):
        self.column = list(types_of(adata).values())[-1]
        self.types = np.unique(adata.obs[self.column].astype(str))
        fractions = pd.DataFrame(adata.X.toarray() / np.asarray(adata.X.sum(1)))
        cell_type, condition = (adata.obs[column].astype(str).to_numpy() for column in (self.column, CONDITION))
        self.means = {
            "full": fractions.groupby([cell_type, condition]).mean(),
            "marginal": fractions.groupby(cell_type).mean(),
        }

    def get_latent_representation(self, adata: AnnData) -> np.ndarray:
        """One column per type, 1 where the cell is of it, ``(n_cells, n_types)``."""
        return (adata.obs[self.column].astype(str).to_numpy()[:, None] == self.types).astype(float)

    def get_reconstruction(self, adata: AnnData, kind: Literal["full", "marginal"]) -> np.ndarray:
        """Mean fractions of the cell's type, in its condition or in all, ``(n_cells, n_genes)``."""
        columns = [self.column, CONDITION] if kind == "full" else [self.column]
        keys = [adata.obs[column].astype(str).to_numpy() for column in columns]
        groups = pd.MultiIndex.from_arrays(keys) if kind == "full" else keys[0]
        return self.means[kind].loc[groups].to_numpy()


def fit_types(task: Task, preset: Preset, seed: int) -> TypeMeans:
    """Means of the training cells."""
    return TypeMeans(task.train)


# Scores ----------------------------------------------------------------------------------------------------------


def evaluate_kang(run: Run) -> dict[str, float]:
    """Everything is scored on the evaluation cells; probes are fitted on the training cells."""
    z = {name: run.model.get_latent_representation(cells) for name, cells in parts_of(run).items()}
    values = condition_metrics(run, z) | type_metrics(run, z)
    if isinstance(run.model, TypeMeans):
        values["genes_in_top50"] = genes_in_top50(run, log_variances(run))
        values["response_r2_within_types"] = response_r2_within_types(run, z)
    if isinstance(run.model, DisentangledModel):
        values |= w_metrics(run) | gene_metrics(run)
        values["reconstruction_error"] = run.model.get_reconstruction_error(run.evaluation)
    return values


def parts_of(run: Run) -> dict[str, AnnData]:
    """Training and evaluation cells."""
    return {"train": run.train, "evaluation": run.evaluation}


def labels_of(run: Run, column: str) -> dict[str, np.ndarray]:
    """Labels of training and evaluation cells."""
    return {name: cells.obs[column].astype(str).to_numpy() for name, cells in parts_of(run).items()}


def probe_args(x: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arguments of a probe that is fitted on the training cells and scored on the evaluation cells."""
    return {
        "x": np.concatenate([x["train"], x["evaluation"]]),
        "labels": np.concatenate([labels["train"], labels["evaluation"]]),
        "train": np.arange(len(x["train"])),
    }


def condition_metrics(run: Run, z: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What z still tells of the condition."""
    labels = labels_of(run, CONDITION)
    probes = {
        kind: metrics.probe(**probe_args(z, labels), kind=kind, seed=run.seed).accuracy
        for kind in ("linear", "knn", "boosting", "mlp")
    }
    nmi = metrics.kmeans_nmi(z["evaluation"], labels["evaluation"], seed=run.seed)
    return {
        "probe_z_condition": max(probes.values()),
        "nmi_z_condition": nmi.best,
        "nmi_z_condition_whole": nmi.whole,
        "silhouette_z_condition": metrics.silhouette(z["evaluation"], labels["evaluation"], seed=run.seed),
    } | {f"probe_z_condition_{kind}": accuracy for kind, accuracy in probes.items()}


def type_metrics(run: Run, z: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What z tells of the cell type, for each annotation."""
    values: dict[str, float] = {}
    for n_types, column in types_of(run.train).items():
        labels = labels_of(run, column)
        values |= {
            f"probe_z_type_{n_types}": metrics.probe(**probe_args(z, labels), kind="knn", seed=run.seed).accuracy,
            f"nmi_z_type_{n_types}": metrics.kmeans_nmi(z["evaluation"], labels["evaluation"], seed=run.seed).best,
            f"silhouette_z_type_{n_types}": metrics.silhouette(z["evaluation"], labels["evaluation"], seed=run.seed),
        }
    return values


def w_metrics(run: Run) -> dict[str, float]:
    """What w tells of the condition, of a hidden condition, and of the strength of the response."""
    labels = labels_of(run, CONDITION)
    w = {name: run.model.get_latent_representation(cells, kind="w") for name, cells in parts_of(run).items()}
    hidden = run.evaluation.copy()
    hidden.obs[CONDITION] = np.nan
    w_hidden = {"train": w["train"], "evaluation": run.model.get_latent_representation(hidden, kind="w")}
    probe = metrics.best_probe(**probe_args(w_hidden, labels), kinds=("linear", "knn"), seed=run.seed)
    return {
        "probe_w_condition_hidden": probe.accuracy,
        "nmi_w_condition": metrics.kmeans_nmi(w["evaluation"], labels["evaluation"], seed=run.seed).best,
        "response_r2_within_types": response_r2_within_types(run, w),
    } | independence_metrics(run, w)


def independence_metrics(run: Run, w: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How far w is from independent of z within conditions: nats, and types read from it (and from the response)."""
    z, conditions = run.model.get_latent_representation(run.evaluation), labels_of(run, CONDITION)
    types = labels_of(run, TYPES["8"])
    scores = {name: score.reshape(-1, 1) for name, score in response_scores(run.train, run.evaluation).items()}
    values = {
        "knn_wz_given_y": metrics.knn_conditional_mutual_information(w["evaluation"], z, conditions["evaluation"])
    }
    for name, x in {"w": w, "response": scores}.items():
        of_conditions = []
        for condition in np.unique(conditions["train"]):
            chosen = {part: labels == condition for part, labels in conditions.items()}
            arguments = probe_args(*({part: of[part][chosen[part]] for part in of} for of in (x, types)))
            of_conditions.append(metrics.best_probe(**arguments, kinds=("linear", "knn"), seed=run.seed).accuracy)
        values[f"probe_{name}_type"] = float(np.mean(of_conditions))
    return values


def response_r2_within_types(run: Run, w: Mapping[str, np.ndarray]) -> float:
    """R2, on the stimulated evaluation cells, of the response within types regressed on 30 neighbours in w.

    What knows the type alone, in place of w, is at 0.
    """
    chosen = {name: labels == "STIM" for name, labels in labels_of(run, CONDITION).items()}
    score = {name: of_part[chosen[name]] for name, of_part in response_scores(run.train, run.evaluation).items()}
    regression = KNeighborsRegressor(30).fit(w["train"][chosen["train"]], score["train"])
    return float(regression.score(w["evaluation"][chosen["evaluation"]], score["evaluation"]))


def gene_metrics(run: Run) -> dict[str, float]:
    """How the reconstructions recover each gene's mean and variance, and which genes' variance z alone misses."""
    genes = gene_moments(run)
    return {
        "genes_in_top50": genes_in_top50(run, genes),
        "gene_mean_r": log_correlation(genes["mean_data"], genes["mean_full"]),
        "gene_var_r": log_correlation(genes["var_data"], genes["var_full"]),
    }


def genes_in_top50(run: Run, genes: Mapping[str, np.ndarray]) -> float:
    """How many of the paper's genes are among the 50 whose variance of logs w restores most."""
    restored = genes["log_var_full"] - genes["log_var_marginal"]
    top = set(np.asarray(run.train.var_names)[np.argsort(-restored)[:50]])
    return float(len(top & set(PAPER_GENES)))


def log_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of logarithms, over the genes with a count in both."""
    counted = (a > 0) & (b > 0)
    return float(pearsonr(np.log(a[counted]), np.log(b[counted])).statistic)


def gene_moments(run: Run) -> dict[str, np.ndarray]:
    """Means and variances of every gene over all cells, each ``(n_genes,)``.

    ``mean_*`` and ``var_*`` are of counts: the data's, and counts drawn from the full and, where it is a distribution,
    the marginal reconstruction. ``log_var_*`` are variances of log1p(1e4 rho) of the two reconstructions.
    """
    cells = list(parts_of(run).values())
    kinds = ("full", "marginal") if run.model.module.has_z_likelihood else ("full",)
    counts = {"data": [part.X for part in cells]} | {
        kind: [run.model.posterior_predictive_sample(part, kind=kind).to_scipy_sparse() for part in cells]
        for kind in kinds
    }
    moments: dict[str, np.ndarray] = {}
    for kind, parts in counts.items():
        stacked = sparse.vstack(parts).astype(np.float64)
        mean = np.asarray(stacked.mean(0)).ravel()
        moments |= {f"mean_{kind}": mean, f"var_{kind}": np.asarray(stacked.power(2).mean(0)).ravel() - mean**2}
    return moments | log_variances(run)


def log_variances(run: Run) -> dict[str, np.ndarray]:
    """Variances over all cells of log1p(1e4 rho) of both reconstructions, each ``(n_genes,)``."""
    variances = {}
    for kind in ("full", "marginal"):
        logs = [np.log1p(1e4 * run.model.get_reconstruction(part, kind=kind)) for part in parts_of(run).values()]
        variances[f"log_var_{kind}"] = np.concatenate(logs).var(0)
    return variances


def sketch_kang(run: Run) -> dict[str, np.ndarray]:
    """UMAPs of the latents of the evaluation cells with their labels and, for DisCoVR, the moments of genes."""
    if isinstance(run.model, TypeMeans):
        return {}  # labels have no picture
    cells = run.evaluation
    columns = {"type": TYPES["8"], "condition": CONDITION} | ({"donor": "donor"} if "donor" in cells.obs else {})
    arrays = {name: cells.obs[column].astype(str).to_numpy().astype(str) for name, column in columns.items()}
    arrays["umap_z"] = umap_of(run.model.get_latent_representation(cells), run.seed)
    if not isinstance(run.model, DisentangledModel):
        return arrays
    arrays["umap_w"] = umap_of(np.asarray(run.model.get_latent_representation(cells, kind="w")), run.seed)
    if run.model.module.has_z_likelihood:
        arrays |= gene_moments(run)
        arrays |= {"genes": np.asarray(run.train.var_names, dtype=str), "paper_genes": np.array(PAPER_GENES)}
    return arrays


# Studies ---------------------------------------------------------------------------------------------------------

#: The plain constructor; its learning rate comes to rest at the end, so the training is not cut short.
OURS = Method("DISCOVR", train={"early_stopping": False})

HEADLINE = (
    *("probe_z_condition", "probe_z_type_8", "probe_z_type_13", "nmi_z_condition", "nmi_z_condition_whole"),
    *("nmi_z_type_8", "nmi_z_type_13", "probe_w_condition_hidden", "nmi_w_condition", "response_r2_within_types"),
    *("knn_wz_given_y", "probe_w_type", "probe_response_type", "genes_in_top50", "gene_mean_r", "gene_var_r"),
)

KANG = Study(
    name="kang",
    experiment="kang",
    make_task=make_kang,
    evaluate=evaluate_kang,
    presets=PRESETS,
    headline=HEADLINE + HEALTH_COLUMNS,
    sketch=sketch_kang,
    draw=draw_kang,
    methods={
        "discovr": OURS,
        **until_rest({"discovr-paper": PAPER, **BASELINES}),
        "scvi": Method(fit=fit_scvi),
        "pca": Method(fit=fit_pca),
        "types": Method(fit=fit_types),
    },
    n_seeds=5,
)

#: What each addition to the paper's method buys: the defaults with one of them taken away.
ADDITIONS = {
    "without=nothing": Variant(),
    "without=mixture": Variant(settings={"n_components_z": 1}),
    "without=mmd": Variant(weights={"mmd": 0.0}),
    "without=adversary-on-z": Variant(settings={"adversary": "reconstruction"}),
    "without=adversary-on-rho": Variant(settings={"adversary": "latent"}),
    "without=decay": Variant(plan={"final_decay": 0.0}),
    "without=deep-adversary": Variant(settings={"n_layers_adversary": 1}),
    "without=kl": Variant(weights={"kl_z": 1e-4, "kl_w": 1e-4}),
    "without=learned-prior": Variant(settings={"prior": "mapped"}),
}

KANG_ABLATIONS = replace(
    KANG,
    name="kang-ablations",
    variants=ADDITIONS | {f"adv={weight}": Variant(weights={"adv": weight}) for weight in (0, 5, 50, 100, 300)},
    sketch=None,
    draw=lambda results, preset: {"trade_off": draw_trade_off(results, Results.open(KANG, results.folder), preset)},
    methods={"discovr": OURS},
    n_seeds=1,
)
