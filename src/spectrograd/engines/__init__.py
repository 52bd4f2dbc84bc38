"""Engines say where a pass over the row blocks runs; solvers do not know which one they use."""

from __future__ import annotations

from spectrograd.engines.local import LocalEngine
from spectrograd.engines.numpy_engine import NumpyEngine
from spectrograd.engines.protocol import Engine

__all__ = ["Engine", "LocalEngine", "NumpyEngine", "make_engine"]


def make_engine(name: str = "auto", *, n_jobs: int | None = None) -> Engine:
    """The engine of that name; ``auto`` is ``local``, ``torch`` a card where there is one."""
    if name in ("auto", "local"):
        return LocalEngine(n_jobs)
    if name == "numpy":  # slow and plain, to compare with
        return NumpyEngine()
    if name == "torch" or name.startswith("torch:"):
        from spectrograd.engines.torch_engine import TorchEngine  # torch is loaded only where it is asked for

        return TorchEngine(name.partition(":")[2] or None, n_jobs=n_jobs)
    raise ValueError(f"engine={name!r} is not available in this release: use 'auto', 'local' or 'torch'")
