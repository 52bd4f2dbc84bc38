"""What only torch can do: embeddings as tensors on a device, and networks that embed new points.

Importing this loads no torch; using it does (``pip install spectrograd[torch]``).
"""

from __future__ import annotations

from spectrograd.torch.parametric import ParametricSpectralEmbedding, embedding_tensor, keep_on_device

__all__ = ["ParametricSpectralEmbedding", "embedding_tensor", "keep_on_device"]
