"""Splitting cells into training, validation and test sets."""

from __future__ import annotations

from scvi.dataloaders import DataSplitter


class Splitter(DataSplitter):
    """scvi-tools' splitter, which may also leave the validation set empty while validation is asked for."""

    def val_dataloader(self):
        """Loader of the validation cells; none where there are no such cells."""
        return [] if len(self.val_idx) == 0 else super().val_dataloader()
