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
import types
from pathlib import Path

import numba

from spectrograd.kernels.announcement import announce_compiling

# Full fastmath would break isfinite; these three keep NaN and infinity meaningful.
_FLAGS = {
    "cache": True,
    "nogil": True,
    "no_cfunc_wrapper": True,  # for kernels as arguments of kernels
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
announce_compiling()


def serial(function):
    """Compile a serial kernel."""
    return numba.njit(**_FLAGS)(function)


def shared(function):
    """Compile a serial kernel that other kernels call as well: part of them, for the reason of `inner`."""
    return numba.njit(forceinline=True, **_FLAGS)(function)


def inner(function):
    """Compile a function that only other kernels call; it may return what Python has no name for.

    Always part of its callers (``forceinline``): else there are two copies of it, its own and one within each
    kernel, optimised apart. A process that compiles both runs the one, a process that loads the kernel from
    disk has only the other, and sums that may be reordered (``reassoc``) differ in their last bits.
    """
    compiled = numba.njit(no_cpython_wrapper=True, forceinline=True, **_FLAGS)(function)
    compiled.for_kernels_only = True
    return compiled


def parallel(function):
    """Compile a kernel that is parallel over independent chunks.

    The same source is also compiled serially: ``kernel.serial`` is for work too small to be worth
    waking threads for. Without TBB only one Python thread at a time may enter the parallel form.
    """
    compiled = numba.njit(parallel=True, **_FLAGS)(_renamed(function, "_parallel"))

    @functools.wraps(function)
    def call(*args):
        if _on_tbb():
            return compiled(*args)
        with _one_at_a_time:
            return compiled(*args)

    call.parallel, call.serial = compiled, serial(_renamed(function, "_serial"))
    return call


def _renamed(function, suffix):
    """The same source under another name: numba's disk cache knows names, not flags."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__ + suffix)
    copy.__qualname__, copy.__module__ = function.__qualname__ + suffix, function.__module__
    copy.__doc__ = function.__doc__
    return copy


@functools.cache
def _layer_is_tbb() -> bool:
    return numba.threading_layer() == "tbb"


def _on_tbb() -> bool:
    try:
        return _layer_is_tbb()
    except ValueError:  # no parallel kernel has run yet
        return False
