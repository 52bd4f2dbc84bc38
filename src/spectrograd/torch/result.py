"""Results of the estimators as tensors."""

from __future__ import annotations

from typing import Any

from spectrograd.engines.torch_engine import found_device
from spectrograd.extras import need


def embedding_tensor(model: Any, device: str | None = None) -> Any:
    """The ``embedding_`` of a fitted estimator as a tensor, N x K.

    Parameters
    ----------
    model
        Any fitted estimator of this package.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``; None: that of the estimator's engine, the CPU for others.

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding, datasets
    >>> graph = datasets.make_block_model(300, 3, random_state=0).graph
    >>> model = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(graph)
    >>> tuple(embedding_tensor(model, "cpu").shape)  # doctest: +SKIP
    (300, 2)
    """
    torch = need("torch", "embedding_tensor")
    if device is None:
        kind, _, device = str(model.engine).partition(":")
        device = (device or None) if kind == "torch" else "cpu"
    return torch.as_tensor(model.embedding_, device=found_device(torch, device))
