"""Files and functions stay short enough to be read at one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import spectrograd

SOURCES = sorted(Path(spectrograd.__file__).parent.rglob("*.py"))
MOST_LINES, MOST_OF_A_FUNCTION = 600, 60


def test_no_file_is_long():
    lengths = {path.name: len(path.read_text().splitlines()) for path in SOURCES}
    assert len(lengths) > 200
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_function_is_long():
    long = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = node.body[0] if ast.get_docstring(node) else None  # parameters are described at length
                length = node.end_lineno - node.lineno + 1
                length -= 0 if told is None else told.end_lineno - told.lineno + 1
                if length > MOST_OF_A_FUNCTION:
                    long[f"{path.name}:{node.name}"] = length
    assert long == {}
