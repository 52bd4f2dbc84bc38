"""``python tools/mutate.py PACKAGE NUMBER [SEED] [--near]``: which small changes of the code no test notices.

A comparison is flipped, ``+`` and ``-`` or ``*`` and ``/`` are exchanged, or a number grows by one; then the
tests of the module run until one fails: those called after it, and those that import it; all of the package
where there are none. What they do not notice is tried on the whole package, but for
``--near``. A mutant that lives is printed with its line. The sources are changed in a copy, which comes
first on the path.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 600  # for the tests of a package; a mutant that never ends is killed
KILLED, LIVES, NO_END = "killed", "LIVES ", "no end"
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
EXCHANGED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


def places(tree: ast.AST) -> Iterator[ast.expr]:
    """Nodes inside functions that can be changed; annotations and docstrings are none."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from (node for node in ast.walk(statement) if is_changeable(node))


def is_changeable(node: ast.AST) -> bool:
    """Whether :func:`change` knows what to do."""
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in FLIPPED
    if isinstance(node, ast.BinOp):
        return type(node.op) in EXCHANGED
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def change(node: ast.AST) -> None:
    """Mutates: the node."""
    if isinstance(node, ast.Compare):
        node.ops[0] = FLIPPED[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = EXCHANGED[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value += 1


def nearest_tests(package: str, module: str) -> list[str]:
    """Test files of the package that are called after a module, and all that import it."""
    importing = re.compile(rf"{package}(\.{module}\b| import .*\b{module}\b)")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    near = [
        file
        for file in files
        if (file.parent.name == package and file.stem.startswith(f"test_{module}"))
        or importing.search(file.read_text(encoding="utf-8"))
    ]
    return [str(file.relative_to(ROOT)) for file in near] or [f"tests/{package}"]


def tried(tests: list[str], copy: Path) -> str:
    """What the tests say of the changed copy: one of the words below."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    call = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return NO_END
    return KILLED if done.returncode else LIVES


def main(package: str, number: int, seed: int = 0, *, only_near: bool = False) -> int:
    """Print the mutants that live; how many they are."""
    rng, lived = random.Random(seed), 0
    files = sorted((ROOT / "src" / "spectrograd" / package).rglob("*.py"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "src")
        shutil.copytree(ROOT / "src", copy)
        whole = [f"tests/{package}"]
        if not only_near and tried(whole, copy) != LIVES:
            raise SystemExit(f"the tests of {package} fail without any change")
        for _ in range(number):
            file = rng.choice([file for file in files if any(places(ast.parse(file.read_text())))])
            tree = ast.parse(file.read_text())
            node = rng.choice(list(places(tree)))
            line = file.read_text().splitlines()[node.lineno - 1].strip()
            change(node)
            target = copy / file.relative_to(ROOT / "src")
            target.write_text(ast.unparse(tree))
            near = nearest_tests(package, file.stem)
            verdict = tried(near, copy)
            if verdict == LIVES and near != whole and not only_near:
                verdict = tried(whole, copy)
            lived += verdict == LIVES
            where = f"{file.relative_to(ROOT)}:{node.lineno}: {line} -> {ast.unparse(node)}"
            sys.stdout.write(f"{verdict} {where}\n")
            sys.stdout.flush()
            shutil.copy(file, target)
    sys.stdout.write(f"{number - lived} of {number} killed\n")
    return lived


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--near"]
    main(words[0], *(int(word) for word in words[1:]), only_near="--near" in sys.argv)
