"""Separate what is shared across conditions from what a condition changes."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discovr_sc import data, metrics, pl
    from discovr_sc.model import CCVAE, CSVAE, CVAE, DISCOVR, DIVA, HCSVAE
    from discovr_sc.settings import Weights

__all__ = ["CCVAE", "CSVAE", "CVAE", "DISCOVR", "DIVA", "HCSVAE", "Weights", "data", "metrics", "pl"]
__version__ = version("discovr_sc")


def __getattr__(name: str) -> Any:
    # torch and scvi-tools take seconds to import: each name is imported when it is first used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("data", "metrics", "pl"):
        return import_module(f"{__name__}.{name}")
    home = "settings" if name == "Weights" else "model"
    globals()[name] = value = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
