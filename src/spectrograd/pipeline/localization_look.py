"""Localised vectors seen in the look at the spectrum that a plan begins with, before anything is solved.

A few tens of products of one vector show dangling pieces long before their eigenvectors are found: what grows
in the Krylov space lives on the same sets. Where nearly all of the rough Ritz vectors are localised and half
of them are somewhat settled, the problem is not worth solving (docs/adr/0011-regularisation-by-evidence.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.base import MultiVector
from spectrograd.linalg.spectral_shape import SHAPE_SEED, SHAPE_STEPS, random_basis
from spectrograd.linalg.subspace import Basis
from spectrograd.operators.base import Operator
from spectrograd.operators.equilibration import Equilibration, equilibrate
from spectrograd.operators.laplacian import Regularization
from spectrograd.pipeline.plan import is_planned_by_cost, look_size
from spectrograd.solvers.base import Problem

# Shares of localised vectors: the one that is believed of rough vectors, and the least that is worth more
# products.
CLEARLY_LOCALIZED = 0.85
PROMISING = 0.3
SETTLED = 0.03  # of the width: residuals of at least half of the rough vectors
MORE_STEPS = 1.25  # times as many before the next look


@dataclass(eq=False)
class SpectrumLook:
    """The Krylov space of one vector and an equilibrated operator, which a plan and a solver go on with.

    Whoever goes on with the basis takes it, so that nobody else keeps its memory.
    """

    problem: Problem
    fit: Equilibration | None
    basis: Basis | None

    def take_basis(self) -> Basis | None:
        """Mutates: the look has no basis any more."""
        basis = self.basis
        self.basis = None
        return basis

    def decide(self, decide: Callable[[MultiVector], Regularization]) -> Regularization | None:
        """Mutates: the basis. What ``decide`` says of localised vectors, where they are beyond doubt."""
        rng = np.random.default_rng(SHAPE_SEED)
        basis = self.basis
        assert basis is not None
        steps = SHAPE_STEPS
        try:
            while True:
                while basis.done < steps and not basis.full:
                    basis.expand(rng)
                if basis.done < steps:
                    return None
                found = decide(self.rough_vectors(basis))
                share = found.localized or 0.0
                if found.tau and share >= CLEARLY_LOCALIZED and self.is_settled(basis):
                    return found
                if share < PROMISING:
                    return None
                steps = math.ceil(MORE_STEPS * basis.done)
        except (FloatingPointError, np.linalg.LinAlgError):  # weights that no single precision holds
            return None

    def rough_vectors(self, basis: Basis) -> MultiVector:
        """The first K Ritz vectors, in the coordinates of the operator as it was made."""
        engine = self.problem.engine
        Y = basis.ritz().Y[:, : self.problem.n_components].astype(basis.dtype)
        vectors = self.problem.standard.inverse_transform(
            engine.combine(basis.vectors.columns(0, basis.done), Y)
        )
        return vectors if self.fit is None else self.fit.inverse_transform_multivector(engine, vectors)

    def is_settled(self, basis: Basis) -> bool:
        """Whether half of the Ritz vectors after the first have small residuals."""
        operator = self.problem.operator
        residuals = basis.ritz().residuals[1 : self.problem.n_components]
        return bool(np.median(residuals) < SETTLED * (operator.upper - operator.lower))


def begin_look(operator: Operator, k: int, engine: Engine) -> SpectrumLook | None:
    """A look before its first product; None where the plan has none, or K vectors do not fit into it."""
    if not isinstance(engine, LocalEngine) or not 2 <= k < SHAPE_STEPS:
        return None
    fit = equilibrate(operator)
    problem = Problem(operator if fit is None else fit.operator, k, engine)
    if not is_planned_by_cost(problem):
        return None
    return SpectrumLook(problem, fit, random_basis(engine, problem.operator, look_size(k)))
