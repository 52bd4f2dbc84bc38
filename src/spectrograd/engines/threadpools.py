"""The thread pools of other libraries: BLAS and OpenMP."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Keep BLAS and OpenMP to one thread: small matrices need no more, and waiting threads fight with ours.

    On a busy machine this is ten times less time for a Lanczos run, and more for a small k-means.
    """
    if not wanted:
        yield
        return
    with _libraries().limit(limits=1):
        yield
