"""The examples run, the documentation's Python runs, and every name it maps an equation to exists."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "adr").glob("*.md"))]
NOT_RUN = "<!-- not run -->"


def python_blocks(text):
    """Line number and code of each Python block that is to be run."""
    lines = text.splitlines()
    blocks, begun = [], None
    for number, line in enumerate(lines):
        if begun is None and line.strip() == "```python":
            begun = number
        elif begun is not None and line.strip() == "```":
            if begun == 0 or lines[begun - 1].strip() != NOT_RUN:
                blocks.append((begun + 1, "\n".join(lines[begun + 1 : number]) + "\n"))
            begun = None
    assert begun is None, f"the block of line {begun} does not end"
    return blocks


def runnable_blocks():
    for page in PAGES:
        for line, code in python_blocks(page.read_text(encoding="utf-8")):
            yield pytest.param(code, id=f"{page.name}:{line}")


def equation_map():
    """Equation number -> names of the functions, from the table of docs/method.md."""
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", text, flags=re.MULTILINE)
    cells = {int(number): rest.rsplit("|", 1)[1] for number, rest in rows}
    return {number: re.findall(r"`([a-z_]+(?:\.\w+)+)`", cell) for number, cell in cells.items()}


def find(name):
    """The object of a dotted name below spectrograd: modules as far as they go, then attributes."""
    found, parts = importlib.import_module("spectrograd"), name.split(".")
    path = "spectrograd"
    while parts:
        try:
            found = importlib.import_module(f"{path}.{parts[0]}")
        except ModuleNotFoundError:
            break
        path += "." + parts.pop(0)
    for part in parts:
        found = getattr(found, part)
    return found


def run(arguments, folder):
    sources = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_prints(path, tmp_path):
    done = run([str(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40


@pytest.mark.parametrize("code", list(runnable_blocks()))
def test_block_of_the_documentation_runs(code, tmp_path):
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_there_is_something_to_run():
    assert {path.name for path in EXAMPLES} >= {"quickstart.py", "multilayer.py", "add_a_solver.py"}
    for page in ("README.md", "docs/method.md", "docs/add_a_solver.md"):
        assert python_blocks((ROOT / page).read_text(encoding="utf-8")), page


def test_blocks_marked_as_not_run_are_skipped():
    text = f"a\n```python\n1\n```\n{NOT_RUN}\n```python\n2\n```\n```bash\n3\n```\n"
    assert python_blocks(text) == [(2, "1\n")]


def test_quoted_example_is_the_example():
    page = (ROOT / "docs" / "add_a_solver.md").read_text(encoding="utf-8")
    quoted = python_blocks(page)[0][1]
    assert quoted == (ROOT / "examples" / "add_a_solver.py").read_text(encoding="utf-8")


def test_every_equation_of_the_paper_is_mapped():
    mapped = equation_map()
    assert sorted(mapped) == list(range(1, 23))
    assert all(mapped.values())


@pytest.mark.parametrize("number", range(1, 23))
def test_functions_of_an_equation_exist(number):
    for name in equation_map()[number]:
        assert find(name) is not None, name


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        find("laplacian.no_such_function")


def test_readme_names_every_solver():
    registry = find("solvers").REGISTRY
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(registry) | {"auto"} == set(re.findall(r"^\| `([a-z-]+)`", readme, flags=re.MULTILINE))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [x for x in targets if "://" not in x and not (page.parent / x).exists()]
    assert not missing
