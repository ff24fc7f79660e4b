"""Simulated data whose common and condition-specific parts are known."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from .adapters import tensors_to_anndata

# Cells are generated in blocks of this many matrix entries, so that no dense matrix exceeds some 30 MB.
BLOCK_ENTRIES = 4_000_000


def parametric_model(n: int = 20_000, *, seed: int = 0) -> AnnData:
    """Simulate the paper's one-dimensional model, x = z + w with y telling the sign of w.

    z and w are independent standard normal, so x ~ N(0, 2) and p(z | x) = N(x / 2, 1 / 2). The best classifier of y
    from x is right in 75 % of samples.

    Returns
    -------
    AnnData with `obsm["x"]` (n, 1); `obs`: `condition` ("1" where w > 0, else "0") and the true `z` and `w`.

    Examples
    --------
    >>> adata = parametric_model(1000)
    >>> adata.obsm["x"].shape, list(adata.obs)
    ((1000, 1), ['z', 'w', 'condition'])
    """
    _check(n >= 1, "n", n, "a whole number of at least 1")
    z, w = np.random.default_rng(seed).standard_normal((2, n))
    return tensors_to_anndata(z + w, _binary(w > 0), obs={"z": z, "w": w})


def noisy_swiss_roll(
    n: int = 20_000, *, flip: float = 0.3, noise: float = 0.0, standardize: bool = True, seed: int = 0
) -> AnnData:
    """Simulate a Swiss roll cut in two halves along its length, with a share of the labels flipped.

    The columns of x are (t cos t, length, t sin t) with t uniform on [1.5 pi, 4.5 pi] and length uniform on
    [0, 21]: columns 0 and 2 are the plane of the spiral, which is common to both conditions, and column 1 is
    the length, which sets the label. With `flip` up to one half, no classifier of the noisy label is right in
    more than a share 1 - `flip` of samples.

    Parameters
    ----------
    n, flip, seed
        Number of samples, probability that a label is flipped, from 0 to 1, and seed of the generator.
    noise
        Standard deviation of normal noise added to x, in the units of the roll (before standardisation).
    standardize
        Shift and scale each column of x to mean 0 and standard deviation 1.

    Returns
    -------
    AnnData with `obsm["x"]` (n, 3) and `obsm["plane"]` (n, 2), columns 0 and 2 of x. `obs`: `condition`
    (after the flips), `condition_clean` ("1" where the true length exceeds 10.5, else "0"), and the true, unscaled `t`
    and `length`.

    Examples
    --------
    >>> adata = noisy_swiss_roll(1000, flip=0.1)
    >>> adata.obsm["x"].shape, adata.obsm["plane"].shape
    ((1000, 3), (1000, 2))
    """
    _check(n >= 2, "n", n, "a whole number of at least 2")
    _check(0 <= flip <= 1, "flip", flip, "a number from 0 to 1")
    _check(0 <= noise < np.inf, "noise", noise, "a finite number of at least 0")
    rng = np.random.default_rng(seed)
    t = rng.uniform(1.5 * np.pi, 4.5 * np.pi, n)
    length = rng.uniform(0, 21, n)
    clean = length > 10.5
    flipped = rng.random(n) < flip

    x = np.column_stack([t * np.cos(t), length, t * np.sin(t)]) + noise * rng.standard_normal((n, 3))
    if standardize:
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    obs = {"condition_clean": _binary(clean), "t": t, "length": length}
    adata = tensors_to_anndata(x, _binary(clean ^ flipped), obs=obs)
    adata.obsm["plane"] = adata.obsm["x"][:, [0, 2]]
    return adata


@dataclass(frozen=True)
class CountSettings:
    """What :func:`simulate_counts` takes beside the shape and the seed, with the defaults."""

    #: Number T of cell types; each changes the expression of about a seventh of the genes.
    n_types: int = 4
    #: Number K of conditions, the first of which is the control.
    n_conditions: int = 2
    #: Share of cells in each condition, K numbers that sum to 1; equal by default.
    condition_sizes: Sequence[float] | np.ndarray | None = None
    #: Share of each type within each condition, (K, T), rows summing to 1, met up to rounding; equal by default.
    type_proportions: Sequence[Sequence[float]] | np.ndarray | None = None
    #: Number of genes each treatment changes, drawn for each treatment anew.
    n_effect_genes: int = 50
    #: Mean absolute log fold change (natural logarithm) of those genes where ``type_specific`` is 0.
    effect_size: float = 1.0
    #: Share of the effect that is drawn for each type anew instead of being common to all, from 0 to 1.
    type_specific: float = 0.3
    #: Standard deviation over cells of the strength of the response (of mean 1), which multiplies log fold changes.
    response_spread: float = 0.3
    #: Excess of the variance over a Poisson's; 0 is Poisson.
    dispersion: float = 0.2
    #: Median expected number of counts of a cell, before dropout, and the standard deviation of its logarithm.
    library_size: float = 1500.0
    library_spread: float = 0.4
    #: Probability that a non-zero count is set to zero.
    dropout: float = 0.0
    #: Number of batches, equal in size and spread over conditions at random.
    n_batches: int = 1
    #: Standard deviation over genes of a batch's log fold change; with one batch there is none.
    batch_effect: float = 0.2
    #: Number of donors, each with cells of every condition; equal in size.
    n_donors: int = 1
    #: Standard deviation over genes of a donor's log fold change, and of that of a donor in one condition and type
    #: alone, which makes donors respond differently; with one donor there is neither.
    donor_effect: float = 0.3
    sample_effect: float = 0.1

    def __post_init__(self):
        for name, value in vars(self).items():
            if name in ("n_types", "n_conditions", "n_batches", "n_donors"):
                _check(value >= 1, name, value, "a whole number of at least 1")
            elif name.endswith(("_effect", "_spread")) or name in ("effect_size", "dispersion"):
                _check(0 <= value < np.inf, name, value, "a finite number of at least 0")
        _check(0 <= self.type_specific <= 1, "type_specific", self.type_specific, "a number from 0 to 1")
        _check(0 <= self.dropout < 1, "dropout", self.dropout, "a probability from 0 to below 1")
        _check(0 < self.library_size < np.inf, "library_size", self.library_size, "a positive number of counts")


def simulate_counts(n_cells: int = 2000, n_genes: int = 500, *, seed: int = 0, **settings: Any) -> AnnData:
    """Simulate counts of cells of a few types under a control and one or more treatments.

    The count of gene g in cell i is negative binomial with mean `library_i * rho_ig` and variance
    `mean + dispersion * mean**2`. rho_i, which sums to 1 over genes, is proportional to
    `exp(baseline_g + type_tg + response_i * effect_ktg + batch_bg + donor_dg + sample_dktg)` for a cell of type t,
    condition k, batch b and donor d. Types are the same in every condition.

    Parameters
    ----------
    n_cells, n_genes
        Shape of the count matrix.
    seed
        Seed of the generator. The same arguments give the same matrix, bit for bit.
    **settings
        See :class:`CountSettings`.

    Returns
    -------
    AnnData with `X`: integer-valued counts, CSR float32; a cell that would be empty has one, in its
    gene of highest rate. `obs`: `condition` ("control", "treated_1", ...), `cell_type` ("type_0", ...), `batch`
    ("batch_0", ...), `donor` ("donor_0", ...; where there are several) and `response`, the true strength (0 in
    controls). For each treatment, `varm["effect_treated_1"]` (n_genes, T) has the log fold changes by type and
    `var["effect_treated_1"]` their mean over types; `var["is_effect"]` marks genes any treatment changes.
    `uns["simulation"]` has the arguments.

    Examples
    --------
    >>> proportions = [[0.7, 0.3], [0.2, 0.8]]
    >>> adata = simulate_counts(200, 100, n_types=2, type_proportions=proportions, n_effect_genes=10)
    >>> adata.shape, int(adata.var["is_effect"].sum())
    ((200, 100), 10)
    >>> adata.obs.groupby(["condition", "cell_type"], observed=True).size().tolist()
    [70, 30, 20, 80]
    """
    how = CountSettings(**settings)
    _check(n_cells >= 1, "n_cells", n_cells, "a whole number of at least 1")
    _check(n_genes >= 1, "n_genes", n_genes, "a whole number of at least 1")
    most = f"a number from 0 to n_genes, which is {n_genes}"
    _check(0 <= how.n_effect_genes <= n_genes, "n_effect_genes", how.n_effect_genes, most)
    sizes = _shares("condition_sizes", how.condition_sizes, (how.n_conditions,))
    proportions = _shares("type_proportions", how.type_proportions, (how.n_conditions, how.n_types))
    how = replace(how, condition_sizes=sizes, type_proportions=proportions)

    rng = np.random.default_rng(seed)
    baseline = rng.normal(0, 1.2, n_genes)
    is_marker = rng.random((how.n_types, n_genes)) < 0.15
    profiles = baseline + is_marker * rng.normal(0, 1.2, (how.n_types, n_genes))  # (T, genes)
    effects = _draw_effects(rng, n_genes, how)
    shifts = np.zeros((1, n_genes))
    if how.n_batches > 1:
        shifts = rng.normal(0, how.batch_effect, (how.n_batches, n_genes))

    # In random order.
    per_condition = zip(_round_shares(n_cells, sizes), proportions, strict=True)
    per_group = np.array([_round_shares(*pair) for pair in per_condition])
    group = rng.permutation(np.repeat(np.arange(per_group.size), per_group.ravel()))
    condition, cell_type = np.divmod(group, how.n_types)
    batch = rng.permutation(np.arange(n_cells) % how.n_batches)
    response = np.ones(n_cells)
    if how.response_spread > 0:
        response = rng.gamma(how.response_spread**-2, how.response_spread**2, n_cells)
    response[condition == 0] = 0.0
    library = rng.lognormal(np.log(how.library_size), how.library_spread, n_cells)
    codes = {"condition": condition, "type": cell_type, "batch": batch}
    cells = pd.DataFrame({**codes, "response": response, "library": library})
    if how.n_donors > 1:
        # A donor's cells of a condition and type have a shift of their own, beside their batch's.
        donor = rng.permutation(np.arange(n_cells) % how.n_donors)
        own = rng.normal(0, how.sample_effect, (how.n_donors, per_group.size, n_genes))
        own += rng.normal(0, how.donor_effect, (how.n_donors, 1, n_genes))
        cells["batch"] = (batch * how.n_donors + donor) * per_group.size + group
        shifts = (shifts[:, None] + own.reshape(-1, n_genes)).reshape(-1, n_genes)
    counts = _draw_counts(rng, how, cells, *(part.astype(np.float32) for part in (profiles, effects, shifts)))

    conditions = ["control"] + [f"treated_{k}" for k in range(1, how.n_conditions)]
    obs = pd.DataFrame(index=[f"cell_{i}" for i in range(n_cells)])
    obs["condition"] = pd.Categorical.from_codes(condition, conditions)
    obs["cell_type"] = pd.Categorical.from_codes(cell_type, [f"type_{t}" for t in range(how.n_types)])
    obs["batch"] = pd.Categorical.from_codes(batch, [f"batch_{b}" for b in range(how.n_batches)])
    if how.n_donors > 1:
        obs["donor"] = pd.Categorical.from_codes(donor, [f"donor_{d}" for d in range(how.n_donors)])
    obs["response"] = response
    var = pd.DataFrame({"is_effect": (effects != 0).any(axis=(0, 1))}, index=[f"gene_{g}" for g in range(n_genes)])
    varm = {f"effect_{conditions[k]}": effects[k].T for k in range(1, how.n_conditions)}
    for name, effect in varm.items():
        var[name] = effect.mean(axis=1)
    return AnnData(X=counts, obs=obs, var=var, varm=varm, uns={"simulation": asdict(how) | {"seed": seed}})


def _draw_effects(rng: Generator, n_genes: int, how: CountSettings) -> np.ndarray:
    """Return log fold changes (K, T, genes), zero for the control."""
    effects = np.zeros((how.n_conditions, how.n_types, n_genes))
    for k in range(1, how.n_conditions):
        genes = rng.choice(n_genes, how.n_effect_genes, replace=False)
        # Row 0 is common to all types. Bounded away from zero, so that a gene said to respond does.
        shape = (1 + how.n_types, how.n_effect_genes)
        draws = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)
        mixed = (1 - how.type_specific) * draws[0] + how.type_specific * draws[1:]
        effects[k][:, genes] = how.effect_size * mixed
    return effects


def _round_shares(total: int, shares: np.ndarray) -> np.ndarray:
    """Split `total` in whole numbers as near `shares` as can be (largest remainders are rounded up)."""
    exact = total * shares
    whole = np.floor(exact).astype(int)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: total - whole.sum()]] += 1
    return whole


def _draw_counts(
    rng: Generator, how: CountSettings, cells: pd.DataFrame, profiles: NDArray, effects: NDArray, shifts: NDArray
) -> sparse.csr_matrix:
    """Draw the counts block by block, so that memory is that of the sparse result and little more."""
    n_genes = profiles.shape[1]
    block = max(1, BLOCK_ENTRIES // n_genes)
    values, columns, lengths = [], [], []
    for start in range(0, len(cells), block):
        part = cells.iloc[start : start + block]
        rate = profiles[part["type"]] + shifts[part["batch"]]  # (block, genes)
        rate += part["response"].to_numpy(np.float32)[:, None] * effects[part["condition"], part["type"]]
        np.exp(rate, out=rate)
        rate *= (part["library"].to_numpy(np.float32) / rate.sum(axis=1))[:, None]
        if how.dispersion > 0:
            # A Poisson whose rate is gamma distributed is negative binomial.
            rate *= rng.standard_gamma(1 / how.dispersion, rate.shape, dtype=np.float32) * np.float32(how.dispersion)
        counts = rng.poisson(rate)
        if how.dropout > 0:
            counts[counts > 0] *= rng.random(np.count_nonzero(counts)) >= how.dropout
        # Models take the logarithm of a cell's total.
        empty = np.flatnonzero(counts.sum(axis=1) == 0)
        counts[empty, rate[empty].argmax(axis=1)] = 1

        rows, genes = np.nonzero(counts)
        values.append(counts[rows, genes].astype(np.float32))
        columns.append(genes.astype(np.int32))
        lengths.append(np.bincount(rows, minlength=len(part)))
    # One after the other, with the pieces let go, to stay below twice the size of the result.
    data, values = np.concatenate(values), []
    indices, columns = np.concatenate(columns), []
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return sparse.csr_matrix((data, indices, starts), shape=(len(cells), n_genes))


def _binary(condition: np.ndarray) -> pd.Categorical:
    return pd.Categorical.from_codes(condition.astype(int), ["0", "1"])


def _shares(name: str, shares: Sequence | np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    if shares is None:
        return np.full(shape, 1 / shape[-1])
    values = np.asarray(shares, dtype=float)
    if values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape}; pass one share for each condition (and type): {shape}.")
    if not (values >= 0).all() or not np.allclose(values.sum(axis=-1), 1):
        raise ValueError(f"{name} is {values.tolist()}; pass shares of at least 0 that sum to 1 along the last axis.")
    return values


def _check(fits: bool, name: str, value: float, wanted: str) -> None:
    if not fits:
        raise ValueError(f"{name} is {value}; pass {wanted}.")
