"""Saving and loading models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import anndata
from anndata import AnnData
from scvi.data import AnnDataManager

from discovr_sc._scvi import initialize_model, parse_device_args
from discovr_sc.errors import InputError
from discovr_sc.model import storage
from discovr_sc.model.minified import MinifiedMixin


class StoredModel(MinifiedMixin):
    """A model that is saved whole or not at all, to a file that holds values and runs nothing when it is read."""

    def save(
        self,
        dir_path: str | Path,
        prefix: str | None = None,
        overwrite: bool = False,
        save_anndata: bool = False,
        save_kwargs: dict[str, Any] | None = None,
        **anndata_write_kwargs,
    ) -> None:
        """Save the model: ``model.pt``, ``checksums.json`` and, if asked for, ``adata.h5ad``.

        A process that is killed while it saves, or a full disk, leaves the model that was there before as it was.

        Parameters
        ----------
        dir_path, prefix
            Folder, and what the names of the files start with.
        overwrite
            Replace a model that is there; other files stay.
        save_anndata
            Save the model's AnnData, too.
        save_kwargs
            Of :func:`torch.save`.
        **anndata_write_kwargs
            Of :meth:`anndata.AnnData.write_h5ad`.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> from discovr_sc import DISCOVR
        >>> folder = mkdtemp()
        >>> model.save(folder, overwrite=True, save_anndata=True)
        >>> DISCOVR.load(folder).get_latent_representation().shape
        (200, 10)
        """
        storage.check_target(dir_path, overwrite)
        if save_anndata and self.adata is None:
            raise InputError("save_anndata=True: the model was loaded without data; leave it out.")
        attributes = {name: value for name, value in self._get_user_attributes() if name.endswith("_")}
        content = storage.encoded(
            {
                storage.STATE: storage.plain(self.module.state_dict(), "the module's state"),
                storage.VAR_NAMES: storage.plain(self.get_var_names(), "var_names"),
                storage.ATTRIBUTES: storage.plain(attributes, "the model"),
            },
            **(save_kwargs or {}),
        )
        writers: dict[str, Any] = {}
        if save_anndata:
            writers[f"{prefix or ''}{storage.DATA}"] = lambda path: self.adata.write_h5ad(path, **anndata_write_kwargs)
        writers[f"{prefix or ''}{storage.MODEL}"] = lambda path: storage.write_synced(path, content)
        storage.write_files(dir_path, writers, prefix)

    @classmethod
    def load(
        cls,
        dir_path: str | Path,
        adata: AnnData | Literal[False] | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        prefix: str | None = None,
    ) -> Self:
        """A saved model. Nothing that its file says is run; a file that is damaged is refused.

        Parameters
        ----------
        dir_path, prefix
            See :meth:`save`.
        adata
            Cells, set up as those of the training were; by default those saved with the model. False loads the model
            without data.
        accelerator, device
            See :meth:`scvi.model.SCVI.load`.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> from discovr_sc import DISCOVR
        >>> folder = mkdtemp()
        >>> model.save(folder, overwrite=True)
        >>> DISCOVR.load(folder, adata).is_trained
        True
        """
        if not (adata is None or adata is False or isinstance(adata, AnnData)):
            raise InputError(f"adata is a {type(adata).__name__}; give an AnnData, or False to load without data.")
        *_, place = parse_device_args(accelerator, device, return_device="torch", validate_single_device=True)
        found = storage.read_model(dir_path, prefix, device=place)
        attributes = found[storage.ATTRIBUTES]
        registry = attributes.pop("registry_")
        name = registry.get("model_name")
        if name != cls.__name__:
            raise InputError(f"{dir_path} holds a model of a different class; load it with {name}.load.")
        if adata is None:
            path = storage.check_data_file(dir_path, prefix)
            adata = anndata.read_h5ad(path) if path is not None else False
        if adata is not False:
            cls.setup_anndata(adata, source_registry=registry, **registry["setup_args"])
        problem = f"{dir_path} does not fit this version of discovr_sc"
        try:
            model = initialize_model(cls, adata if adata is not False else None, registry, attributes, None)
            model.module.load_state_dict(found[storage.STATE])
        except (RuntimeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{problem} ({error}); train the model anew.") from error
        model.to_device(place)
        model.module.eval()
        if adata is not False:
            model.validate(adata)
        return model

    @staticmethod
    def load_registry(dir_path: str | Path, prefix: str | None = None) -> dict[str, Any]:
        """The registry of a saved model: how its data were set up.

        Parameters
        ----------
        dir_path, prefix
            See :meth:`save`.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> from discovr_sc import DISCOVR
        >>> folder = mkdtemp()
        >>> model.save(folder, overwrite=True)
        >>> DISCOVR.load_registry(folder)["setup_args"]["condition_key"]
        'condition'
        """
        return storage.read_model(dir_path, prefix)[storage.ATTRIBUTES]["registry_"]

    @staticmethod
    def view_setup_args(dir_path: str | Path, prefix: str | None = None) -> None:
        """Print the arguments of ``setup_anndata`` of a saved model.

        Parameters
        ----------
        dir_path, prefix
            See :meth:`save`.
        """
        AnnDataManager.view_setup_method_args(StoredModel.load_registry(dir_path, prefix))

    @classmethod
    def convert_legacy_save(
        cls,
        dir_path: str | Path,
        output_dir_path: str | Path,
        overwrite: bool = False,
        prefix: str | None = None,
    ) -> None:
        """Convert a model that was saved with Python objects inside. Reading these can run any code: trust its maker.

        Parameters
        ----------
        dir_path, output_dir_path
            Folders of the saved model and of the converted one.
        overwrite, prefix
            See :meth:`save`.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> from discovr_sc import DISCOVR
        >>> old, new = mkdtemp(), mkdtemp()
        >>> model.save(old, overwrite=True)
        >>> DISCOVR.convert_legacy_save(old, new, overwrite=True)
        >>> DISCOVR.load(new, adata).is_trained
        True
        """
        storage.convert(dir_path, output_dir_path, prefix=prefix, overwrite=overwrite)
