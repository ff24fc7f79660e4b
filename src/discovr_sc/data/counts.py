"""The one place where genes are chosen from a table of counts."""

import numpy as np
from anndata import AnnData
from scipy import sparse


def prepare_counts(adata: AnnData, n_top_genes: int | None = 2000, *, batch_key: str | None = None) -> AnnData:
    """Keep the highly variable genes of a count matrix, as raw counts.

    Genes are ranked by the variance of the counts after a trend in the mean is taken out (scanpy's `seurat_v3`).

    Parameters
    ----------
    adata
        Raw counts in `X`, shape (cells, genes). Not changed.
    n_top_genes
        How many genes to keep; None keeps all.
    batch_key
        Column of `obs`: rank genes within each batch and combine the ranks.

    Returns
    -------
    A copy with the genes kept, in the order they came, and `X` as CSR float32 counts.

    Examples
    --------
    >>> prepare_counts(adata, n_top_genes=20).shape
    (200, 20)
    """
    if adata.X is None:
        raise ValueError("adata has no X; put raw counts there.")
    if batch_key is not None and batch_key not in adata.obs:
        raise KeyError(f"batch_key {batch_key!r} is not in adata.obs, which has {list(adata.obs)}.")
    if n_top_genes is not None and not 1 <= n_top_genes <= adata.n_vars:
        found = f"n_top_genes is {n_top_genes} but adata has {adata.n_vars} genes"
        raise ValueError(f"{found}; pass a number between 1 and that, or None to keep all.")
    values = np.asarray(adata.X.data if sparse.issparse(adata.X) else adata.X)
    # Written so that NaN fails too.
    bad = ~((values >= 0) & (values == np.floor(values)) & (values < np.inf))
    if bad.any():
        raise ValueError(
            f"adata.X must hold raw counts, but has values such as {values[bad].flat[0]}; "
            "pass the counts from before normalisation (often in adata.layers['counts'] or adata.raw)."
        )

    if n_top_genes is None:
        kept = adata.copy()
    else:
        # Imported here because it takes seconds and only this line needs it.
        import scanpy as sc

        ranked = sc.pp.highly_variable_genes(
            adata, n_top_genes=n_top_genes, flavor="seurat_v3", batch_key=batch_key, inplace=False
        )
        kept = adata[:, ranked["highly_variable"].to_numpy()].copy()
    kept.X = sparse.csr_matrix(kept.X, dtype=np.float32)

    empty = np.asarray(kept.X.sum(axis=1)).ravel() == 0
    if empty.any():
        raise ValueError(
            f"{int(empty.sum())} cells have no count in the {kept.n_vars} genes kept, the first "
            f"{kept.obs_names[empty][0]!r}; remove them first (scanpy.pp.filter_cells) or raise n_top_genes."
        )
    return kept


def log_counts(counts: np.ndarray | sparse.spmatrix) -> np.ndarray:
    """log(1 + counts per 10,000) of each cell, dense; cells without counts stay at 0.

    Counts, (cells, genes), may be anything proportional to them within a cell, such as normalised expression.

    Examples
    --------
    >>> np.expm1(log_counts(np.array([[1.0, 3.0], [0.0, 0.0]]))).round(3)
    array([[2500., 7500.], [   0.,    0.]])
    """
    x = np.asarray(counts.toarray() if hasattr(counts, "toarray") else counts, dtype=np.float64)
    totals = x.sum(axis=1, keepdims=True)
    return np.log1p(1e4 * x / np.where(totals > 0, totals, 1.0))
