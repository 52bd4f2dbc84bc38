"""Engines say where a pass over the row blocks runs; solvers do not know which one they use."""

from __future__ import annotations

from spectrograd.engines.base import Engine
from spectrograd.engines.local import LocalEngine
from spectrograd.engines.numpy_engine import NumpyEngine
from spectrograd.notices import parameter

__all__ = ["Engine", "LocalEngine", "NumpyEngine", "make_engine", "on_cluster"]


def make_engine(name: object = "auto", *, n_jobs: int | None = None) -> Engine:
    """The engine of that name, or behind a ``dask.distributed.Client``.

    ``auto`` is ``local``, ``torch`` a card where there is one.
    """
    if name in ("auto", "local"):
        return LocalEngine(n_jobs)
    if name == "numpy":  # slow and plain, to compare with
        return NumpyEngine()
    if not isinstance(name, str) or on_cluster(name):
        from spectrograd.engines.dask.engine import DaskEngine

        return DaskEngine(name)
    if name.partition(":")[0] == "torch":
        from spectrograd.engines.torch_engine import TorchEngine

        return TorchEngine(name.partition(":")[2] or None, n_jobs=n_jobs)
    raise ValueError(
        f"{parameter('engine', name)} is not available in this release: use 'auto', 'local', 'torch', "
        "'torch:cuda', 'dask', 'dask:4' (processes on this machine) or 'dask:tcp://host:port'"
    )


def on_cluster(name: object) -> bool:
    """Whether :func:`make_engine` takes this for workers of a cluster: they open stores for themselves."""
    return not isinstance(name, str) or name.partition(":")[0] == "dask"
