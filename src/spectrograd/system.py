"""The process and its surroundings: optional packages, memory, files, Ctrl-C and thread pools.

Optional packages are imported when they are first needed; memory is measured by what the system reports;
Ctrl-C is noticed between the passes of a run; BLAS and OpenMP are limited to one thread where more would
compete with the library's own.
"""

from __future__ import annotations

import functools
import gc
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import _Hash

# --- Optional packages

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
    "anndata": "scverse",
    "h5py": "scverse",
}


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """The path behind all links; a link that leads to itself is bad input."""
    try:
        return Path(path).resolve()
    except RuntimeError:  # of Python before 3.13; later ones resolve as far as they can
        raise ValueError(f"{path}: this link leads to itself; remove it") from None


class MissingExtra(ImportError):
    """An optional package is not installed; the message says how to get it."""


def need(module: str, what: str) -> Any:
    """Import an optional module (``"pyarrow.parquet"``), or raise an error that says ``what`` needs it.

    Examples
    --------
    >>> need("pandas", "an edge table").__name__
    'pandas'
    """
    package = module.partition(".")[0]
    try:
        imported = import_module(module)
    except ImportError:
        raise MissingExtra(
            f"{what} needs the package {package!r}: pip install spectrograd[{_EXTRA_OF[package]}]"
        ) from None
    check_version(package, what)
    return imported


def check_version(package: str, what: str) -> None:
    """Raise an error where a package is older than the least version that the extras name.

    Nothing is checked of packages that are not installed, or not named.
    """
    least = _least_versions().get(package)
    installed = None if least is None else _installed_version(package)
    if least is not None and installed is not None and _release(installed) < _release(least):
        raise MissingExtra(
            f"{what} needs {package} {least} or later, and {installed} is installed: "
            f"pip install --upgrade '{package}>={least}'"
        )


@functools.cache
def _least_versions() -> dict[str, str]:
    """Package -> least version, from the metadata of this library; nothing where it is not installed."""
    try:
        required = requires("spectrograd") or []
    except PackageNotFoundError:
        return {}
    found = (re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in required)
    return {match[1].replace("-", "_"): match[2] for match in found if match}


@functools.cache
def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, leading[0].split("."))) if leading else ()


# --- Memory: of the machine, of the process, and of a part of a run

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *((?:[KMGT]i?)?B?)", re.IGNORECASE)
UNKNOWN_MACHINE_BYTES = 8e9  # assumed where the system does not report its memory
STATUS_FILE = Path("/proc/self/status")
RESET_FILE = Path("/proc/self/clear_refs")  # "5" resets the high-water mark of the resident size
HASH_CHUNK = 1 << 20  # bytes
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory(container_limits: Sequence[str] = CONTAINER_LIMITS) -> float:
    """Bytes of the machine, or of the container if that has fewer."""
    total = UNKNOWN_MACHINE_BYTES
    with suppress(AttributeError, ValueError, OSError):  # no such call, name or answer on this system
        total = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    for path in container_limits:
        with suppress(ValueError, OSError):  # "max", or no such file
            total = min(total, float(int(Path(path).read_text())))
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
    match = _SIZE.fullmatch(str(size).strip())
    if match is None or not 0 < float(match[1]) < math.inf:
        raise ValueError(f"{size!r} is no amount of memory: write for example 6GB, 512MB or 2GiB")
    unit = match[2].upper().removesuffix("B") + " "
    base = 1024 if "I" in unit else 1000
    return int(float(match[1]) * base ** " KMGT".index(unit[0]))


@dataclass
class Peak:
    """Bytes added to the resident size; None where they cannot be measured."""

    added: int | None = None


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure how far the resident size grows inside the block, by the high-water mark that Linux keeps."""
    peak = Peak()
    gc.collect()
    try:
        RESET_FILE.write_text("5")
        before = _status_bytes("VmRSS")
    except OSError:
        before = None
    try:
        yield peak
    finally:
        after = None if before is None else _status_bytes("VmHWM")
        if before is not None and after is not None:
            peak.added = max(0, after - before)


def _status_bytes(name: str) -> int | None:
    """A size in ``/proc/self/status``, which gives kibibytes."""
    for row in STATUS_FILE.read_text().splitlines():
        if row.startswith(name + ":"):
            return int(row.split()[1]) * 1024
    return None


def peak_resident_bytes() -> int | None:
    """Largest resident size of the process since its start; None where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --- Files


def hash_file(path: str | os.PathLike[str], digest: _Hash) -> None:
    """Feed the bytes of a file, which may be large, to a hash."""
    with open(path, "rb") as handle:
        while chunk := handle.read(HASH_CHUNK):
            digest.update(chunk)


# --- Ctrl-C at safe points: between the passes of a run, never inside a compiled kernel


@dataclass
class Interruption:
    """Whether Ctrl-C was ``requested``, and whether :func:`check` has yet to raise for it (``pending``)."""

    requested: bool = False
    pending: bool = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first Ctrl-C as a request; a second one interrupts at once."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = self.pending = True


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, raised at a safe point: state and files are consistent."""


_current: Interruption | None = None


@contextmanager
def defer_interrupts(*, terminate: bool = False) -> Iterator[Interruption]:
    """Let Ctrl-C wait for the next :func:`check` inside the block; a second one interrupts at once.

    The caller looks at ``requested`` afterwards. Only the main thread receives signals; a handler that
    other code has installed is left in place. ``terminate`` does the same for SIGTERM.
    """
    global _current
    if _current is not None and _in_main_thread():
        yield _current
        return
    # A run in the background of a shell ignores Ctrl-C, but can be asked to terminate.
    defaults: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    candidates = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)
    signals = [name for name in candidates if _in_main_thread() and signal.getsignal(name) is defaults[name]]
    if not signals:
        yield Interruption()
        return
    _current = interruption = Interruption()
    for name in signals:
        signal.signal(name, interruption.handle)
    try:
        yield interruption
    except SystemError as error:  # the second Ctrl-C hit a kernel
        if not interruption.requested:
            raise
        raise KeyboardInterrupt from error
    finally:
        for name in signals:
            signal.signal(name, defaults[name])
        _current = None


class OutOfTimeError(RuntimeError):
    """A pass was asked for after the time was over."""


_last_pass: ContextVar[float] = ContextVar("_last_pass", default=math.inf)


@contextmanager
def refuse_after(moment: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` at the first safe point inside after a moment of ``time.perf_counter``.

    The only way to stop a direct method, all of whose work is one step.
    """
    token = _last_pass.set(moment)
    try:
        yield
    finally:
        _last_pass.reset(token)


def check() -> None:
    """Raise :class:`Interrupted`, once, if Ctrl-C was pressed since the last safe point.

    After the moment of :func:`refuse_after` raise :class:`OutOfTimeError`.
    """
    if time.perf_counter() > _last_pass.get():
        raise OutOfTimeError
    if _current is not None and _current.pending and _in_main_thread():
        _current.pending = False
        raise Interrupted


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


# --- Thread pools of other libraries: BLAS and OpenMP


@functools.cache
def _libraries(kind: str) -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController().select(user_api=kind)


class _ProcessLimit:
    """Number of Python threads within :func:`one_thread`, and the limit of BLAS before the first of them."""

    lock = threading.Lock()
    n_threads = 0
    blas: Any = None


class _ThreadLimit(threading.local):
    """How deep this thread is within :func:`one_thread`: OpenMP has one limit per thread."""

    depth = 0
    openmp: Any = None


_thread_limit = _ThreadLimit()


class one_thread:
    """Limit BLAS and OpenMP to one thread: small matrices need no more, and idle threads slow the kernels.

    On a busy machine a Lanczos run takes a tenth of the time, a small k-means even less. BLAS has one
    limit for the whole process: the last Python thread to leave restores the limit before the first.
    Entering takes some 60 us, entering again inside next to nothing.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        if self.enabled:
            _enter()

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            _leave()


def _enter() -> None:
    if _thread_limit.depth == 0:
        with _ProcessLimit.lock:
            if _ProcessLimit.n_threads == 0:
                _ProcessLimit.blas = _libraries("blas").limit(limits=1)
            _ProcessLimit.n_threads += 1
        _thread_limit.openmp = _libraries("openmp").limit(limits=1)
    _thread_limit.depth += 1


def _leave() -> None:
    _thread_limit.depth -= 1
    if _thread_limit.depth > 0:
        return
    _thread_limit.openmp.restore_original_limits()
    with _ProcessLimit.lock:
        _ProcessLimit.n_threads -= 1
        if _ProcessLimit.n_threads == 0:
            _ProcessLimit.blas.restore_original_limits()
