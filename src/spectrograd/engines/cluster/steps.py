"""Steps: how each block of a tall is made, so that it can be made again when a worker is lost."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


@dataclass(eq=False)
class Step:
    """One task and, while somebody needs its result, the future that has it.

    ``function`` of the ``arguments`` (other steps among them) runs near the rows of ``block``. A step without
    arguments whose ``function`` runs ``on_host`` is data that the client keeps, and sends again to a new
    worker: what is scattered dies with its worker.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    block: int = 0
    on_host: bool = False
    held: bool = False  # by a tall that is alive: else its future goes as soon as it was used
    future: Any = None

    @property
    def inputs(self) -> list[Step]:
        """The steps it needs."""
        return [argument for argument in self.arguments if isinstance(argument, Step)]

    def release(self) -> None:
        """Mutates: nobody needs the result any more."""
        self.held, self.future = False, None

    def settle(self, rows: Array) -> None:
        """Mutates: its rows are known to the client now, and how they came about is forgotten."""
        self.function, self.arguments, self.on_host, self.future = _Kept(rows), (), True, None


@dataclass(frozen=True, eq=False)
class _Kept:
    """Gives back what the client keeps."""

    rows: Array

    def __call__(self) -> Array:
        return self.rows


def kept(name: str, rows: Array, block: int) -> Step:
    """A step whose result the client has."""
    return Step(name, _Kept(rows), (), block, on_host=True)


class DaskTall:
    """N x k numbers as one step per row block; ``bounds`` are the first rows of the blocks, and N.

    When a tall is gone its futures are released at once, while other steps may still know how it was made.
    """

    def __init__(self, steps: Sequence[Step], bounds: Array, n_columns: int, dtype: DTypeLike) -> None:
        self.steps, self.bounds = tuple(steps), bounds
        self.shape, self.dtype = (int(bounds[-1]), int(n_columns)), np.dtype(dtype)
        self.casts: dict[np.dtype[Any], DaskTall] = {}  # itself in other types, made once
        self.source: Array | None = None  # what was put there, where nobody can change it
        for step in self.steps:
            step.held = True
        weakref.finalize(self, release, self.steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> DaskTall:
        return self  # nobody changes one


def release(steps: Iterable[Step]) -> None:
    """Mutates: nobody needs these any more."""
    for step in steps:
        step.release()


def missing(wanted: Iterable[Step]) -> Iterator[Step]:
    """Steps without a future that the wanted ones need, and these themselves, inputs first."""
    stack, seen = [(step, False) for step in wanted], set()
    while stack:
        step, ready = stack.pop()
        if ready:
            yield step
        elif step.future is None and step not in seen:
            seen.add(step)
            stack.append((step, True))
            stack.extend((other, False) for other in step.inputs)
