"""How much memory there is, and how much a piece of work took at its peak."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
    if found is None or not float(found[1]) > 0:
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
