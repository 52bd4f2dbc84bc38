"""Results of the estimators as tensors."""

from __future__ import annotations

from typing import Any, TypeVar

from spectrograd.engines.device_tall import DeviceTall
from spectrograd.engines.torch_engine import found_device
from spectrograd.extras import need

ModelT = TypeVar("ModelT")


def keep_on_device(model: ModelT) -> ModelT:
    """Ask an estimator to leave the embedding of its next fits on the engine's device, too.

    :func:`embedding_tensor` then gives that very tensor, which has never been on the host. It takes
    ``8 N K`` bytes there for as long as the model lives. ``engine=`` must be one of torch's.

    Examples
    --------
    >>> from spectrograd import SpectralEmbedding
    >>> model = keep_on_device(SpectralEmbedding(2, engine="torch"))
    """
    if not str(getattr(model, "engine", None)).startswith("torch"):
        raise ValueError(
            f"engine={getattr(model, 'engine', None)!r} has no device to keep tensors on: use 'torch', "
            "'torch:cuda' or 'torch:cpu'"
        )
    model._keeps_tall = True  # type: ignore[attr-defined]
    return model


def embedding_tensor(model: Any, device: str | None = None) -> Any:
    """The ``embedding_`` of a fitted estimator as a tensor, N x K; other libraries take it by DLPack.

    Parameters
    ----------
    model
        Any fitted estimator of this package. One that was asked to (:func:`keep_on_device`) has it on its
        device; the ``embedding_`` of others is copied there from the host.
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
    kept = getattr(model, "_tall", None)
    if isinstance(kept, DeviceTall):
        tensor = kept.tensor[:, kept.shape[1] - model.embedding_.shape[1] :]  # without the constant
        if model._rotation is not None:
            tensor = tensor @ tensor.new_tensor(model._rotation)
        where = tensor.device if device is None else found_device(torch, device)
        return tensor.to(where, getattr(torch, model.embedding_.dtype.name))
    if device is None:
        kind, _, device = str(model.engine).partition(":")
        device = (device or None) if kind == "torch" else "cpu"
    return torch.as_tensor(model.embedding_, device=found_device(torch, device))
