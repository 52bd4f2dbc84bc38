"""Tables for people, drawn by rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

SCORES = (("purity", "purity"), ("nmi", "NMI"), ("ri", "RI"), ("ari", "ARI"))


def score_table(scores: Mapping[str, float]) -> Table:
    """The four scores of one clustering."""
    table = _empty()
    for _, title in SCORES:
        table.add_column(title, justify="right")
    table.add_row(*(_number(scores[key], 3) for key, _ in SCORES))
    return table


def row_table(rows: Sequence[Mapping[str, Any]], n_first: int = 0) -> Table:
    """One line per method; a rule after the first ``n_first``."""
    table = _empty()
    table.add_column("method", ratio=None, min_width=14)
    for title in ("seconds", "iterations", "passes", *(title for _, title in SCORES)):
        table.add_column(title, justify="right", no_wrap=True)
    for number, row in enumerate(rows, start=1):
        cells = _ours(row, with_passes=True)
        table.add_row(Text(_name(row)), *cells, end_section=number == n_first)
    return table


def paper_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Our figures, and beside them the paper's."""
    table = _empty()
    table.add_column("method", min_width=14)
    for title in ("seconds", "iter.", *(title for _, title in SCORES)):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("paper: s", "iter.", "purity", "NMI", '"RI"'):
        table.add_column(title, justify="right", no_wrap=True, style="dim")
    for row in rows:
        theirs = row["paper"]
        table.add_row(
            Text(_name(row)),
            *_ours(row, with_passes=False),
            _number(theirs["seconds"], 1),
            _count(theirs["iterations"]),
            *(_number(theirs[key], 2) for key in ("purity", "nmi", "ri")),
        )
    return table


def _empty() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")


def _name(row: Mapping[str, Any]) -> str:
    return str(row["method"]) if row["error"] is None else f"{row['method']} FAILED: {row['error']}"


def _ours(row: Mapping[str, Any], *, with_passes: bool) -> list[str]:
    passes = [_number(row["passes"] or None, 1)] if with_passes else []
    # A direct method has one step; "1" would look like a count of iterations.
    iterations = None if row["iterations"] == 1 else row["iterations"]
    return [
        _number(row["seconds"], 2),
        _count(iterations),
        *passes,
        *(_number(row[key], 3) for key, _ in SCORES),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
