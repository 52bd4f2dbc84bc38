"""What each extra adds to an installation: packages, and megabytes to download, as pip resolves them now."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tomllib
import urllib.request
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlparse

from benchmarks.harness import table

ROOT = Path(__file__).parents[1]
DEVELOPMENT = ("docs", "bench", "test")


def run() -> str:
    """The table of ``docs/install.md``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    core = resolved(project["dependencies"])
    rows = [("(none)", len(core), megabytes(core), largest(core))]
    for extra in optional:
        if extra not in DEVELOPMENT:
            needed = resolved([*project["dependencies"], *requirements(optional, extra)])
            added = {name: address for name, address in needed.items() if name not in core}
            rows.append((f"`{extra}`", len(added), megabytes(added), largest(added)))
    where = f"{platform.system()} on {platform.machine()}"
    text = f"Wheels to download on {where}, beyond those of the line `(none)`:"
    return f"{text}\n\n{table(('extra', 'packages', 'MB', 'the largest'), rows)}"


def requirements(optional: dict[str, list[str]], extra: str) -> list[str]:
    """What an extra asks for, with the extras that it names."""
    found = []
    for requirement in optional[extra]:
        if requirement.startswith("spectrograd["):
            names = requirement.removeprefix("spectrograd[").removesuffix("]")
            found += [inner for name in names.split(",") for inner in requirements(optional, name)]
        else:
            found.append(requirement)
    return found


def resolved(wanted: list[str]) -> dict[str, str]:
    """Name -> address of the wheel, of all that pip would install into an empty environment."""
    options = ("--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", "-")
    call = [sys.executable, "-m", "pip", "install", *options, *wanted]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    items = json.loads(done.stdout)["install"]
    return {item["metadata"]["name"]: item["download_info"]["url"] for item in items}


def megabytes(wheels: dict[str, str]) -> str:
    """Of all of them."""
    return f"{sum(size(address) for address in wheels.values()) / 1e6:.0f}"


def largest(wheels: dict[str, str]) -> str:
    """The names of the three largest."""
    ordered = sorted(wheels, key=lambda name: -size(wheels[name]))
    return ", ".join(ordered[:3])


@cache
def size(address: str) -> int:
    """Bytes of a wheel."""
    parts = urlparse(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).stat().st_size
    request = urllib.request.Request(address, method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.headers["Content-Length"])
