"""Files and functions stay short enough to be read at one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import spectrograd

PACKAGE = Path(spectrograd.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60  # without the docstring: parameters are described at length


def test_no_file_is_long():
    lengths = {name: len(text.splitlines()) for name, text in SOURCES.items()}
    assert len(lengths) > 150
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_long():
    long = {}
    for name, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node):
                    docstring = node.body[0]
                    length -= docstring.end_lineno - docstring.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    long[f"{name}:{node.name}"] = length
    assert long == {}
