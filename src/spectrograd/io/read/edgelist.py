"""Edge lists as networkx writes them, ``a b {'weight': 2.0}``; without braces they are ordinary tables."""

from __future__ import annotations

import ast
import re

import numpy as np

from spectrograd.io.read.columns import Chosen, role_of
from spectrograd.io.read.tables import EdgeTable, ids_of_texts, read_table
from spectrograd.io.read.text import TextFile, data_lines

EDGELIST_SUFFIX = ".edgelist"
_EDGE = re.compile(r"\s*(\S+)\s+(\S+)\s+(\{.*\})\s*")


def read_edgelist(path: str, chosen: Chosen | None = None) -> EdgeTable:
    """Read two ends per line and, in braces, attributes; the one called ``weight`` (or a synonym) counts."""
    file = TextFile(path)
    with file.open() as handle:
        _, first = next(data_lines(handle), (0, ""))
    if not _EDGE.fullmatch(first):
        return read_table(path, chosen)
    source, target, weight = [], [], []
    with file.open() as handle:
        for number, line in data_lines(handle):
            edge = _EDGE.fullmatch(line)
            if edge is None:
                raise file.error(number, "expected two ends and attributes in braces, as in the lines before")
            source.append(edge[1])
            target.append(edge[2])
            weight.append(_weight(file, number, edge[3]))
    ends = ids_of_texts(source, target)
    return EdgeTable(file.name, ends[0], ends[1], np.array(weight))


def _weight(file: TextFile, number: int, text: str) -> float:
    try:
        attributes = ast.literal_eval(text)
        found = [value for name, value in attributes.items() if role_of(str(name)) == "weight"]
        weight = float(attributes.get("weight", found[0] if found else 1))
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError):
        raise file.error(number, f"{text[:40]!r} are no attributes with a number as weight") from None
    if not np.isfinite(weight) or weight < 0:
        raise file.error(number, f"weight {weight} must be finite and not negative")
    return weight
