"""References for the separation of conditions: what others make of the same cells, each with a latent of its own."""

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from sklearn.decomposition import PCA

from discovr_sc.data import log_counts
from discovr_sc.experiments.engine.study import Preset, Task
from discovr_sc.settings import default_epochs

#: Size of every reference's latent, which is that of z.
N_LATENT = 10


def fit_scvi(task: Task, preset: Preset, seed: int) -> scvi.model.SCVI:
    """ScVI with the condition as batch, and a real batch as covariate; trained as long as ours."""
    return _trained(scvi.model.SCVI, task, preset)


def fit_scanvi(task: Task, preset: Preset, seed: int) -> scvi.model.SCANVI:
    """ScANVI from that scVI, told the types, for 20 more epochs, its own default."""
    model = scvi.model.SCANVI.from_scvi_model(
        fit_scvi(task, preset, seed), unlabeled_category="unknown", labels_key="cell_type"
    )
    model.train(20, batch_size=preset.batch_size, enable_progress_bar=False)
    return model


def fit_sysvi(task: Task, preset: Preset, seed: int) -> "SysVILatent":
    """SysVI with the condition as the system."""
    return SysVILatent(task, preset)


def fit_pca(task: Task, preset: Preset, seed: int) -> "Embedding":
    """Principal components of log counts per ten thousand of the training cells."""
    pca = PCA(2 * N_LATENT, random_state=seed).fit(log_counts(task.train.X))
    return Embedding({cells: pca.transform(log_counts(part.X)) for cells, part in _parts(task)}, task)


def fit_harmony(task: Task, preset: Preset, seed: int) -> "Embedding":
    """Harmony on those components. It corrects all cells at once, so it sees the evaluation cells, too."""
    try:
        import harmonypy
    except ImportError as error:
        raise ImportError("Harmony needs harmonypy: pip install 'discovr_sc[references]'.") from error
    parts = dict(_parts(task))
    pca = PCA(2 * N_LATENT, random_state=seed).fit(log_counts(task.train.X))
    components = np.concatenate([pca.transform(log_counts(part.X)) for part in parts.values()])
    obs = pd.concat([part.obs for part in parts.values()])
    keys = [key for key in (task.setup["condition_key"], task.setup.get("batch_key")) if key is not None]
    corrected = np.asarray(harmonypy.run_harmony(components, obs, keys, random_state=seed).Z_corr)
    corrected = corrected if len(corrected) == len(obs) else corrected.T
    return Embedding({"train": corrected[: task.train.n_obs], "evaluation": corrected[task.train.n_obs :]}, task)


class Embedding:
    """An embedding of a task's cells, found by their names."""

    def __init__(self, parts: dict[str, np.ndarray], task: Task):
        self.rows = pd.concat([pd.DataFrame(parts[name], index=part.obs_names) for name, part in _parts(task)])

    def get_latent_representation(self, adata: AnnData) -> np.ndarray:
        """Of some of the cells, ``(n_cells, n_latent)``."""
        return self.rows.loc[adata.obs_names].to_numpy()


class SysVILatent:
    """SysVI, which takes log counts per ten thousand."""

    def __init__(self, task: Task, preset: Preset):
        cells = self._prepared(task.train)
        batch = task.setup.get("batch_key")
        covariates = {} if batch is None else {"categorical_covariate_keys": [batch]}
        scvi.external.SysVI.setup_anndata(cells, batch_key=task.setup["condition_key"], **covariates)
        self.model = scvi.external.SysVI(cells, n_latent=N_LATENT)
        self.model.train(
            max_epochs=preset.max_epochs or default_epochs(cells.n_obs),
            batch_size=preset.batch_size,
            enable_progress_bar=False,
            check_val_every_n_epoch=None,
        )

    def get_latent_representation(self, adata: AnnData) -> np.ndarray:
        """Of some cells, ``(n_cells, n_latent)``."""
        return self.model.get_latent_representation(self._prepared(adata))

    @staticmethod
    def _prepared(adata: AnnData) -> AnnData:
        cells = sc.pp.normalize_total(adata, target_sum=1e4, copy=True)
        sc.pp.log1p(cells)
        return cells


def _trained(model_cls, task: Task, preset: Preset):
    setup = {"batch_key": task.setup["condition_key"]}
    if task.setup.get("batch_key") is not None:
        setup["categorical_covariate_keys"] = [task.setup["batch_key"]]
    model_cls.setup_anndata(task.train, **setup)
    model = model_cls(task.train, n_latent=N_LATENT)
    epochs = preset.max_epochs or default_epochs(task.train.n_obs)
    model.train(epochs, batch_size=preset.batch_size, enable_progress_bar=False)
    return model


def _parts(task: Task) -> list[tuple[str, AnnData]]:
    return [("train", task.train), ("evaluation", task.evaluation)]
