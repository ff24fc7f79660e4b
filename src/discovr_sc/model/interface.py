"""What a tool may ask of a model. Private methods of trained scvi-tools models are called in this file only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy.sparse import csr_matrix
from scvi import REGISTRY_KEYS, settings
from scvi.model.base import ArchesMixin, BaseMinifiedModeModelClass, RNASeqMixin, UnsupervisedTrainingMixin, VAEMixin
from torch import Tensor

from discovr_sc._scvi import minify_type
from discovr_sc.errors import InputError, InputTypeError
from discovr_sc.model.checks import check_query, check_whole_number, find_data
from discovr_sc.model.conditions import CONDITION_SLOT, JOINT_COLUMN, condition_keys, known_conditions
from discovr_sc.model.fingerprints import check_unchanged, differences, fingerprint
from discovr_sc.model.values import check_counts, check_unit_interval, row_numbers
from discovr_sc.module.noise import LATENTS, noise_of, with_keys
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.train.divergence import check_finite_state
from discovr_sc.train.runner import muted

#: Numbers that a pass without gradients may hold of the data: small batches cost more to fetch than to encode.
NUMBERS_PER_PASS = 2_000_000

LatentKind = Literal["z", "w", "zw"]
ReconstructionKind = Literal["full", "marginal"]
Tensors = dict[str, Tensor]


class ModelInterface(ArchesMixin, UnsupervisedTrainingMixin, RNASeqMixin, VAEMixin, BaseMinifiedModeModelClass):
    """A model as tools see it: its data in mini-batches, its latents and decoders, its conditions.

    Beside what is below, tools use what scvi-tools' models have in public: ``adata``, ``registry``, ``summary_stats``,
    ``train_indices``, ``get_var_names``, ``get_setup_arg``, ``minified_data_type``.
    """

    module: DisentangledModule
    #: Latents that the method has.
    latents: ClassVar[tuple[str, ...]] = ("z", "w")
    #: Ways to choose w for a counterfactual that the method has, the default first.
    counterfactual_ways: ClassVar[tuple[str, ...]] = ("quantile", "prior", "posterior", "neighbors", "neighbor-shift")
    #: Settings of the training plan that the model takes in place of the plan's own.
    plan_defaults_: dict[str, Any]
    #: Fingerprint of the data of the last training; None before, and where they came from a datamodule.
    trained_on_: dict[str, str] | None
    #: What training may change, where a trained model was extended; None is all. See module/surgery.py.
    trainable_: dict[str, Tensor | None] | None

    #: The model's AnnData and its fingerprint, when the model was given it.
    _given: tuple[AnnData, dict[str, str]] | None = None
    #: Whether the weights are known to be finite; training changes them.
    _weights_are_checked = False

    # Conditions --------------------------------------------------------------------------------------------------

    @property
    def conditions(self) -> np.ndarray:
        """Names of the conditions, in the order of their indices."""
        return self.registry["field_registries"][CONDITION_SLOT]["state_registry"]["categorical_mapping"]

    @property
    def condition_keys(self) -> list[str]:
        """Columns of ``obs`` that make the condition."""
        return condition_keys(self.get_setup_arg("condition_key"))

    @property
    def condition_key(self) -> str:
        """Column of ``obs`` with the condition; for several columns the one that joins them."""
        key = self.get_setup_arg("condition_key")
        return key if isinstance(key, str) else JOINT_COLUMN

    @property
    def condition_table(self) -> pd.DataFrame:
        """The label of every condition (rows) in each of the columns that make it."""
        table = list(known_conditions(self.registry).values())
        return pd.DataFrame(table, index=self.conditions, columns=self.condition_keys)

    def condition_index(self, condition: str, argument: str) -> int:
        """Index of a condition, which the user has given as an argument."""
        known = list(self.conditions)
        if condition not in known:
            raise ValueError(f"{argument}={condition!r} is not one of the model's conditions; choose from {known}.")
        return known.index(condition)

    def condition_indices(self, adata: AnnData | None = None) -> np.ndarray:
        """Index of the condition of each cell, of the model's own by default; -1 where :meth:`is_known` is False."""
        manager = self.adata_manager if adata is None else self.get_anndata_manager(adata, required=True)
        return manager.get_from_registry(CONDITION_SLOT).ravel()

    def is_known(self, adata: AnnData | None = None) -> np.ndarray:
        """For each cell, whether its condition is known."""
        return self.condition_indices(adata) >= 0

    # Cells -------------------------------------------------------------------------------------------------------

    def validate(self, adata: AnnData | None) -> AnnData:
        """Cells to ask about, checked and set up: those given, or the model's own."""
        return self._validate_anndata(adata)

    def has_training_data(self) -> bool:
        """Whether the model's data are those that it was trained on."""
        if self.adata is None or self.trained_on_ is None:
            return False
        return not differences(self.own_fingerprint(), self.trained_on_)

    def own_fingerprint(self) -> dict[str, str]:
        """Fingerprint of the model's data, of the names alone where the counts are gone."""
        return fingerprint(self.adata, None if self.minified_data_type else self.registry["setup_args"])

    def check_own_data(self) -> None:
        """Raise where the model's AnnData is not as it was when the model was given it."""
        if self.adata is None or self.minified_data_type is not None:
            return
        if self._given is None or self._given[0] is not self.adata:
            self._given = self.adata, self.own_fingerprint()
        else:
            check_unchanged(self.own_fingerprint(), self._given[1])

    def training_cells(self) -> np.ndarray:
        """Rows of the training cells, or of all cells of the model's data where these are others."""
        return np.sort(self.train_indices) if self.has_training_data() else np.arange(self.adata.n_obs)

    def by_condition(self, cells: np.ndarray) -> dict[int, np.ndarray]:
        """For the index of every condition that rows of the model's data have, which of them have it."""
        indices = self.condition_indices()[cells]
        return {int(k): indices == k for k in np.unique(indices[self.is_known()[cells]])}

    def batches(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        batch_size: int | None = None,
        *,
        n_samples: int = 1,
        sparse: bool = False,
        seed: int | None = None,
    ) -> Iterable[Tensors]:
        """Mini-batches so small that ``n_samples`` can be decoded at once; with ``sparse``, sparse rows stay sparse.

        With a ``seed``, what is drawn for a cell depends on its name, and not on the cells beside it.
        """
        if batch_size is not None:
            check_whole_number("batch_size", batch_size, at_least=1)
        adata = self.validate(adata)
        rows = row_numbers(indices, adata.n_obs)
        data = self.get_anndata_manager(adata, required=True).get_from_registry(REGISTRY_KEYS.X_KEY)
        batches = self._make_data_loader(
            adata=adata,
            indices=rows,
            batch_size=batch_size or self.cells_per_pass(n_samples),
            load_sparse_tensor=sparse and isinstance(data, csr_matrix),
        )
        return batches if seed is None else with_keys(batches, adata.obs_names[rows], seed)

    def cells_per_pass(self, n_samples: int) -> int:
        """How many cells a mini-batch has by default."""
        return max(NUMBERS_PER_PASS // (n_samples * math.prod(self.module.shape)), settings.batch_size)

    @classmethod
    def registry_of(cls, adata: AnnData) -> dict[str, Any]:
        """What was registered of an AnnData that was set up."""
        return cls._get_most_recent_anndata_manager(adata, required=True).registry

    # Latents and decoding ------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def infer(self, tensors: Tensors, n_samples: int) -> tuple[dict, dict]:
        """Inputs of the module's inference, unknown conditions drawn, and its outputs: posteriors and samples."""
        tensors = {key: value.to(self.module.device) for key, value in tensors.items()}
        inputs = self.module.inference_input(tensors)
        return inputs, self.module.inference(**inputs, n_samples=n_samples, generator=noise_of(tensors, LATENTS))

    @torch.inference_mode()
    def decode(self, tensors: Tensors, n_samples: int, kind: ReconstructionKind, use_mean: bool = False):
        """What cells are decoded to from posterior samples of their latents (or means): p(x | .)."""
        _, outputs = self.module.forward(
            tensors,
            inference_kwargs={"n_samples": n_samples, "use_mean": use_mean},
            generative_kwargs={"kind": kind},
            compute_loss=False,
        )
        return outputs["px"]

    @torch.inference_mode()
    def decode_each(
        self, tensors: Tensors, n_samples: int, kind: ReconstructionKind, batches: Sequence[int | None] = (None,)
    ) -> Iterator[Any]:
        """What cells are decoded to from posterior samples, one sample (and batch to decode in) at a time: p(x | .)."""
        tensors = {key: value.to(self.module.device) for key, value in tensors.items()}
        _, q = self.infer(tensors, n_samples)
        given = self.module.given(tensors)
        for sample in range(n_samples):
            of_sample = {latent: q[latent][sample] if n_samples > 1 else q[latent] for latent in ("z", "w")}
            for batch in batches:
                yield self.module.generative(q | of_sample, given, transform_batch=batch, kind=kind)["px"]

    def decoding(self, kind: ReconstructionKind) -> RNASeqMixin:
        """The model's view for scvi-tools' own methods, where they are to decode one kind of reconstruction."""
        return _Decoding(self, kind)

    @classmethod
    def from_reference(cls, adata: AnnData, reference: Self, **kwargs) -> Self:
        """A model for cells with new categories that has the state of a trained one (scArches)."""
        return super().load_query_data(adata, reference, unfrozen=True, **kwargs)

    # Checks ------------------------------------------------------------------------------------------------------

    def check_trained(self) -> None:
        """Raise unless the model is trained, to weights that are finite."""
        self._check_if_trained(warn=False)
        if not self._weights_are_checked:
            check_finite_state(self.module)
            self._weights_are_checked = True

    def check_not_minified(self, method: str) -> None:
        """Raise where a method would need the counts of a model that answers from the latents it has kept."""
        if self.minified_data_type is not None:
            raise ValueError(
                f"{method} encodes counts, but the model's data are minified; load the model with the cells that it "
                "was trained on, not minified."
            )

    def check_of_genes(self, method: str, instead: str = "") -> None:
        """Raise where a method is asked about other data than counts of genes."""
        if not self.module.likelihood.counts:
            raise ValueError(f"{method} is for counts (likelihood 'zinb' or 'nb'){instead}.")
        tensor_key = self.get_setup_arg("tensor_key")
        if tensor_key is not None:
            raise ValueError(
                f"{method} is about genes, but the model's counts are in obsm[{tensor_key!r}], whose columns have no "
                f"names; set up the model with the counts in X or in a layer{instead}."
            )

    def check_values(self, adata: AnnData) -> None:
        """Check that the values fit the likelihood; minified data have none."""
        if minify_type(adata) is not None:
            return
        matrix, place = find_data(adata, self.get_setup_arg("layer"), self.get_setup_arg("tensor_key"))
        if self.module.likelihood.counts:
            check_counts(matrix, place)
        elif self.module.likelihood.unit_interval:
            check_unit_interval(matrix, place)

    def no_likelihood_of_z(self, fix: str) -> NoReturn:
        """Raise for a question that needs p(x | z)."""
        raise ValueError(f"{type(self).__name__} has no likelihood of x given z alone; use kind='full'{fix}.")

    # What scvi-tools calls -------------------------------------------------------------------------------------

    def _validate_anndata(self, adata: AnnData | None = None, copy_if_view: bool = True) -> AnnData:
        if adata is None and self.adata is None:
            raise ValueError("The model was loaded without data; pass adata.")
        if not isinstance(adata, AnnData | None):
            raise InputTypeError(f"adata is a {type(adata).__name__}; give an AnnData, see anndata.read_h5ad.")
        if adata is not None and adata is not self.adata:
            check_query(adata, self.registry)
            self.check_values(adata)
            if self.minified_data_type is not None and minify_type(adata) is None:
                raise ValueError(
                    "The model's own data are minified, so it takes minified data only; load it with adata=False to "
                    "ask about other cells."
                )
        else:
            self.check_own_data()
        has_own_data = self.adata is not None
        with muted("scvi"):  # that it copies views, and sets up what it has not seen: true of all new cells
            adata = super()._validate_anndata(adata, copy_if_view)
        if not has_own_data:
            # scvi-tools takes the first cells that such a model is asked about for its own data.
            self._adata = None
        return adata

    def _make_data_loader(self, adata, indices=None, *args, **kwargs):
        if self.minified_data_type is None and minify_type(adata) is not None:
            raise ValueError(
                "adata is minified: it has latents in place of counts, and this model would encode zeros. Load the "
                "model with it, load(folder, adata), or pass cells with counts."
            )
        rows = row_numbers(indices, adata.n_obs)
        if adata.isbacked and (np.diff(rows) <= 0).any():
            # scvi-tools would sort the rows of each mini-batch, and answers would be of other cells.
            raise InputError(
                "adata is on disk, where rows are read in their order; give indices in increasing order, each once, or "
                "take the cells into memory, adata.to_memory()."
            )
        return super()._make_data_loader(adata, rows, *args, **kwargs)

    def _get_transform_batch_gen_kwargs(self, batch: int | None) -> dict[str, Any]:
        return {"transform_batch": batch, "kind": "full"}


class _Decoding:
    """A model whose methods of scvi-tools decode one kind of reconstruction; all else is the model's."""

    def __init__(self, model: ModelInterface, kind: ReconstructionKind):
        self._asked, self._kind = model, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._asked, name)

    def _get_transform_batch_gen_kwargs(self, batch: int | None) -> dict[str, Any]:
        return {"transform_batch": batch, "kind": self._kind}
