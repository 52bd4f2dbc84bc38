"""An embedding of one operator with its evidence, and the attempts that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate import Certificate
from spectrograd.certificate.probe import Evidence
from spectrograd.embedding import Embedding, arrange
from spectrograd.engines import Engine
from spectrograd.operators.balanced import Balanced
from spectrograd.pipeline.plan import Choice
from spectrograd.solvers.loop import (
    INTERRUPTED,
    Solution,
    after,
)
from spectrograd.solvers.protocol import Progress

Array = NDArray[Any]


@dataclass(frozen=True)
class Attempt:
    """One solver's turn: why it was picked, what it cost and how it ended."""

    solver: str
    reason: str
    outcome: str
    iterations: int
    passes: float
    seconds: float
    predicted_seconds: float | None = None

    @classmethod
    def of(cls, choice: Choice, solution: Solution, outcome: str) -> Attempt:
        """The attempt behind a solution."""
        last = solution.last
        cost = (last.iteration, last.passes, solution.seconds, choice.seconds)
        return cls(choice.name, choice.reason, outcome, *cost)

    @classmethod
    def failed(cls, choice: Choice, error: Exception, seconds: float) -> Attempt:
        """The attempt of a solver that ended in an error, with that error as its outcome."""
        said = str(error).removeprefix(f"{choice.name}: ")
        outcome = f"failed ({type(error).__name__}: {said})"
        return cls(choice.name, choice.reason, outcome, 0, 0.0, seconds, choice.seconds)


@dataclass(frozen=True, eq=False)
class Embedded:
    """An embedding with the evidence and the story of how it was found; ``seconds`` is all of it.

    ``solution.history`` runs through all ``attempts``; the last one that did not fail found the embedding.
    """

    embedding: Embedding
    certificate: Certificate
    solution: Solution
    choice: Choice
    seconds: float
    attempts: tuple[Attempt, ...] = ()

    def after(self, earlier: Solution, attempts: Sequence[Attempt] = ()) -> Embedded:
        """The same with what came before it: its history, and attempts."""
        joined = after(earlier, self.solution)
        return replace(self, solution=joined, attempts=(*attempts, *self.attempts))

    def without_vectors(self) -> Embedded:
        """What is told of it, without the numbers: another solve takes their place."""
        nothing = np.empty((0, 0))
        solution = replace(self.solution, Q=nothing, evidence=Evidence())
        told = self.embedding
        return replace(self, embedding=Embedding(nothing, told.eigenvalues, told.names), solution=solution)

    def interrupted(self) -> Embedded:
        """The same as the best that Ctrl-C left time for."""
        return replace(self, solution=replace(self.solution, stop_reason=INTERRUPTED))

    def left(self, fit: Balanced, engine: Engine) -> Embedded:
        """The same in the numbers of the operator that was given."""
        found, unit, run = self.embedding, fit.unit, self.solution
        history = tuple(in_units(progress, unit) for progress in run.history)
        return replace(
            self,
            embedding=arrange(fit.leave(found.vectors), unit * found.eigenvalues, found.names),
            certificate=self.certificate.in_units(unit),
            solution=replace(
                run,
                Q=fit.leave_tall(engine, run.Q),
                history=history,
                evidence=run.evidence.in_units(unit),
            ),
        )


def in_units(progress: Progress, unit: float) -> Progress:
    """The same measurement where all numbers of the operator are ``unit`` times as large."""
    return replace(progress, objective=unit * progress.objective, residual=unit * progress.residual)
