"""Optional packages: imported when first needed, with a word on what to install when they are missing."""

from __future__ import annotations

import functools
import gc
import math
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

_EXTRA_OF = {
    "networkx": "interop",
    "igraph": "interop",
    "pandas": "interop",
    "polars": "interop",
    "pyarrow": "interop",
    "zstandard": "interop",
    "pyamg": "amg",
    "textblob": "reviews",
    "duckdb": "store",
    "distributed": "dask",
    "fsspec": "dask",
    "torch": "torch",
}


class MissingExtra(ImportError):
    """An optional package is not installed; the message says how to get it."""


def need(module: str, what: str) -> Any:
    """Import an optional module (``"pyarrow.parquet"``), or say that ``what`` needs it.

    Examples
    --------
    >>> need("pandas", "an edge table").__name__
    'pandas'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(
            f"{what} needs the package {package!r}: pip install spectrograd[{_EXTRA_OF[package]}]"
        ) from None


# --- How much memory there is, and how much a piece of work took at its peak.

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *((?:[KMGT]i?)?B?)", re.IGNORECASE)
UNKNOWN = 8e9  # bytes, where the system does not tell
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory(container_limits: Sequence[str] = CONTAINER_LIMITS) -> float:
    """Bytes of the machine, or of the container if that has fewer."""
    total = UNKNOWN
    with suppress(AttributeError, ValueError, OSError):  # no such call, name or answer on this system
        total = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    for place in container_limits:
        with suppress(ValueError, OSError):  # "max", or no such file
            total = min(total, float(int(Path(place).read_text())))
    return total


def as_bytes(size: int | str | None) -> int | None:
    """Bytes that a number or a text such as ``"6GB"``, ``"512 MB"`` or ``"1.5GiB"`` means.

    Examples
    --------
    >>> as_bytes("6GB"), as_bytes("1.5 KiB"), as_bytes(4096)
    (6000000000, 1536, 4096)
    """
    if size is None:
        return None
    found = _SIZE.fullmatch(str(size).strip())
    if found is None or not 0 < float(found[1]) < math.inf:
        raise ValueError(f"{size!r} is no amount of memory: write for example 6GB, 512MB or 2GiB")
    unit = found[2].upper().removesuffix("B") + " "
    return int(float(found[1]) * (1024 if "I" in unit else 1000) ** " KMGT".index(unit[0]))


@dataclass
class Peak:
    """Bytes above what was in use before; None where it cannot be measured."""

    added: int | None = None


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure how far the process grows inside; needs Linux, whose kernel can reset its high-water mark."""
    peak = Peak()
    gc.collect()
    try:
        RESET.write_text("5")
        before = _field("VmRSS")
    except OSError:
        before = None
    try:
        yield peak
    finally:
        after = None if before is None else _field("VmHWM")
        if before is not None and after is not None:
            peak.added = max(0, after - before)


def _field(name: str) -> int | None:
    for row in STATUS.read_text().splitlines():
        if row.startswith(name + ":"):
            return int(row.split()[1]) * 1024
    return None


# --- Ctrl-C at safe points: noticed between the passes of a run, never inside a compiled kernel.


@dataclass
class Interruption:
    """Whether Ctrl-C was ``requested``, and whether somebody still has to be told (``pending``)."""

    requested: bool = False
    pending: bool = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C is a request, the second one is an order."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = self.pending = True


class Interrupted(KeyboardInterrupt):
    """Raised at a safe point, where everything is whole."""


_current: Interruption | None = None


@contextmanager
def deferred(*, terminate: bool = False) -> Iterator[Interruption]:
    """Within, Ctrl-C waits for the next :func:`check`; a second one interrupts at once.

    Whoever opens this looks at ``requested`` afterwards. Only the main thread gets signals, and a handler
    that somebody else has installed stays in charge. ``terminate`` does the same for SIGTERM.
    """
    global _current
    if _current is not None and _in_main_thread():
        yield _current
        return
    # A run in the background of a shell ignores Ctrl-C, but can be asked to terminate.
    defaults: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    wanted = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)
    ours = [name for name in wanted if _in_main_thread() and signal.getsignal(name) is defaults[name]]
    if not ours:
        yield Interruption()
        return
    _current = interruption = Interruption()
    for name in ours:
        signal.signal(name, interruption.handle)
    try:
        yield interruption
    except SystemError as error:  # the second Ctrl-C hit a kernel
        if not interruption.requested:
            raise
        raise KeyboardInterrupt from error
    finally:
        for name in ours:
            signal.signal(name, defaults[name])
        _current = None


def check() -> None:
    """A safe point: raises :class:`Interrupted`, once, where Ctrl-C was pressed since."""
    if _current is not None and _current.pending and _in_main_thread():
        _current.pending = False
        raise Interrupted


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


# --- The thread pools of other libraries: BLAS and OpenMP.


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
