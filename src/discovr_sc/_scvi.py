"""The private names of scvi-tools that this package uses, all in one place.

If an upgrade of scvi-tools moves one of them, this is the only file to mend.
"""

from scvi.data._utils import _check_nonnegative_integers as is_count_matrix
from scvi.data._utils import _get_adata_minify_type as minify_type
from scvi.model._utils import use_distributed_sampler as is_distributed
from scvi.model.base._de_core import _fdr_de_prediction as expected_fdr_calls

__all__ = ["expected_fdr_calls", "is_count_matrix", "is_distributed", "minify_type"]
