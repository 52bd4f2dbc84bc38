"""The one place that knows numba's flags, threading layers and their traps.

``workqueue`` aborts the process when two Python threads enter parallel kernels at once, and GNU
OpenMP dies after a fork. So: TBB where its wheel is installed, else workqueue behind a lock.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from pathlib import Path

import numba

# Full fastmath would break isfinite; these three keep NaN and infinity meaningful.
_FLAGS = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "reassoc"},
}
_one_at_a_time = threading.RLock()


def _prefer_safe_layer() -> None:
    if "NUMBA_THREADING_LAYER" in os.environ or "NUMBA_THREADING_LAYER_PRIORITY" in os.environ:
        return
    numba.config.THREADING_LAYER_PRIORITY = ["tbb", "workqueue", "omp"]
    library = Path(sys.prefix) / "lib" / "libtbb.so.12"
    if library.exists():  # the wheel puts it where the loader does not look
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


_prefer_safe_layer()


def serial(function):
    """Compile a serial kernel."""
    return numba.njit(**_FLAGS)(function)


def parallel(function):
    """Compile a kernel that is parallel over independent chunks.

    The same source is also compiled serially: ``kernel.serial`` is for work too small to be worth
    waking threads for. Without TBB only one Python thread at a time may enter the parallel form.
    """
    compiled = numba.njit(parallel=True, **_FLAGS)(function)

    @functools.wraps(function)
    def call(*args):
        if _on_tbb():
            return compiled(*args)
        with _one_at_a_time:
            return compiled(*args)

    call.serial = numba.njit(**_FLAGS)(function)
    return call


@functools.cache
def _layer_is_tbb() -> bool:
    return numba.threading_layer() == "tbb"


def _on_tbb() -> bool:
    try:
        return _layer_is_tbb()
    except ValueError:  # no parallel kernel has run yet
        return False
