"""Inference from latents that are kept with minified data, in place of counts."""

from collections.abc import Sequence

import torch
from scvi import REGISTRY_KEYS
from scvi.module.base import BaseMinifiedModeModuleClass, auto_move_data
from torch import Tensor
from torch.distributions import Distribution, Normal

from discovr_sc.module.evidence import conditions_of
from discovr_sc.module.gaussians import draw
from discovr_sc.module.noise import CellNoise


class MinifiedMixin(BaseMinifiedModeModuleClass):
    """Means and variances of z and w, side by side in scvi-tools' fields of one latent."""

    def _cached_inference_input(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        y, known = conditions_of(tensors)
        return {
            "qzm": tensors[REGISTRY_KEYS.LATENT_QZM_KEY],
            "qzv": tensors[REGISTRY_KEYS.LATENT_QZV_KEY],
            "y": y,
            "known": known,
        }

    def _cached_inference(
        self,
        qzm: Tensor,
        qzv: Tensor,
        y: Tensor,
        n_samples: int = 1,
        use_mean: bool = False,
        generator: torch.Generator | CellNoise | None = None,
    ) -> dict[str, Tensor | Distribution]:
        """See :meth:`DisentangledModule._regular_inference`."""
        outputs: dict[str, Tensor | Distribution] = {"y": y}
        sizes = [self.n_latent_z, self.n_latent_w]
        for latent, loc, variance in zip("zw", qzm.split(sizes, -1), qzv.split(sizes, -1), strict=True):
            q = Normal(loc, variance.sqrt(), validate_args=False)
            outputs |= {f"q{latent}": q, latent: draw(q, n_samples, use_mean, generator)}
        return outputs

    @torch.inference_mode()
    @auto_move_data
    def latent_moments(self, tensors: dict[str, Tensor], latents: Sequence[str]) -> dict[str, tuple[Tensor, Tensor]]:
        """See :meth:`EvidenceMixin.latent_moments`."""
        if self.minified_data_type is None:
            return super().latent_moments(tensors, latents)
        q = self.inference(**self._cached_inference_input(tensors), use_mean=True)
        return {latent: (q[f"q{latent}"].loc, q[f"q{latent}"].variance) for latent in latents}
