"""What a text table is, and what its columns become."""

from __future__ import annotations

from dataclasses import dataclass

from spectrograd.graph import Array

ENDS = ("src", "dst")


@dataclass(frozen=True)
class Layout:
    """What the first data line tells: where the columns are and how they are parted."""

    delimiter: str | None
    roles: tuple[str | None, ...]
    skip: int  # lines before the first that may hold an edge
    header: tuple[str, ...] = ()
    integers: bool = False  # both ends of the first edge are
    maybe_points: bool = False  # whole numbers of which hardly one comes again in the first lines


@dataclass(frozen=True, eq=False)
class Coded:
    """A column, or several of the same kind: the distinct ``texts`` and each cell's place among them."""

    texts: list[str]
    codes: tuple[Array, ...]  # one array per column


@dataclass(frozen=True, eq=False)
class BulkColumns:
    """The columns with a role; ``ends`` are integers, or texts with their codes."""

    ends: tuple[Array, Array] | Coded
    weight: Array | None = None
    layer: Coded | None = None
