"""The contract between a solver and the loop, written down once.

A solver is a frozen dataclass of hyperparameters. It owns no data: ``init`` makes a state, ``step``
consumes a state and returns the next one (it may reuse the old one's arrays), ``finish`` turns the
last state into a basis that is orthonormal in the problem's metric. Solvers never print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from spectrograd.certificate.evidence import Complement
from spectrograd.certificate.probe import Guards
from spectrograd.engines import Engine, LocalEngine
from spectrograd.linalg.subspace import (
    Orthonormal,
    orthogonality_error,
    orthonormalize,
    rayleigh_ritz,
    residuals,
)
from spectrograd.operators.laplacian import Operator

if TYPE_CHECKING:
    from spectrograd.solvers.minibatch import BatchSource

Array = NDArray[Any]
USUAL_MASS = 20.0  # mean degree of the block models on which absolute steps in a metric were set


@dataclass(frozen=True, eq=False)
class Problem:
    """Find the ``n_components`` smallest eigenvectors of an operator, on an engine.

    ``start`` is an N x K guess for a warm start, or None.
    """

    operator: Operator
    n_components: int
    engine: Engine = field(default_factory=LocalEngine)
    start: Array | None = None

    def __post_init__(self) -> None:
        n_nodes, k = self.operator.n_nodes, self.n_components
        if k < 1:
            raise ValueError(f"n_components={k}: at least one vector is needed")
        if k >= n_nodes:
            raise ValueError(f"n_components={k} but the graph has only {n_nodes} nodes: choose fewer")
        if self.start is not None and self.start.shape != (n_nodes, k):
            raise ValueError(f"start has shape {self.start.shape}, expected {(n_nodes, k)}")

    @property
    def n_nodes(self) -> int:
        """Rows of every vector."""
        return self.operator.n_nodes

    @property
    def finite_start(self) -> Array | None:
        """A copy of the start in float64 with zeros where it holds no number."""
        if self.start is None:
            return None
        return np.where(np.isfinite(self.start), self.start, 0).astype(np.float64)

    @cached_property
    def batches(self) -> BatchSource:
        """Random access to the edges, for stochastic solvers; made when first needed."""
        from spectrograd.solvers.minibatch import BatchSource  # compiles, so only on demand

        return BatchSource.of(self.operator)

    @cached_property
    def single_batches(self) -> BatchSource:
        """The same in float32: half the traffic, for solvers that live with noise anyway."""
        from spectrograd.solvers.minibatch import BatchSource

        return BatchSource.of(self.operator.astype(np.float32))

    @property
    def row_unit(self) -> float:
        """What an absolute step is multiplied by: vectors that are orthonormal in a metric shrink with it."""
        metric = self.operator.metric
        return 1.0 if metric is None else float(np.sqrt(USUAL_MASS / metric.mean()))

    def apply(self, U: Array) -> Array:
        """``A @ U``: one pass."""
        return self.engine.spmm(self.operator, U)

    def gram(self, U: Array, V: Array) -> Array:
        """``U' B V`` in float64."""
        return self.engine.gram(U, V, self.operator.metric)

    def orthonormalize(self, U: Array, rng: np.random.Generator | None = None) -> Orthonormal:
        """A basis of the same span with ``Q' B Q = I``."""
        return orthonormalize(self.engine, U, self.operator.metric, rng)

    def first_guess(self, rng: np.random.Generator) -> Array:
        """The warm start if there is one, else random; orthonormal in the metric."""
        guess = self.finite_start
        if guess is None:
            guess = rng.standard_normal((self.n_nodes, self.n_components))
        return self.orthonormalize(guess, rng).Q


@dataclass(frozen=True)
class Progress:
    """Where a run stands; ``seconds`` exclude the time spent measuring and in hooks."""

    iteration: int
    passes: float
    edges_seen: int
    objective: float
    residual: float
    orthogonality_error: float
    seconds: float = 0.0
    events: tuple[str, ...] = ()


@dataclass(eq=False)
class State:
    """What every solver's state has; solvers add their own fields.

    ``U`` spans the current subspace (it need not be orthonormal). ``passes`` counts applications of
    the whole operator, ``edges_seen`` single edges read by stochastic methods. ``events`` collects
    what the user should know: repairs, backed-off steps. ``beyond`` is the solver's own estimate of
    the first eigenvalue it does not return, where it has one; ``complete`` says that nothing below it
    can have been missed (a dense factorisation, a count by inertia).
    """

    U: Array
    rng: np.random.Generator
    iteration: int = 0
    passes: float = 0.0
    edges_seen: int = 0
    events: list[str] = field(default_factory=list)
    done: bool = False
    beyond: float | None = None
    complete: bool = False


class Solver(ABC):
    """Base of all solvers; subclasses are frozen dataclasses.

    Class attributes: ``name`` (as in the registry), ``max_iter`` (how many steps unless the user
    says otherwise), ``report_every`` (steps between two measurements, which cost a pass each),
    ``direct`` (the first step is the last, so there is nothing to measure before it), ``reads_entries``
    (it looks at edges or at the diagonal, where others only multiply).
    """

    name: ClassVar[str]
    direct: ClassVar[bool] = False
    reads_entries: ClassVar[bool] = False
    report_every: ClassVar[int] = 1
    max_iter: int

    def check(self, problem: Problem) -> None:
        """Refuse what the solver cannot take, before any work is done."""
        if self.reads_entries and problem.operator.only_products:
            refuse_entries(self.name)

    @abstractmethod
    def init(self, problem: Problem, rng: np.random.Generator) -> State:
        """Make the first state."""

    @abstractmethod
    def step(self, problem: Problem, state: State) -> State:
        """Consume a state and return the next; a direct method sets ``done``."""

    def progress(self, problem: Problem, state: State) -> Progress:
        """Measure the current subspace: Rayleigh-Ritz, residuals, orthogonality."""
        Q = self.finish(problem, state)
        ritz = rayleigh_ritz(problem.engine, problem.operator, Q)
        return Progress(
            iteration=state.iteration,
            passes=state.passes,
            edges_seen=state.edges_seen,
            objective=float(ritz.values.sum()),
            residual=float(residuals(problem.engine, problem.operator, ritz).max()),
            orthogonality_error=orthogonality_error(problem.engine, problem.operator, Q),
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: State) -> Array:
        """A basis of the result that is orthonormal in the metric, in float64 whatever the state is in."""
        return problem.orthonormalize(np.asarray(state.U, dtype=np.float64)).Q

    def guards(self, problem: Problem, state: State) -> Guards | None:
        """Ritz vectors beyond those of the result, where the solver has them: they help the certificate."""
        return None

    def outside(self, problem: Problem, state: State) -> Complement | None:
        """What lies beyond the result, where the solver can find out cheaper than the certificate's probe."""
        return None

    def back_off(self, problem: Problem, state: State) -> State | None:
        """Called with the last good state when the run diverges: retry more carefully, or None."""
        return None


def refuse_entries(what: str) -> NoReturn:
    """The error of whoever needs entries of an operator that has only products."""
    raise ValueError(
        f"{what} reads the edges of the operator, but a function of layers (power-mean, geometric) is "
        "known by its products only: use 'auto', 'lanczos', 'chebyshev', 'eigen', 'lobpcg', 'power', "
        "'gradient-descent' or 'forward-backward'"
    )


@dataclass(eq=False)
class StepState(State):
    """A state with a step size that a diverging run can shorten."""

    step_size: float = 0.0


class SteppingSolver(Solver):
    """A solver that walks with a step size and halves it when it diverges."""

    def back_off(self, problem: Problem, state: State) -> State | None:
        """Halve the step."""
        assert isinstance(state, StepState)
        state.step_size /= 2
        state.events.append(f"iteration {state.iteration}: diverged, step halved to {state.step_size:.3g}")
        return state
