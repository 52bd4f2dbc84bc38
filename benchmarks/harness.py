"""What every benchmark needs: timing that ignores noise, tables, and a note of the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

# Public data, a folder per set; what is not there is left out.
DATA = Path(os.environ.get("SPECTROGRAD_DATA", Path(__file__).parents[2] / "shared" / "data"))


def best_of(function: Callable[[], Any], repeats: int = 7) -> float:
    """Shortest of several runs in seconds: on a shared machine noise only adds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds of one call, and what it returned."""
    began = time.perf_counter()
    value = function(*arguments)
    return time.perf_counter() - began, value


def seconds_per_pass(graph: Any, n_columns: int = 8) -> float:
    """One product of the Laplacian with so many columns, float32: the unit of pass equivalents."""
    import numpy as np

    from spectrograd.operators.laplacian import laplacian

    operator = laplacian(graph).astype(np.float32)
    U = np.ones((graph.n_nodes, n_columns), np.float32)
    _ = operator @ U
    times = []
    for _ in range(5):
        began = time.perf_counter()
        _ = operator @ U
        times.append(time.perf_counter() - began)
    return median(times)


def memory_bandwidth(n_numbers: int = 1 << 24) -> float:
    """Bytes per second of the triad ``a = b + s c`` (McCalpin's STREAM), by all threads numba may use."""
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def triad(a: Any, b: Any, c: Any, s: float) -> None:
        for i in numba.prange(len(a)):
            a[i] = b[i] + s * c[i]

    a, b, c = (np.ones(n_numbers) for _ in range(3))  # far more than caches hold
    triad(a, b, c, 3.0)  # compiles
    return 3 * a.nbytes / best_of(lambda: triad(a, b, c, 3.0))


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def machine() -> str:
    """One line that says where, with what and beside how many other jobs the figures were measured."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "numba"))
    day = datetime.now(UTC).date().isoformat()
    where = f"{os.cpu_count()} cores ({_processor()}), load average {os.getloadavg()[0]:.0f}"
    return f"{day}, {where}, Python {platform.python_version()}, {packages}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            names = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
