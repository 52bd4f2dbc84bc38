"""A pencil in the coordinates a method works in, on an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from spectrograd.engines.protocol import Engine, Tall
from spectrograd.operators.protocol import Operator

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A pencil whose vectors are those of the given one with their rows multiplied by ``factors``.

    ``operator`` is placed on the engine; ``factors`` and ``inverse`` are talls N x 1, None for ones.
    """

    engine: Engine
    operator: Operator
    factors: Tall | None = None
    inverse: Tall | None = None

    @classmethod
    def standard(cls, engine: Engine, operator: Operator) -> Coordinates:
        """``B^-1/2 A B^-1/2``, without a metric."""
        return cls._of(engine, operator.standard_form(), operator.standard_factors)

    @classmethod
    def walk(cls, engine: Engine, operator: Operator) -> Coordinates:
        """The pencil without ``scale``, whose sweeps gather vectors as they are."""
        return cls._of(engine, operator.walk_form(), operator.walk_factors)

    @classmethod
    def _of(cls, engine: Engine, operator: Operator, factors: Array | None) -> Coordinates:
        placed = engine.place(operator)
        if factors is None:
            return cls(engine, placed)
        return cls(engine, placed, engine.put(factors[:, None]), engine.put(1 / factors[:, None]))

    def enter(self, X: Tall) -> Tall:
        """Vectors of the given pencil in these coordinates."""
        return X if self.factors is None else self.engine.scaled(X, self.factors)

    def leave(self, X: Tall) -> Tall:
        """Vectors in these coordinates as vectors of the given pencil."""
        return X if self.inverse is None else self.engine.scaled(X, self.inverse)
