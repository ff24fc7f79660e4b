"""Every study, by name: each ``Study`` that a file of this folder defines."""

from importlib import import_module
from pkgutil import iter_modules

from discovr_sc.experiments.engine.study import Study


def find_studies() -> dict[str, Study]:
    """The studies of all files of this folder; two of one name are refused."""
    found: dict[str, Study] = {}
    for module in iter_modules(__path__, prefix=f"{__name__}."):
        for study in vars(import_module(module.name)).values():
            # A file may import another's study.
            if isinstance(study, Study) and found.setdefault(study.name, study) is not study:
                raise ValueError(f"two studies are called {study.name!r}; the second is in {module.name}.")
    return found


STUDIES = find_studies()
