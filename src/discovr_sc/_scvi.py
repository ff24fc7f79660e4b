"""The private names of scvi-tools that this package depends on, all in one place.

Functions are imported here and nowhere else. Methods and attributes belong to classes that ours inherit from, so they
cannot be imported: ours override them, or call them, under scvi-tools' own names. They are listed below with the class
that has them. ``tests/test_scvi_names.py`` checks that the installed scvi-tools has every one, and that none is used
which is not listed. So look here first when an upgrade of scvi-tools breaks something.
"""

import rich.pretty  # noqa: F401  scvi-tools' view_anndata_setup calls it, and rich 15 does not import it by itself
from scvi.data._utils import _get_adata_minify_type as minify_type
from scvi.model._utils import _get_batch_code_from_category as batch_codes
from scvi.model._utils import parse_device_args
from scvi.model._utils import use_distributed_sampler as is_distributed
from scvi.model.base._archesmixin import _pad_and_sort_query_anndata as pad_and_sort_genes
from scvi.model.base._de_core import _fdr_de_prediction as expected_fdr_calls
from scvi.model.base._save_load import _initialize_model as initialize_model

__all__ = [
    "CALLED",
    "OVERRIDDEN",
    "batch_codes",
    "expected_fdr_calls",
    "initialize_model",
    "is_distributed",
    "minify_type",
    "pad_and_sort_genes",
    "parse_device_args",
]

#: What our classes define anew because scvi-tools calls or reads it: names by the public path of scvi-tools' class.
OVERRIDDEN = {
    "scvi.model.base.BaseModelClass": ("_make_data_loader", "_validate_anndata"),
    "scvi.model.base.BaseMinifiedModeModelClass": ("_LATENT_QZM_KEY", "_LATENT_QZV_KEY"),
    "scvi.model.base.RNASeqMixin": ("_get_transform_batch_gen_kwargs",),
    "scvi.model.base.UnsupervisedTrainingMixin": (
        "_data_splitter_cls",
        "_module_cls",
        "_train_runner_cls",
        "_training_plan_cls",
    ),
    "scvi.module.base.BaseModuleClass": ("_get_generative_input", "_get_inference_input"),
    "scvi.module.base.BaseMinifiedModeModuleClass": ("_cached_inference", "_regular_inference"),
    "scvi.train.TrainingPlan": ("_optimizer_creator_fn",),
    "scvi.train.TrainRunner": ("_trainer_cls", "_update_history"),
}
#: What our code calls, reads or sets as scvi-tools made it.
CALLED = {
    "scvi.model.base.BaseModelClass": (
        "_adata",
        "_check_if_trained",
        "_get_init_params",
        "_get_most_recent_anndata_manager",
        "_get_setup_method_args",
        "_get_user_attributes",
    ),
    "scvi.model.base.BaseMinifiedModeModelClass": ("_get_fields_for_adata_minification",),
    "scvi.data.fields.CategoricalObsField": ("_original_attr_key",),
}
