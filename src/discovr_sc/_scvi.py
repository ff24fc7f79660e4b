"""The private names of scvi-tools that this package uses, all in one place.

If an upgrade of scvi-tools moves one of them, this is the only file to mend.
"""

from scvi.data._utils import _check_nonnegative_integers as is_count_matrix
from scvi.model._utils import use_distributed_sampler as is_distributed

__all__ = ["is_count_matrix", "is_distributed"]
