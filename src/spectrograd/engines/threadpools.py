"""The thread pools of other libraries: BLAS and OpenMP."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def _libraries(kind: str) -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController().select(user_api=kind)


class _Limited:
    """How many threads of ours are within :func:`one_thread`, and what the first of them found."""

    lock = threading.Lock()
    n_threads = 0
    blas: Any = None


class _Own(threading.local):
    """How deep this thread is within :func:`one_thread`: OpenMP has a limit for each."""

    depth = 0
    openmp: Any = None


_own = _Own()


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread: small matrices need no more, and waiting threads fight with ours.

    On a busy machine this is ten times less time for a Lanczos run, and more for a small k-means. BLAS has
    one limit for the whole process: the last of our threads to leave gives back what the first one found.
    Within itself it costs next to nothing (else some 60 us).
    """
    if not wanted:
        yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    if _own.depth == 0:
        with _Limited.lock:
            if _Limited.n_threads == 0:
                _Limited.blas = _libraries("blas").limit(limits=1)
            _Limited.n_threads += 1
        _own.openmp = _libraries("openmp").limit(limits=1)
    _own.depth += 1


def _leave() -> None:
    _own.depth -= 1
    if _own.depth > 0:
        return
    _own.openmp.restore_original_limits()
    with _Limited.lock:
        _Limited.n_threads -= 1
        if _Limited.n_threads == 0:
            _Limited.blas.restore_original_limits()
