"""The numbers the paper prints in its results tables."""

from importlib import resources

import pandas as pd

#: The paper's blocks of methods: those whose prior sets the conditions apart, and those that leave w free.
BLOCKS: dict[str, tuple[str, ...]] = {
    "Fully Separable": ("csvae-noadv", "csvae", "hcsvae-noadv", "hcsvae", "discovr-separable"),
    "Flexible": ("diva", "ccvae", "discovr-paper", "discovr"),
}


def load_published(study: str | None = None) -> pd.DataFrame:
    """Load the results tables of the paper, one row per printed value.

    The metrics' units are the paper's: `delta_bayes_w` in percentage points, `peak_memory_mb` in MiB, mutual
    information in nats. A suffix `_paper` marks values that this package's own estimators do not reproduce: the
    paper's neighbour counts are biased, and its information gap is not divided by the labels' entropy. Of the two
    estimates of I(z; w) on the Swiss roll, `mine_wz_main` is the main text's and `mine_wz` the appendix's.

    Parameters
    ----------
    study
        Return the rows of this study only; all of them if None.

    Returns
    -------
    DataFrame with columns `study`, `variant` (empty where a study has none), `method`, `metric`, `mean` and `sd` (NaN
    where the paper gives none). The first four identify a row.

    Examples
    --------
    >>> kang = load_published("kang").set_index(["method", "metric"])
    >>> kang.loc[("discovr-paper", "nmi_z_type_8"), ["mean", "sd"]].tolist()
    [0.716, 0.031]
    """
    file = resources.files("discovr_sc").joinpath("experiments", "engine", "published.csv")
    texts = dict.fromkeys(("study", "variant", "method", "metric"), str)
    with file.open(encoding="utf-8") as lines:
        table = pd.read_csv(lines, dtype={**texts, "mean": float, "sd": float})
    table["variant"] = table["variant"].fillna("")
    if study is None:
        return table
    known = table["study"].unique().tolist()
    if study not in known:
        raise ValueError(f"study is {study!r}; the paper's tables cover {', '.join(known)}")
    return table[table["study"] == study].reset_index(drop=True)
