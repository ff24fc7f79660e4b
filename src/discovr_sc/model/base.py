"""The base of every model: setup, construction, training."""

from __future__ import annotations

import logging
from dataclasses import asdict, fields
from inspect import Parameter, Signature
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse import csr_matrix
from scvi import REGISTRY_KEYS, settings
from scvi.data import AnnDataManager
from scvi.data.fields import (
    CategoricalJointObsField,
    CategoricalObsField,
    LayerField,
    NumericalJointObsField,
    NumericalObsField,
)

from discovr_sc._scvi import minify_type
from discovr_sc.errors import InputError
from discovr_sc.model import on_disk
from discovr_sc.model.checks import check_number, check_query, check_setup, check_whole_number
from discovr_sc.model.conditions import CONDITION_SLOT
from discovr_sc.model.fields import CellTypeField, ConditionField, TensorField
from discovr_sc.model.questions import Questions
from discovr_sc.module.evidence import CELL_TYPE_SLOT
from discovr_sc.module.skeleton import DisentangledModule
from discovr_sc.module.surgery import training_only
from discovr_sc.settings import Weights, default_epochs, paper_plan, paper_settings
from discovr_sc.tools.report import FRESH_PROBE, fresh_probes
from discovr_sc.train import AdversarialPlan, InterruptibleTrainRunner, Splitter
from discovr_sc.train.runner import quiet

#: Shown as scvi-tools shows its own messages.
logger = logging.getLogger("scvi").getChild("discovr_sc")


class DisentangledModel(Questions):
    """What all models share. A model declares its module and its name in the paper's tables."""

    _module_cls: ClassVar[type[DisentangledModule]]
    _training_plan_cls = AdversarialPlan
    _train_runner_cls = InterruptibleTrainRunner
    _data_splitter_cls = Splitter
    #: Name of the method in the paper's tables.
    _paper_name: ClassVar[str]
    #: Settings of the training plan that differ from its defaults, for ``"counts"`` and for ``"vectors"`` and images.
    _plan_defaults: ClassVar[dict[str, dict[str, Any]]] = {}
    #: Whether the method uses ``cell_type_key``.
    _uses_cell_types: ClassVar[bool] = False

    def get_elbo(self, *args, **kwargs):
        """See :meth:`scvi.model.base.VAEMixin.get_elbo`: a lower bound on log p(x | y), in nats per cell.

        Examples
        --------
        >>> bool(model.get_elbo() < 0)
        True
        """
        self.check_trained()
        return super().get_elbo(*args, **kwargs)

    # Setup and construction ------------------------------------------------------------------------------------

    setup_annbatch = classmethod(on_disk.setup_annbatch)

    @classmethod
    def setup_anndata(
        cls,
        adata: AnnData,
        condition_key: str | list[str],
        *,
        unlabeled_category: str | None = None,
        cell_type_key: str | None = None,
        layer: str | None = None,
        batch_key: str | None = None,
        size_factor_key: str | None = None,
        categorical_covariate_keys: list[str] | None = None,
        continuous_covariate_keys: list[str] | None = None,
        tensor_key: str | None = None,
        **kwargs,
    ) -> None:
        """Say where the model finds its data in an AnnData.

        Parameters
        ----------
        adata
            Cells in rows. scvi-tools adds entries ``_scvi_*`` to ``obs``, ``obsm`` and ``uns``; the rest is left alone.
        condition_key
            Column of ``obs`` with the condition of each cell: at least two categories, no missing values. Several
            columns make conditions of their combinations that occur, named as in ``"stim & donor_1"``:
            ``["stim", "donor"]`` asks z to tell neither, and w to tell both.
        unlabeled_category
            Label of cells whose condition is unknown; with it, missing labels are unknown, too. Such cells are trained
            on with the terms that do not need a condition, log p(x | z) and KL(q(z | x) || p(z)), which only DISCOVR
            has. In a query missing labels are unknown in any case.
        cell_type_key
            Column of ``obs`` with cell types, missing (NaN) where they are not known; only DISCOVR takes it. z is then
            made independent of the condition *within* types, and types lie apart in z. Without it, the model finds
            kinds of cells by itself. A query needs no types.
        layer
            Layer with the counts; ``X`` by default.
        batch_key
            Column of ``obs`` with a technical batch, which conditions the decoders. Not the condition.
        size_factor_key
            Column of ``obs`` with size factors; by default the total counts of each cell.
        categorical_covariate_keys, continuous_covariate_keys
            Columns of ``obs`` with further nuisance covariates.
        tensor_key
            Key of ``obsm`` with an array of any shape (vectors, images) to model in place of ``X``. Bytes (uint8) are
            scaled to [0, 1] on the fly, unless they are modelled as counts.
        **kwargs
            For scvi-tools, when a saved setup is restored.

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition")
        """
        setup_method_args = cls._get_setup_method_args(**locals())
        if kwargs and "source_registry" not in kwargs:
            raise TypeError(
                f"setup_anndata does not take {', '.join(kwargs)}. The condition is named by condition_key, cell "
                "types by cell_type_key."
            )
        if cell_type_key is not None and not cls._uses_cell_types:
            raise InputError(
                f"cell_type_key={cell_type_key!r}: {cls.__name__} uses no cell types. Leave it out, or use DISCOVR."
            )
        if "source_registry" in kwargs:
            check_query(
                adata,
                kwargs["source_registry"],
                extend_categories=kwargs.get("extend_categories", False),
                extend_conditions=kwargs.get("extend_conditions", False),
            )
        else:
            check_setup(adata, setup_method_args["setup_args"])

        if tensor_key is None:
            # Whether the data must be counts depends on the likelihood: the constructor checks that.
            data_field = LayerField(REGISTRY_KEYS.X_KEY, layer, is_count_data=False)
        else:
            data_field = TensorField(REGISTRY_KEYS.X_KEY, tensor_key)
        fields = [
            data_field,
            ConditionField(CONDITION_SLOT, condition_key, unlabeled_category),
            CategoricalObsField(REGISTRY_KEYS.BATCH_KEY, batch_key),
            NumericalObsField(REGISTRY_KEYS.SIZE_FACTOR_KEY, size_factor_key, required=False),
            CategoricalJointObsField(REGISTRY_KEYS.CAT_COVS_KEY, categorical_covariate_keys),
            NumericalJointObsField(REGISTRY_KEYS.CONT_COVS_KEY, continuous_covariate_keys),
        ]
        if cell_type_key is not None:
            fields.append(CellTypeField(CELL_TYPE_SLOT, cell_type_key))
        if minify_type(adata) is not None:
            fields += cls._get_fields_for_adata_minification(minify_type(adata))
        manager = AnnDataManager(fields=fields, setup_method_args=setup_method_args)
        manager.register_fields(adata, **kwargs)
        cls.register_manager(manager)

    @classmethod
    def paper(cls, adata: AnnData, experiment: str, *, method: str | None = None, **overrides):
        """A model with the paper's loss weights, latent sizes and networks.

        What the paper does not give (noise scales, normalisation, the image likelihood, CelebA's networks) is chosen in
        :mod:`discovr_sc.settings`.

        Parameters
        ----------
        adata
            An AnnData that :meth:`setup_anndata` has seen.
        experiment
            ``"parametric"``, ``"swiss-roll"``, ``"colored-mnist"``, ``"celeba-glasses"`` or ``"kang"``.
        method
            Row of the paper's tables, such as ``"csvae-noadv"``; this method's by default.
        **overrides
            Arguments of the constructor that replace the paper's, such as ``noise_scale``.

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.parametric_model(100)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition", tensor_key="x")
        >>> DISCOVR.paper(adata, "parametric").module.weights.rec_z
        0.25
        """
        method = method or cls._paper_name
        if method.removesuffix("-noadv") != cls._paper_name:
            raise ValueError(f"method={method!r} is not a row of {cls.__name__}; it has {cls._paper_name!r}.")
        model = cls(adata, **(paper_settings(method, experiment) | overrides))
        model.plan_defaults_ = paper_plan(experiment)
        return model

    @classmethod
    def default_settings(cls) -> dict[str, Any]:
        """Every default of the constructor, and what the class changes in the training plan.

        Examples
        --------
        >>> model.default_settings()["constructor"]["n_latent_z"]
        10
        """
        settings_cls = cls._module_cls.settings_cls
        constructor = {"adata": None, "registry": None} | vars(settings_cls())
        plan = cls._plan_defaults.get("counts", {})
        return {"constructor": constructor, "by_data": settings_cls.data_defaults, "plan": plan}

    def __init_subclass__(cls, **kwargs) -> None:
        """Show the settings in the signature of the constructor, which takes them by name."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "_module_cls"):
            shown = [Parameter("adata", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="AnnData | None")]
            for item in fields(cls._module_cls.settings_cls):
                shown.append(Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=item.type))
            shown.append(Parameter("registry", Parameter.KEYWORD_ONLY, default=None, annotation="dict | None"))
            cls.__signature__ = Signature(shown)

    def __init__(self, adata: AnnData | None = None, *, registry: dict | None = None, **settings):
        super().__init__(adata, registry)
        chosen = self._module_cls.settings_cls.of(settings)
        self.plan_defaults_ = dict(self._plan_defaults.get("counts" if chosen.of_counts else "vectors", {}))
        # Fingerprint of the data of the last training; None before, and where they came from a datamodule.
        self.trained_on_ = None
        # What training may change, where a trained model was extended; None is all. See module/surgery.py.
        self.trainable_ = None
        shape, data_scale = self._data_layout()
        self.module = self._module_cls(
            shape,
            self.summary_stats.n_labels,
            chosen,
            n_batch=self.summary_stats.n_batch,
            n_cats_per_cov=self._n_cats_per_cov(),
            n_continuous_cov=self.summary_stats.get("n_extra_continuous_covs", 0),
            n_cell_types=self.summary_stats.get(f"n_{CELL_TYPE_SLOT}", 0),
            condition_probs=None if adata is None else self._condition_frequencies(),
            data_scale=data_scale,
        )
        self.module.minified_data_type = self.minified_data_type
        if adata is not None:
            self.check_values(adata)
            self.check_own_data()
        if isinstance(settings.get("weights"), Weights):
            settings["weights"] = asdict(settings["weights"])  # saved models hold plain values
        if chosen.n_latent_w is None:
            settings["n_latent_w"] = self.module.n_latent_w  # kept where conditions are added
            logger.info(f"{self.summary_stats.n_labels} conditions: w has {self.module.n_latent_w} dimensions.")
        self.init_params_ = self._get_init_params(locals())

    def _state_registry(self, key: str) -> dict:
        return self.registry["field_registries"][key]["state_registry"]

    def _data_layout(self) -> tuple[tuple[int, ...], float]:
        """Shape of one observation, and the factor that brings stored values to the model's scale."""
        state = self._state_registry(REGISTRY_KEYS.X_KEY)
        if TensorField.SHAPE_KEY not in state:
            return (int(self.summary_stats.n_vars),), 1.0
        return tuple(state[TensorField.SHAPE_KEY]), 1 / 255 if state[TensorField.BYTES_KEY] else 1.0

    def _n_cats_per_cov(self) -> tuple[int, ...]:
        return tuple(self._state_registry(REGISTRY_KEYS.CAT_COVS_KEY).get("n_cats_per_key", ()))

    def _condition_frequencies(self) -> list[float] | None:
        # A loaded model may be given cells of unknown condition; its own frequencies come from the saved state.
        indices = self.condition_indices()[self.is_known()]
        counts = np.bincount(indices, minlength=len(self.conditions))
        return (counts / counts.sum()).tolist() if counts.sum() else None

    # Training --------------------------------------------------------------------------------------------------

    def train(
        self,
        max_epochs: int | None = None,
        *,
        batch_size: int = 256,
        early_stopping: bool = False,
        balance_conditions: bool = False,
        plan_kwargs: dict[str, Any] | None = None,
        **kwargs,
    ) -> None:
        """Train the model. Ctrl-C ends the training and keeps what was learned.

        Parameters
        ----------
        max_epochs
            Passes over the training cells; by default 10 to 400, so that the model sees some 500,000 cells in total.
        batch_size
            Cells per step.
        early_stopping
            Stop when the validation loss has not fallen for ``early_stopping_patience`` epochs. The adversary's term is
            left out of that loss: it is low whenever the adversary happens to be weak.
        balance_conditions
            Draw training cells so that an epoch has as many cells of each condition, for conditions of unequal sizes.
            p(y), in the model, stays at the conditions' shares of the data.
        plan_kwargs
            Of :class:`~discovr_sc.train.AdversarialPlan`: ``lr``, ``adversary_lr``, ``prior_lr``,
            ``n_adversary_steps``, ``gradient_clip``, ``n_epochs_kl_warmup``, ``final_decay``, ``alignment_start``, ...
            What the model takes by default in place of the plan's own values is in ``model.plan_defaults_`` (DISCOVR
            on counts: ``adversary_lr=2e-3``, ``prior_lr=1e-2``, ``final_decay=0.8`` and ``alignment_start=0.25``).
        **kwargs
            Of scvi-tools' ``train`` and :class:`~scvi.train.Trainer`: ``train_size``, ``validation_size``,
            ``accelerator``, ``devices``, ``early_stopping_patience``, ``enable_progress_bar``, ...

        Examples
        --------
        >>> from discovr_sc import DISCOVR, data
        >>> adata = data.simulate_counts(n_cells=200, n_genes=50)
        >>> DISCOVR.setup_anndata(adata, condition_key="condition")
        >>> model = DISCOVR(adata)
        >>> model.train(max_epochs=2, train_size=0.8, plan_kwargs={"lr": 3e-4}, enable_progress_bar=False)
        >>> len(model.history_["validation_loss"])
        2
        """
        check_whole_number("batch_size", batch_size, at_least=2)
        for argument, low in (("train_size", 0.0), ("validation_size", -1e-9)):
            if kwargs.get(argument) is not None:
                check_number(argument, kwargs[argument], above=low, below=1 + 1e-9)
        train_size, rest = kwargs.get("train_size") or 0.9, kwargs.get("validation_size") or 0.0
        if train_size + rest > 1 + 1e-9:
            raise InputError(
                f"validation_size={rest} beside train_size={train_size}; give parts that sum to at most 1."
            )
        if max_epochs is not None:
            check_whole_number("max_epochs", max_epochs, at_least=1)
            max_epochs = int(max_epochs)  # Lightning takes no other kind of whole number
        if self.minified_data_type is not None:
            raise ValueError("The model's data are minified; load it with the data that it was trained on to train it.")
        if self.adata is not None and not self.module.has_z_likelihood and not self.is_known().all():
            raise ValueError(
                f"adata has cells of unknown condition; {type(self).__name__} has no likelihood of x given z alone to "
                "train on them. Drop these cells."
            )
        self.check_own_data()
        monitor = "validation_loss" if self.module.adversary is None else "loss_without_adversary_validation"
        defaults = {"early_stopping_monitor": monitor, "check_val_every_n_epoch": 1, "log_every_n_steps": 1}
        cells = kwargs.get("datamodule")
        if isinstance(cells, on_disk.CellsOnDisk):
            cells.prepare(self.module, int(batch_size))
        n_obs = getattr(cells if self.adata is None else self.adata, "n_obs", None)
        if max_epochs is None and n_obs is not None:
            max_epochs = default_epochs(n_obs)
            logger.info(f"{n_obs:,} cells: {max_epochs} epochs.")
        if balance_conditions:
            kwargs["datasplitter_kwargs"] = (kwargs.get("datasplitter_kwargs") or {}) | {"balance_conditions": True}
        # Training reads sparse rows as they are; what torch compiles takes none.
        if self.adata is not None and not (plan_kwargs or {}).get("compile"):
            data = self.adata_manager.get_from_registry(REGISTRY_KEYS.X_KEY)
            defaults["load_sparse_tensor"] = self.module.likelihood.counts and isinstance(data, csr_matrix)
        with training_only(self.module, self.trainable_), quiet():
            super().train(
                max_epochs=max_epochs,
                batch_size=int(batch_size),
                early_stopping=early_stopping,
                plan_kwargs=self.plan_defaults_ | (plan_kwargs or {}),
                **(defaults | kwargs),
            )

    def after_training(self, datamodule) -> None:
        """Fit what evaluation needs beyond the networks; the runner calls this when training ends, or is stopped.

        The history then has what a fresh probe reads where the adversary looked, ``fresh_probe_<place>``.
        """
        self._weights_are_checked = False
        if self.adata is None:
            batches = (datamodule.on_before_batch_transfer(batch, 0) for batch in datamodule.train_dataloader())
            self.module.fit_condition_means(batches)
            return
        if self.trainable_ is None:
            known = self.train_indices[self.is_known()[self.train_indices]]
            known = np.sort(known) if self.adata.isbacked else known
            self.module.fit_condition_means(self.batches(self.adata, known, settings.batch_size))
        self.trained_on_ = self.own_fingerprint()
        if isinstance(self.history_, dict) and "train_loss" in self.history_:
            last = self.history_["train_loss"].index[-1:]
            for place, accuracy in fresh_probes(self).items():
                name = f"{FRESH_PROBE}{place}"
                self.history_[name] = pd.DataFrame({name: [accuracy]}, index=last)
