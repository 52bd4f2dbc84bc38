"""Tables of the solvers' parameters on the pages of ``docs/methods``: type, default, meaning.

They come from the fields of the solvers' dataclasses and from their docstrings; a test compares them.
``python docs/_site/solver_parameters.py`` writes them again.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from griffe import Docstring, DocstringSectionKind

from spectrograd import solvers

METHODS = Path(__file__).parents[1] / "methods"
BLOCK = re.compile(r"<!-- parameters -->\n.*?<!-- /parameters -->", re.DOTALL)
# What the same word means for every solver; a docstring of its own goes before it.
SHARED = {
    "max_iter": "Most iterations; the `max_iter` of estimators and `--max-iter` replace it.",
    "angle": "Stop when the bound on the sine of the subspace angle is met; 0 leaves stopping to the loop.",
    "guard": "Extra columns; None fills up to a multiple of 8.",
}


def described(solver: type) -> dict[str, str]:
    """Parameter -> meaning, from the docstrings of a class and its bases."""
    found = dict(SHARED)
    for base in reversed(solver.__mro__):
        docstring = Docstring(base.__doc__ or "", parser="numpy", parser_options={"warnings": False})
        for section in docstring.parsed:
            if section.kind is DocstringSectionKind.parameters:
                for parameter in section.value:
                    text = " ".join(parameter.description.split()).replace("``", "`")
                    found.update(dict.fromkeys(parameter.name.split(", "), text))
    return found


def type_words(kind: object) -> str:
    """A type as readers call it: the values of a literal, else the name."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value!r}`" for value in get_args(kind))
    if get_origin(kind) is UnionType or get_origin(kind) is Union:
        return " or ".join(type_words(part) for part in get_args(kind))
    return "None" if kind is type(None) else f"`{getattr(kind, '__name__', kind)}`"


def parameter_table(name: str) -> str:
    """The table of one solver, in Markdown."""
    solver = type(solvers.make_solver(name))
    meanings = described(solver)
    kinds = get_type_hints(solver)
    rows = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(solver):
        kind = type_words(kinds[field.name]).replace("|", "\\|")
        meaning = meanings[field.name].replace("|", "\\|")
        rows.append(f"| `{field.name}` | {kind} | `{field.default!r}` | {meaning} |")
    return "\n".join(rows)


def with_table(text: str, name: str) -> str:
    """The text of a page with the table in its block."""
    block = f"<!-- parameters -->\n{parameter_table(name)}\n<!-- /parameters -->"
    return BLOCK.sub(lambda _: block, text)


def main() -> None:
    """Write the tables into all pages."""
    for name in solvers.REGISTRY:
        page = METHODS / f"{name}.md"
        page.write_text(with_table(page.read_text(encoding="utf-8"), name), encoding="utf-8")


if __name__ == "__main__":
    main()
