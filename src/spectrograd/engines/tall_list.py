"""A Krylov basis as a list of talls, for engines that have nothing better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spectrograd.engines.protocol import Engine, Tall

Array = NDArray[Any]


class TallList:
    """Columns in a few talls side by side; narrow ones are joined, so that there are O(log k) of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.talls: list[Tall] = []

    def append(self, X: Tall) -> None:
        """Add columns; before that, the last talls are joined where the one before is no wider."""
        talls = self.talls
        while len(talls) > 1 and talls[-2].shape[1] <= talls[-1].shape[1]:
            last = talls.pop()
            talls[-1] = self.engine.stack(talls[-1], last)
        talls.append(X)

    def columns(self, start: int, stop: int) -> Tall:
        """Some of the columns."""
        chosen = [
            tall if (low, high) == (0, tall.shape[1]) else self.engine.columns(tall, slice(low, high))
            for tall, low, high in self._within(start, stop)
        ]
        return chosen[0] if len(chosen) == 1 else self.engine.stack(*chosen)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: those from ``first`` on are taken out first, then all once more."""
        new = self.columns(count, self._total)
        coefficients = np.zeros((count, new.shape[1]))
        for begin in (first, 0):
            known = [self.engine.columns(t, slice(a, b)) for t, a, b in self._within(begin, count)]
            found = [self.engine.gram(tall, new) for tall in known]
            for tall, part in zip(known, found, strict=True):
                new = self.engine.combine(new, np.eye(new.shape[1]), tall, -part)
            if found:
                coefficients[begin:] += np.vstack(found)
        self._cut(count)
        self.talls.append(new)
        return coefficients, self.engine.gram(new, new, symmetric=True)

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: combinations of some columns take their place."""
        behind = None if stop == self._total else self.columns(stop, self._total)
        chosen = self.engine.combine(self.columns(start, stop), Y)
        self._cut(start)
        self.talls += [chosen] if behind is None else [chosen, behind]

    def parts(self) -> Iterator[Tall]:
        """The talls as they are: sums depend on how columns are grouped."""
        return iter(self.talls)

    def restore(self, parts: Iterable[Tall]) -> None:
        """Mutates: the same talls again."""
        self.talls = list(parts)

    @property
    def _total(self) -> int:
        return sum(tall.shape[1] for tall in self.talls)

    def _within(self, start: int, stop: int) -> list[tuple[Tall, int, int]]:
        """Talls with the part of each that lies between two columns."""
        found, at = [], 0
        for tall in self.talls:
            low, high = max(start - at, 0), min(stop - at, tall.shape[1])
            if low < high:
                found.append((tall, low, high))
            at += tall.shape[1]
        return found

    def _cut(self, stop: int) -> None:
        """Mutates: only the first columns stay."""
        self.talls = [
            t if b == t.shape[1] else self.engine.columns(t, slice(a, b)) for t, a, b in self._within(0, stop)
        ]
