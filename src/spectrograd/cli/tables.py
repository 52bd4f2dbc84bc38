"""Tables for people, drawn by rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from spectrograd.metrics import SCORE_TITLES
from spectrograd.typing import JsonMapping

LONGEST_WORD = len("Eigendecomposition")
MARK = "*"
WIDE = 110  # columns a table with both our figures and the paper's needs


def score_table(scores: Mapping[str, float]) -> Table:
    """The four scores of one clustering."""
    table = _empty()
    for title in SCORE_TITLES.values():
        table.add_column(title, justify="right")
    table.add_row(*(_number(scores[key], 3) for key in SCORE_TITLES))
    return table


def row_table(rows: Sequence[Mapping[str, object]], n_first: int = 0, marked: int = 0) -> Table:
    """One line per method; a rule after the first ``n_first``, a mark at line number ``marked``."""
    table = _empty()
    table.add_column("method", min_width=LONGEST_WORD)
    for title in ("seconds", "iterations", "passes", *SCORE_TITLES.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for number, row in enumerate(rows, start=1):
        cells = _ours(row, with_passes=True)
        name = f"{_name(row)} {MARK}" if number == marked else _name(row)
        style = "bold" if number == marked else None
        table.add_row(Text(name), *cells, end_section=number == n_first, style=style)
    return table


def solver_table(rows: Sequence[JsonMapping], width: int) -> Table:
    """One line per solver of ``compare``; a narrow terminal gets the columns that decide."""
    wide = width >= WIDE
    scored = any(row["nmi"] is not None for row in rows)
    scores = [
        (key, title) for key, title in SCORE_TITLES.items() if scored and (wide or key in ("nmi", "ari"))
    ]
    table = _empty()
    table.add_column("method", no_wrap=True)
    counts = ("iter.", "passes") if wide else ("passes",)
    last = ("MB", "good") if wide else ("good",)
    for title in ("s", *counts, "obj.", "angle", *(title for _, title in scores), *last):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        size = row["peak_memory_bytes"]
        memory = [_number(None if size is None else size / 1e6, 0)] if wide else []
        iterations = [_count(None if row["iterations"] == 1 else row["iterations"])] if wide else []
        table.add_row(
            Text(str(row["method"])),
            _number(row["seconds"], 3),
            *iterations,
            _number(row["passes"], 1),
            _number(row["objective"], 5),
            "-" if row["angle"] is None else f"{row['angle']:.0e}",
            *(_number(row[key], 2) for key, _ in scores),
            *memory,
            {True: "yes", False: "no", None: "-"}[row["converged"]],
        )
    return table


def paper_table(rows: Sequence[JsonMapping], width: int) -> Table:
    """Our figures, and beside them the paper's; below them where the terminal is narrow."""
    beside = width >= WIDE
    table = _empty()
    table.add_column("method", min_width=LONGEST_WORD)
    for title in ("seconds", "iter.", *SCORE_TITLES.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("paper: s", "iter.", "purity", "NMI", '"RI"') if beside else ():
        table.add_column(title, justify="right", no_wrap=True, style="dim")
    for row in rows:
        ours = _ours(row, with_passes=False)
        theirs = _theirs(row["paper"])
        table.add_row(Text(_name(row)), *ours, *(theirs if beside else ()))
        if not beside and row["paper"]["seconds"] is not None:
            table.add_row("  in the paper", *theirs, style="dim")
    return table


def _theirs(figures: Mapping[str, float | None]) -> list[str]:
    return [
        _number(figures["seconds"], 1),
        _count(figures["iterations"]),
        *(_number(figures[key], 2) for key in ("purity", "nmi", "ri")),
    ]


def _empty() -> Table:
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )


def _name(row: Mapping[str, object]) -> str:
    return str(row["method"]) if row["error"] is None else f"{row['method']} FAILED: {row['error']}"


def _ours(row: JsonMapping, *, with_passes: bool) -> list[str]:
    passes = [_number(row["passes"] or None, 1)] if with_passes else []
    # A direct method has one step; "1" would look like a count of iterations.
    iterations = None if row["iterations"] == 1 else row["iterations"]
    return [
        _number(row["seconds"], 2),
        _count(iterations),
        *passes,
        *(_number(row[key], 3) for key in SCORE_TITLES),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
