"""How much memory there is: what may be tried depends on it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?) *((?:[KMGT]i?)?B?)", re.IGNORECASE)
UNKNOWN = 8e9  # bytes, where the system does not tell
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> float:
    """Bytes of the machine, or of the container if that has fewer."""
    total = UNKNOWN
    with suppress(AttributeError, ValueError, OSError):  # no such call, name or answer on this system
        total = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    for place in CONTAINER_LIMITS:
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
    unit = found[2].upper()
    return int(float(found[1]) * (1024 if "I" in unit else 1000) ** " KMGT".index((unit + " ")[0].replace("B", " ")))
