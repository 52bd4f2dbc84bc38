"""Plain threads for serial kernels, which let go of Python's lock."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numba

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
    bounds = [n_rows * share // N_SHARES for share in range(N_SHARES + 1)]
    side_by_side(kernel, [(*share, *given) for share in pairwise(bounds)])


def several() -> bool:
    """Whether numba may use more than one thread now."""
    return bool(numba.get_num_threads() > 1)


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, each made by another thread while its predecessor is in use, if there is another."""
    if not several():
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
