"""How much memory there is: what may be tried depends on it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

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
