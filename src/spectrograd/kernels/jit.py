"""Compilation of kernels by numba: its flags, its threading layers, and the announcement of it.

Compiling a kernel takes seconds, once on a machine. It is announced through the logger ``spectrograd``,
which writes to stderr unless a program has configured logging, so that a script that turns warnings into
errors goes on. Every kernel is decorated by this module, and by no other; serial kernels run side by side
on its threads.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numba
import numpy as np
from numba.core import event
from numpy.typing import DTypeLike

COMPILING = "compiling {}: some seconds, once on this machine"
EVENT = "numba:compile"  # not when a kernel is found in the cache on disk
# By the modules of the kernels: kernels of one kind are compiled in the same run, one after the other.
PRODUCTS = "products of sparse matrices"
BLOCKS = "products of blocks of vectors"
BATCHES = "mini-batches of edges"
FACTORISATION = "the sparse factorisation"
READING = "the reading of edge lists"
KINDS = {
    "spmm": PRODUCTS,
    "graph": PRODUCTS,
    "coarsening": PRODUCTS,
    "simd": BLOCKS,
    "multivector": BLOCKS,
    "nearest": BLOCKS,
    "minibatch": BATCHES,
    "sgd": BATCHES,
    "baselines": BATCHES,
    "ldl_ordering": FACTORISATION,
    "ldl_symbolic": FACTORISATION,
    "ldl_numeric": FACTORISATION,
    "text": READING,
    "edge_lists": READING,
}
OTHER = "kernels"


def kind_of(module: str) -> str | None:
    """What the kernels of a module are for; None where they are not ours."""
    home, _, inside = module.partition(".")
    if home != "spectrograd":
        return None
    return KINDS.get(inside.removeprefix("kernels.").partition(".")[0], OTHER)


class FirstCompilation(event.Listener):
    """Announces each kind of kernel once per process, when the first of that kind is compiled."""

    announced: ClassVar = set()  # kinds, in this process

    def on_start(self, event):
        """A kernel is about to be compiled, maybe one of ours."""
        # other libraries compile functions of no module
        kind = kind_of(event.data["dispatcher"].py_func.__module__ or "")
        if kind is not None and kind not in FirstCompilation.announced:
            FirstCompilation.announced.add(kind)
            logging.getLogger("spectrograd").warning(COMPILING.format(kind))

    def on_end(self, event):
        """It is compiled."""


def announce_compiling():
    """From now on, in this process."""
    event.register(EVENT, FirstCompilation())


# --- The one place that knows numba's flags, threading layers and their traps.

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
    waking threads for. Where a kernel sums, the last bits of its two forms may differ, so which of them runs
    must not depend on the number of threads. Without TBB only one Python thread at a time may enter the
    parallel form.
    """
    return _in_two_forms(function, serial_alone=False)


def parallel_rows(function):
    """Compile a parallel kernel whose rows have the same bits in either form; one thread runs the serial.

    The parallel form would hand the work to another thread and keep this one busy with waiting, which doubles
    the CPU time.
    """
    return _in_two_forms(function, serial_alone=True)


def _in_two_forms(function, serial_alone):
    compiled = numba.njit(parallel=True, **_FLAGS)(_copy_under_name(function, "_parallel"))

    @functools.wraps(function)
    def call(*args):
        if serial_alone and not has_several_threads():
            return call.serial(*args)
        if _on_tbb():
            return compiled(*args)
        with _one_at_a_time:
            return compiled(*args)

    call.parallel, call.serial = compiled, serial(_copy_under_name(function, "_serial"))
    return call


def _copy_under_name(function, suffix):
    """The same source under another name: numba's disk cache knows names, not flags."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__ + suffix)
    copy.__qualname__ = function.__qualname__ + suffix
    copy.__module__ = function.__module__
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


def read_only(array: np.ndarray | None, dtype: DTypeLike) -> np.ndarray:
    """A vector as kernels take it: one type for all of a number type, none at all is one without entries.

    Otherwise a kernel would be compiled for what may be written, for what may not, and for none.
    """
    view = np.empty(0, dtype) if array is None else np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


# --- Plain threads for serial kernels, which let go of Python's lock.

N_SHARES = 8  # more than threads, so that one who is late holds up nobody


def side_by_side(work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a serial kernel for every tuple of arguments, on as many threads as numba may use now.

    The results in order. Unlike a parallel kernel this compiles nothing more, and no thread waits while
    there is a job left.
    """
    left = deque(enumerate(jobs))
    results: list[Any] = [None] * len(jobs)

    def take_turns() -> None:
        while left:
            try:
                place, job = left.popleft()
            except IndexError:  # another thread was faster
                return
            results[place] = work(*job)

    n_helpers = min(numba.get_num_threads(), len(jobs)) - 1 if len(jobs) > 1 else 0
    helpers = [_pool().submit(take_turns) for _ in range(n_helpers)]
    take_turns()
    for helper in helpers:
        helper.result()
    return results


def share_rows(kernel: Callable[..., Any], n_rows: int, *given: Any) -> None:
    """Call ``kernel(first, last, *given)`` for shares of the rows; it must not matter how they are cut."""
    n_shares = max(N_SHARES, 2 * numba.get_num_threads())
    bounds = [n_rows * share // n_shares for share in range(n_shares + 1)]
    side_by_side(kernel, [(*share, *given) for share in pairwise(bounds)])


def has_several_threads() -> bool:
    """Whether numba may use more than one thread now."""
    return numba.config.NUMBA_NUM_THREADS > 1 and bool(numba.get_num_threads() > 1)


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, each made by another thread while its predecessor is in use, if there is another."""
    if not has_several_threads():
        yield from items
        return
    nothing = object()
    coming = _pool().submit(next, items, nothing)
    try:
        while (item := coming.result()) is not nothing:
            coming = _pool().submit(next, items, nothing)
            yield item
    finally:  # who stops early leaves no thread behind
        if not coming.cancel():
            wait([coming])


def in_order(work: Callable[[Any], Any], items: Iterator[Any]) -> Iterator[Any]:
    """Results of a function that lets go of Python's lock, in order; a few items are under way at a time."""
    coming: deque[Future[Any]] = deque()
    try:
        for item in items:
            coming.append(_pool().submit(work, item))
            if len(coming) > numba.get_num_threads():
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:  # who stops early leaves no thread behind
        wait([left for left in coming if not left.cancel()])


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "spectrograd")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of the threads
