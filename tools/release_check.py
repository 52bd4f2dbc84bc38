"""Check what would be uploaded: ``make release-check`` or ``python tools/release_check.py``.

Builds the source distribution and the wheel, checks them, installs the wheel into an empty environment for
every supported Python on the machine and uses it there, resolves each extra at its lower bounds, and prints
one table. Exits with 1 if any check fails. Needs a package index; nothing is uploaded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SMOKE = """
import spectrograd
from spectrograd import SpectralClustering, datasets, metrics

data = datasets.make_block_model(1_000, 4, random_state=0)
model = SpectralClustering(4, random_state=0).fit(data.graph)
assert model.converged_, model.certificate_.sentence
assert metrics.nmi(data.labels, model.labels_) > 0.9
print(spectrograd.__version__)
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    check: str
    verdict: str
    detail: str
    seconds: float


class CheckFailedError(Exception):
    """A check failed; the message is the detail in the table."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command and return its output; its last line is the message if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise CheckFailedError(lines[-1])
    return done.stdout


def attempt(check: str, action: Callable[[], str]) -> Row:
    """Run one check; a failure becomes a row, too."""
    started = time.monotonic()
    try:
        detail = action()
        verdict = "ok"
    except CheckFailedError as error:
        detail = str(error)
        verdict = "FAILED"
    row = Row(check, verdict, detail, time.monotonic() - started)
    print(f"{row.verdict:7} {row.check}: {row.detail}", file=sys.stderr, flush=True)
    return row


def make_environment(python: str, folder: Path) -> Path:
    """Make an empty virtual environment and return its interpreter."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


# --- versions and metadata ------------------------------------------------------------------------------


def settings() -> dict[str, dict[str, object]]:
    """The table ``[project]`` of ``pyproject.toml``."""
    project: dict[str, dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def stated_versions() -> dict[str, str]:
    """File -> the version it states; of the changelog the topmost that has a number."""
    patterns = {
        "pyproject.toml": r'^version = "([^"]+)"',
        "src/spectrograd/__init__.py": r'^__version__ = "([^"]+)"',
        "CITATION.cff": r"^version: (\S+)",
        "CHANGELOG.md": r"^## \[(\d[^\]]*)\]",
    }
    found = {}
    for name, pattern in patterns.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        found[name] = match[1] if match else "none"
    return found


def check_versions() -> str:
    """All files state the same version."""
    versions = stated_versions()
    if len(set(versions.values())) > 1:
        raise CheckFailedError(", ".join(f"{name} {version}" for name, version in versions.items()))
    return versions["pyproject.toml"]


def address_row() -> Row:
    """Whether the package says where its sources are; not a failure, but to be decided before uploading."""
    urls = settings().get("urls", {})
    address = urls.get("Repository")
    detail = str(address) if address else "[project.urls] has no Repository"
    return Row("address of the sources", "ok" if address else "OPEN", detail, 0.0)


def figures_row() -> Row:
    """Whether the measured figures are those of this code; not a failure, but to be decided, too."""
    program = "from benchmarks.records import stale_suites; print(*(suite.name for suite in stale_suites()))"
    stale = run(sys.executable, "-c", program).split()
    detail = f"python -m benchmarks {' '.join(stale)} --write" if stale else "measured on this code"
    return Row("figures", "OPEN" if stale else "ok", detail, 0.0)


# --- distributions --------------------------------------------------------------------------------------


def build_and_check(tools: Path, folder: Path) -> Iterator[Row]:
    """Build wheel and source distribution, and check them."""
    yield attempt(
        "tools: build, twine",
        lambda: run(tools, "-m", "pip", "install", "-q", "build", "twine") or "installed",
    )
    yield attempt("build", lambda: build(tools, folder))
    files = sorted(folder.glob("spectrograd-*"))
    yield attempt("twine check", lambda: twine_check(tools, files))


def build(tools: Path, folder: Path) -> str:
    """The source distribution from the checkout, the wheel from the source distribution."""
    run(tools, "-m", "build", "--outdir", folder)
    sizes = (f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(folder.iterdir()))
    return ", ".join(sizes)


def twine_check(tools: Path, files: list[Path]) -> str:
    """Metadata and README are what an index takes."""
    if len(files) != 2:
        raise CheckFailedError(f"expected a wheel and a source distribution, found {len(files)} files")
    run(tools, "-m", "twine", "check", "--strict", *files)
    return "metadata and README render"


# --- installed ------------------------------------------------------------------------------------------


def runs(python: str) -> bool:
    """Whether that interpreter starts; a shim may be there without one."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def interpreters() -> dict[str, str | None]:
    """Version -> command of the interpreter, on the path or of pyenv; None where there is none."""
    found: dict[str, str | None] = {}
    for version in PYTHONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        commands = [shutil.which(f"python{version}"), *map(str, kept)]
        found[version] = next((command for command in commands if command and runs(command)), None)
    return found


def check_installed(python: str, wheel: Path, folder: Path) -> str:
    """Install the wheel alone into an empty environment; import, fit, and the demo of the command line."""
    interpreter = make_environment(python, folder / "env")
    run(interpreter, "-m", "pip", "install", "-q", "--only-binary=:all:", wheel)
    version = run(interpreter, "-I", "-c", SMOKE, cwd=folder).strip()
    run(folder / "env" / "bin" / "spectrograd", "demo", cwd=folder)
    return f"{version}: import, fit, demo"


# --- lower bounds ---------------------------------------------------------------------------------------


def lower_bounds(extra: str | None) -> list[str]:
    """Requirements of the package and of one extra, each pinned to its lower bound."""
    project = settings()
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    pending = [*project["dependencies"], *(optional[extra] if extra else [])]
    pinned = []
    while pending:
        requirement = pending.pop()
        own = re.fullmatch(r"spectrograd\[(.*)\]", requirement)
        if own:
            for name in own[1].split(","):
                pending.extend(optional[name])
        else:
            pinned.append(requirement.replace(">=", "=="))
    return sorted(set(pinned))


def check_bounds(python: Path, extra: str | None) -> str:
    """Resolve the lower bounds together, as wheels, without installing."""
    pinned = lower_bounds(extra)
    options = ("--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:")
    run(python, "-m", "pip", "install", *options, *pinned)
    return f"{len(pinned)} requirements"


# --- the table ------------------------------------------------------------------------------------------


def checks(folder: Path, extras: list[str]) -> Iterator[Row]:
    """All rows, in order."""
    yield attempt("one version everywhere", check_versions)
    yield address_row()
    yield figures_row()
    tools = make_environment(sys.executable, folder / "tools")
    yield from build_and_check(tools, folder / "dist")
    wheel = next((folder / "dist").glob("*.whl"), None)
    found = interpreters()
    for version, python in found.items():
        if python is None or wheel is None:
            reason = "no such Python on this machine" if python is None else "no wheel"
            yield Row(f"Python {version}", "not run", reason, 0.0)
            continue
        place = folder / version
        place.mkdir()
        yield attempt(f"Python {version}", lambda p=python, f=place: check_installed(p, wheel, f))
    lowest = next((python for python in found.values() if python), sys.executable)
    resolver = make_environment(lowest, folder / "bounds")
    yield attempt("lower bounds", lambda: check_bounds(resolver, None))
    for extra in extras:
        yield attempt(f"lower bounds [{extra}]", lambda name=extra: check_bounds(resolver, name))


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| check | result | seconds | |", "|---|---|---|---|"]
    lines += [f"| {row.check} | {row.verdict} | {row.seconds:.0f} | {row.detail} |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Run all checks, print the table, and return 1 if one failed."""
    every = list(settings()["optional-dependencies"])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", nargs="*", default=every, help="extras whose lower bounds are resolved")
    parser.add_argument("--keep", type=Path, help="folder for the two distributions that were built")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="release-check-") as name:
        folder = Path(name)
        (folder / "dist").mkdir()
        rows = list(checks(folder, options.extras))
        if options.keep:
            shutil.copytree(folder / "dist", options.keep, dirs_exist_ok=True)
    print(table(rows))
    return int(any(row.verdict == "FAILED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
