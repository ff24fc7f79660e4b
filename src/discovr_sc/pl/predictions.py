"""Pictures of predicted cells."""

from pathlib import Path

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes

from discovr_sc.data import log_counts
from discovr_sc.metrics import mean_score
from discovr_sc.pl.figure import finish, label_points, new_axes


def counterfactual(
    predicted: AnnData,
    real: AnnData,
    *,
    unchanged: AnnData | None = None,
    layer: str | None = None,
    n_labels: int = 8,
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | None = None,
) -> Axes:
    """Gene means of predicted cells against those of real ones, with R2.

    The plot takes the mean of counts per 10,000 first and the logarithm after. Predictions are smooth and real counts
    are noisy, and the mean of a logarithm depends on the noise.

    Parameters
    ----------
    predicted
        From ``model.predict_counterfactual``.
    real, layer
        Real cells of the same genes, and the layer with their counts; ``X`` by default.
    unchanged
        The cells before the prediction, with counts in the same layer. Their means show what a prediction of no change
        would score; the genes that change most between them and the real cells are marked and named.
    n_labels
        Genes to name: those that change most, or, without ``unchanged``, those furthest from the diagonal.
    ax, show, save
        See :func:`gene_variance`.

    Examples
    --------
    >>> pl.counterfactual(adata[:50], adata[50:], unchanged=adata[:50], show=False).get_xlabel()
    'real cells'
    """
    for name, cells in (("real", real), ("unchanged", unchanged)):
        if cells is not None and list(predicted.var_names) != list(cells.var_names):
            raise ValueError(f"predicted and {name} have different genes; take {name}[:, predicted.var_names].")
    x, y = _log_means(real, layer), _log_means(predicted, None)
    score = mean_score(y[None], x[None])
    title = f"log(1 + mean counts per 10,000)\nR2 {score.r2:.3f}, determination {score.determination:.3f}"
    ax = new_axes(ax, (4.8, 4.6))
    ax.scatter(x, y, s=8, color="C0", linewidths=0, label="predicted")
    ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
    far = np.argsort(-np.abs(y - x))[:n_labels]
    if unchanged is not None:
        before = _log_means(unchanged, layer)
        baseline = mean_score(before[None], x[None])
        title += f"\nno change: R2 {baseline.r2:.3f}, determination {baseline.determination:.3f}"
        far = np.argsort(-np.abs(before - x))[:n_labels]
        ax.scatter(x, before, s=8, color="0.75", linewidths=0, zorder=0, label="no change")
        ax.scatter(x[far], y[far], s=16, color="C3", linewidths=0, label="most changed, predicted")
        ax.vlines(x[far], before[far], y[far], color="C3", linewidth=0.5, zorder=0)
        ax.legend(fontsize=7, loc="upper left")
    ax.set(xlabel="real cells", ylabel="predicted cells", title=title)
    label_points(ax, predicted.var_names[far], x[far], y[far])
    return finish(ax, show, save)


def _log_means(cells: AnnData, layer: str | None) -> np.ndarray:
    """log(1 + mean counts per 10,000) of each gene."""
    counts = cells.X if layer is None else cells.layers[layer]
    return np.log1p(np.expm1(log_counts(counts)).mean(axis=0))
