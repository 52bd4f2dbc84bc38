"""Every dotted name and file path that a page cites exists; lists of packages are those of the contract.

Decisions (``docs/adr``) and the changelog stay as they were written and are not checked.
"""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "spectrograd"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "methods").glob("*.md")),
]
PAGES.remove(ROOT / "docs" / "changelog.md")
MODULES = {path.stem for path in PACKAGE.iterdir() if path.stem != "__pycache__" and "__" not in path.stem}
FILES = r"csv|npz|npy|store|parquet|toml|html|json|txt|py|md|run|mtx|gz|svg|png"
OF_OTHERS = {
    "graph.matrix",
    "graph.recall",
    "graph.names",
    "graph.knn_recall",
    "torch.use_deterministic_algorithms",
}


def text_of(page):
    return page.read_text(encoding="utf-8")


def code_spans(page):
    """Inline code of a page, blocks of code left out."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def dotted_names(page):
    """Names such as ``solvers.loop.solve``, without the leading ``spectrograd.``."""
    for span in code_spans(page):
        words = re.match(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", span)
        if not words or re.search(rf"\.(?:{FILES})$", words[0]) or words[0] in OF_OTHERS:
            continue
        package, name = words[0].split(".", 1)
        if package == "spectrograd":
            yield name
        elif package in MODULES:
            yield words[0]


def paths(page):
    """Paths such as ``solvers/loop.py`` or ``src/spectrograd/cli``; files that commands write are no code."""
    for span in code_spans(page):
        is_file = re.fullmatch(r"[\w./]*\w+/[\w./]*\.(?:py|md|toml|ipynb|yml)", span)
        if is_file or re.fullmatch(r"(?:src|tests|docs|benchmarks|examples)/[\w./-]*", span):
            yield span


def find(name):
    """The object of a dotted name below spectrograd: modules as far as they go, then attributes."""
    path = "spectrograd"
    found = importlib.import_module(path)
    parts = name.split(".")
    while parts:
        try:
            found = importlib.import_module(f"{path}.{parts[0]}")
        except ModuleNotFoundError:
            break
        path += "." + parts.pop(0)
    for part in parts:
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[part] if part in fields else getattr(found, part)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_dotted_names_exist(page):
    missing = []
    for name in dotted_names(page):
        try:
            find(name)
        except AttributeError:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_imports_of_blocks_exist(page):
    """Also of blocks that are not run."""
    for line in re.findall(r"^from spectrograd([\w.]*) import ([\w, ]+)", text_of(page), flags=re.MULTILINE):
        for name in line[1].split(","):
            assert find(f"{line[0]}.{name.strip()}".lstrip("."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_exist(page):
    below = (ROOT, PACKAGE, ROOT / "docs", page.parent)
    missing = [path for path in paths(page) if not any((folder / path).exists() for folder in below)]
    missing = [path for path in missing if "my_" not in path and "sklearn/" not in path]
    assert not missing


def test_names_and_paths_are_found_and_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`solvers.loop.solve` `spectrograd.no_such` `graph.csv`\n\n`solvers/loop.py` `src/nowhere/`\n"
    )
    assert list(dotted_names(page)) == ["solvers.loop.solve", "no_such"]
    assert list(paths(page)) == ["solvers/loop.py", "src/nowhere/"]
    with pytest.raises(AttributeError):
        find("no_such")


def contract():
    """Package -> its one-line description, from the import contract of pyproject.toml, in its order."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = text[text.index("layers = [") :].split("\n]")[0]
    return re.findall(r'^\s+"([\w :|]+)",\s*(?:# (.*))?$', layers, flags=re.MULTILINE)


def test_the_contract_is_read_whole():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert [names for names, _ in contract()] == layers
    assert all(description for _, description in contract())


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_list_of_packages_is_that_of_the_contract(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([\w :|\\]+)` \| (.*) \|$", text.split("<!-- packages -->")[1], flags=re.MULTILINE
    )
    assert [(names.replace("\\|", "|"), description) for names, description in rows] == contract()


def code_in_rows(page, first_cell):
    """Code of the rows of a page's tables whose first cell has this text."""
    rows = re.findall(rf"^\| {first_cell} \|(.*)\|$", text_of(ROOT / "docs" / page), flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_verbs_of_an_engine_are_those_of_the_base():
    engine = find("engines.Engine")
    assert code_in_rows("add_an_engine.md", "mandatory") == set(engine.__abstractmethods__)
    kept_and_derived = code_in_rows("add_an_engine.md", "(?:storage of rows|derived)")
    assert len(kept_and_derived) > 10
    assert not [verb for verb in kept_and_derived if not hasattr(engine, verb)]


@pytest.mark.parametrize("page", ["add_a_solver.md", "architecture.md"])
def test_the_methods_of_a_solver_are_those_of_the_base(page):
    solver = find("solvers.Solver")
    text = text_of(ROOT / "docs" / page)
    methods = re.findall(r"^\| `(\w+)\(problem", text, flags=re.MULTILINE)
    assert {"init", "step"} <= set(methods)
    assert not [method for method in methods if not hasattr(solver, method)]


def test_the_glossary_has_its_words():
    glossary = text_of(ROOT / "docs" / "architecture.md").split("## 7. Glossary")[1]
    words = re.findall(r"^\| ([a-zA-Z() ]+) \|", glossary, flags=re.MULTILINE)[1:]
    assert len(words) >= 25
    assert words == sorted(words, key=str.lower)
