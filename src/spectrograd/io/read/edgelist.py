"""Edge lists as networkx writes them, ``a b {'weight': 2.0}``, under any suffix of text."""

from __future__ import annotations

import ast
import re

import numpy as np

from spectrograd.graph import GraphError
from spectrograd.io.read.columns import NO_WEIGHT, Chosen, role_of
from spectrograd.io.read.tables import EdgeTable, ids_of_texts
from spectrograd.io.read.text import TextFile, data_lines

EDGELIST_SUFFIX = ".edgelist"
_PLACE = {"src": "1", "dst": "2"}
_EDGE = re.compile(r"\s*(\S.*?)(?:\s*[,;\t]\s*|\s+)(\{.*\})\s*")
_PARTED = tuple(re.compile(mark) for mark in (r"\s*\t\s*", r"\s*,\s*", r"\s*;\s*", r"\s+"))


def read_attributes(file: TextFile, chosen: Chosen) -> EdgeTable:
    """Read two ends per line and, in braces, attributes; the one called ``weight`` (or a synonym) counts."""
    for end in ("src", "dst"):
        if chosen.get(end, _PLACE[end]) != _PLACE[end]:
            raise GraphError(
                f"{file.name}: of lines with attributes in braces the first two words are the ends"
            )
    source, target, weight = [], [], []
    name = chosen.get("weight")
    with file.open() as handle:
        for number, line in data_lines(handle):
            edge = _split(line)
            if edge is None:
                raise file.error(number, "expected two ends and attributes in braces, as in the lines before")
            source.append(edge[0])
            target.append(edge[1])
            weight.append(_weight(file, number, edge[2], name))
    ends = ids_of_texts(source, target)
    return EdgeTable(file.name, ends[0], ends[1], np.array(weight))


def has_attributes(file: TextFile) -> bool:
    """Whether the first line that says anything ends with attributes in braces."""
    with file.open() as handle:
        _, first = next(data_lines(handle), (0, ""))
    return _split(first) is not None


def _split(line: str) -> tuple[str, str, str] | None:
    """Two ends and the attributes; ends may hold blanks where tabs or commas part them."""
    edge = _EDGE.fullmatch(line)
    if edge is None:
        return None
    for mark in _PARTED:
        ends = mark.split(edge[1])
        if len(ends) == 2 and all(ends):
            return ends[0], ends[1], edge[2]
    return None


def _weight(file: TextFile, number: int, text: str, name: str | None) -> float:
    if name == NO_WEIGHT:
        return 1.0
    try:
        attributes = ast.literal_eval(text)
        if name is not None:
            return _checked(file, number, float(attributes[name]))
        found = [value for name, value in attributes.items() if role_of(str(name)) == "weight"]
        weight = float(attributes.get("weight", found[0] if found else 1))
    except KeyError:
        raise file.error(number, f"no attribute {name!r} among {', '.join(map(repr, attributes))}") from None
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, GraphError):
            raise
        raise file.error(number, f"{text[:40]!r} are no attributes with a number as weight") from None
    return _checked(file, number, weight)


def _checked(file: TextFile, number: int, weight: float) -> float:
    if not np.isfinite(weight) or weight < 0:
        raise file.error(number, f"weight {weight} must be finite and not negative")
    return weight
