"""The examples run, the documentation's Python runs, and every name it maps an equation to exists.

Every Python block of a page runs by itself, in a folder of its own; ``<!-- goes on -->`` above a block lets
it use the names and files of the one before, ``<!-- not run -->`` leaves it out, and a text block below
``<!-- prints -->`` is what the block before it must print. ``<!-- needs scanpy -->`` (also
``<!-- goes on, needs scanpy -->``) leaves a block out where that package is not installed.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/methods").glob("*.md")),
]
ALL_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "adr").glob("*.md"))]
NOT_RUN, GOES_ON, PRINTS = "<!-- not run -->", "<!-- goes on -->", "<!-- prints -->"
# One process for all blocks: to start Python and import takes longer than most of them run.
RUNNER = """
import contextlib, io, json, os, sys, traceback
base, failed = os.getcwd(), 0
for number, (place, code, goes_on, expected) in enumerate(json.load(sys.stdin)):
    if not goes_on:
        names, folder = {"__name__": "__main__"}, os.path.join(base, str(number))
        os.makedirs(folder)
        os.chdir(folder)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, place, "exec"), names)
        assert expected in (None, printed.getvalue()), f"it prints\\n{printed.getvalue()}"
    except BaseException:
        failed += 1
        print(place, traceback.format_exc(), sep="\\n", file=sys.stderr)
sys.exit(failed > 0)
"""


def include_snippets(text):
    """The text with the files that ``--8<-- "path"`` includes when the site is built."""
    return re.sub(
        r'^--8<-- "([^"]+)"\n',
        lambda line: (ROOT / line[1]).read_text(encoding="utf-8"),
        text,
        flags=re.MULTILINE,
    )


def fenced_blocks(text):
    """Line number, language, the comment above and the lines of each fenced block."""
    lines, begun = text.splitlines(), None
    for number, line in enumerate(lines):
        if begun is None and line.startswith("```"):
            begun, language = number, line.strip("`").strip()
        elif begun is not None and line.strip() == "```":
            above = lines[begun - 1].strip() if begun else ""
            yield begun + 1, language, above, include_snippets("\n".join(lines[begun + 1 : number]) + "\n")
            begun = None
    assert begun is None, f"the block of line {begun} does not end"


def python_blocks(text, page="page"):
    """Place, code, whether it goes on, and what it must print, of each Python block that is to be run."""
    blocks = []
    for line, language, above, code in fenced_blocks(text):
        needed = re.fullmatch(r"<!-- (goes on, )?needs (\w+) -->", above)
        goes_on = above == GOES_ON or bool(needed and needed[1])
        if language == "python" and above != NOT_RUN and not (needed and find_spec(needed[2]) is None):
            blocks.append((f"{page}:{line}", code, goes_on, None))
        elif above == PRINTS:
            blocks[-1] = (*blocks[-1][:3], code)
    return blocks


def blocks_of(page):
    return python_blocks(page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix())


def cells_of(notebook):
    """The code cells of a notebook as blocks, each with what the stored notebook shows below it."""
    cells = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    shown = ["".join("".join(output.get("text", ())) for output in cell["outputs"]) for cell in cells]
    return [
        (f"{notebook.name}, cell {number}", "".join(cell["source"]), number > 0, text)
        for number, (cell, text) in enumerate(zip(cells, shown, strict=True))
    ]


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


def run(arguments, folder, stdin=None):
    sources = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", *arguments],
        cwd=folder,
        input=stdin,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_prints(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    needed = re.search(r"^# needs: (\w+)$", text, flags=re.MULTILINE)
    if needed and find_spec(needed[1]) is None:
        pytest.skip(f"{needed[1]} is not installed")
    done = run([str(path)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert len(text.splitlines()) < 60
    if path.parent.name == "gallery":
        assert (tmp_path / f"{path.stem}.png").stat().st_size > 5_000
        assert (ROOT / "docs" / "images" / "gallery" / f"{path.stem}.png").exists()
        page = (ROOT / f"docs/gallery/{path.stem}.md").read_text()
        assert f'--8<-- "examples/gallery/{path.name}"' in page
        # tools/make_gallery.py writes it
        run_time = re.search(r"Runs in (?!0\.0)[\d.]+ s of CPU, imports included\.", page)
        assert run_time, "the page has no run time"
        gallery = (ROOT / "docs" / "gallery.md").read_text().splitlines()
        (row,) = (line for line in gallery if f"(gallery/{path.stem}.md)" in line)
        assert run_time[0] in row


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_shows_what_it_prints(path, tmp_path):
    done = run(["-c", RUNNER], tmp_path, stdin=json.dumps(cells_of(path)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", ["docs", "docs/methods"])
def test_code_of_the_documentation_runs(folder, tmp_path):
    folders = {ROOT / folder, ROOT} if folder == "docs" else {ROOT / folder}
    pages = [page for page in PAGES if page.parent in folders]
    blocks = [block for page in pages for block in blocks_of(page)]
    done = run(["-c", RUNNER], tmp_path, stdin=json.dumps(blocks))
    assert done.returncode == 0, done.stderr


def test_there_is_something_to_run():
    assert {path.name for path in EXAMPLES} >= {"quickstart.py", "multilayer.py", "add_a_solver.py"}
    for page in ("README.md", "docs/method.md", "docs/add_a_solver.md", "docs/faq.md", "docs/methods/sgd.md"):
        assert blocks_of(ROOT / page), page


def test_comments_above_blocks_are_obeyed():
    text = f"a\n```python\n1\n```\n{NOT_RUN}\n```python\n2\n```\n```bash\n3\n```\n"
    text += f"{GOES_ON}\n```python\n4\n```\n{PRINTS}\n```text\n5\n```\n"
    assert python_blocks(text) == [("page:2", "1\n", False, None), ("page:13", "4\n", True, "5\n")]


def test_the_runner_notices(tmp_path):
    blocks = [
        ("good:1", "x = 1\n", False, None),
        ("good:2", "print(x)\n", True, "1\n"),
        ("alone:3", "print(x)\n", False, None),
        ("wrong:4", "print(1)\n", False, "2\n"),
    ]
    done = run(["-c", RUNNER], tmp_path, stdin=json.dumps(blocks))
    assert done.returncode == 1
    assert "good" not in done.stderr
    assert "alone:3" in done.stderr
    assert "wrong:4" in done.stderr
    assert "it prints\n1\n" in done.stderr


def test_quoted_example_is_the_example():
    page = (ROOT / "docs" / "add_a_solver.md").read_text(encoding="utf-8")
    quoted = python_blocks(page)[0][1]
    assert quoted == (ROOT / "examples" / "add_a_solver.py").read_text(encoding="utf-8")


def test_quoted_engine_is_the_engine():
    page = (ROOT / "docs" / "add_an_engine.md").read_text(encoding="utf-8")
    engine = ROOT / "src" / "spectrograd" / "engines" / "numpy_engine.py"
    assert python_blocks(page)[0][1] == engine.read_text(encoding="utf-8")


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


def test_one_table_names_every_solver():
    registry = find("solvers").REGISTRY
    page = (ROOT / "docs" / "choosing_a_solver.md").read_text(encoding="utf-8")
    table = page.split("## All solvers")[1]
    assert set(registry) | {"auto"} == set(re.findall(r"^\| `([a-z-]+)`", table, flags=re.MULTILINE))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [x for x in targets if "://" not in x and not (page.parent / x).exists()]
    assert not missing


def test_the_notebook_shows_pictures_and_a_model():
    (notebook,) = NOTEBOOKS
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    shown = [kind for cell in cells for output in cell.get("outputs", ()) for kind in output.get("data", ())]
    assert shown.count("image/png") >= 3
    assert shown.count("text/html") >= 1
