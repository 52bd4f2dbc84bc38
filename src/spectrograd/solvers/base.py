"""The contract between a solver and the loop, written down once.

A solver is a frozen dataclass of hyperparameters. It owns no data: ``init`` makes a state, ``step``
consumes a state and returns the next one (it may reuse the old one's arrays), ``finish`` turns the
last state into a basis that is orthonormal in the problem's metric. Solvers never print.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from spectrograd.certificate.block_probe import PROBE_COLUMNS
from spectrograd.certificate.certificate import ComplementBound
from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.engines import Engine, LocalEngine
from spectrograd.engines.base import MultiVector, new_seed
from spectrograd.linalg.subspace import (
    Basis,
    Coordinates,
    Orthonormal,
    orthogonality_error,
    orthonormalize,
    rayleigh_ritz,
    residuals,
)
from spectrograd.operators.base import EDGES, PRODUCTS, Capability, Operator, check_capabilities
from spectrograd.operators.sparse import SparseOperator
from spectrograd.typing import Array

ORTHONORMAL = 1e-12  # entries of |U' B U - I| below which vectors in float64 are left as they are

if TYPE_CHECKING:
    from spectrograd.graph import Graph
    from spectrograd.solvers.minibatch import BatchSource, EdgeBatches


@dataclass(frozen=True, eq=False)
class Problem:
    """Find the ``n_components`` smallest eigenvectors of an operator, on an engine.

    ``start`` is an N x K guess for a warm start, an array or a multivector of the engine, or None. ``basis``
    is a Krylov basis of one random vector, which the plan looked at: a solver may go on with it.
    ``max_columns`` is how many columns of float32 a memory limit leaves space for, beside a graph on disk.
    """

    operator: Operator
    n_components: int
    engine: Engine = field(default_factory=LocalEngine)
    start: MultiVector | None = None
    basis: Basis | None = None
    max_columns: int | None = None

    def __post_init__(self) -> None:
        n_nodes = self.operator.n_nodes
        k = self.n_components
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

    def start_on_engine(self, dtype: DTypeLike = np.float64) -> MultiVector | None:
        """The start on the engine; of an array, which may come from anywhere, only what is finite."""
        if isinstance(self.start, np.ndarray):
            # a NaN in one row of a warm start would spread to all columns with the first Gram matrix
            return self.engine.from_numpy(np.where(np.isfinite(self.start), self.start, 0).astype(dtype))
        return None if self.start is None else self.engine.astype(self.start, dtype)

    @cached_property
    def batches(self) -> BatchSource:
        """Random access to the edges, for stochastic solvers; made when first needed."""
        from spectrograd.solvers.minibatch import BatchSource

        return BatchSource.of(self.sparse)

    @cached_property
    def single_batches(self) -> EdgeBatches:
        """The batches in float32: half the traffic, for solvers that live with noise anyway."""
        from spectrograd.solvers.minibatch import BatchSource, StreamedBatches

        operator = self.sparse.astype(np.float32)
        return StreamedBatches.of(operator) if operator.is_streamed else BatchSource.of(operator)

    @property
    def row_unit(self) -> float:
        """The factor for steps of a set length per coordinate: in a metric rows are smaller.

        Orthonormal vectors have entries of ``1 / sqrt(N)``, in a metric of ``1 / sqrt(sum b)``.
        """
        metric = self.operator.metric
        return 1.0 if metric is None else float(1 / np.sqrt(metric.mean()))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of the operator and the engine together."""
        return self.operator.capabilities | self.engine.capabilities

    @property
    def passes_are_expensive(self) -> bool:
        """Whether passes over the edges are to be saved: each one is a round of a network or reads a disk."""
        return self.engine.cost.is_expensive or self.operator.is_streamed

    @property
    def is_short_of_memory(self) -> bool:
        """Whether the blocks of a filter with all columns do not fit the memory limit."""
        return self.max_columns is not None and self.max_columns < filter_columns(self.n_components)

    @property
    def sparse(self) -> SparseOperator:
        """The operator of a solver that needs its edges."""
        if not isinstance(self.operator, SparseOperator):
            check_capabilities("of edges", EDGES, self.operator, self.capabilities)
            raise TypeError(f"{type(self.operator).__name__} has no row blocks")
        return self.operator

    @property
    def sparse_random_walk(self) -> SparseOperator:
        """The sparse operator without a scale."""
        return self.sparse.random_walk_form()

    @cached_property
    def engine_operator(self) -> Operator:
        """The operator on the engine."""
        return self.engine.load_operator(self.operator)

    @cached_property
    def standard(self) -> Coordinates:
        """The pencil with the identity as metric."""
        return Coordinates.standard(self.engine, self.operator)

    @cached_property
    def random_walk(self) -> Coordinates:
        """The pencil without a scale, as filters take it."""
        return Coordinates.random_walk(self.engine, self.operator)

    def apply(self, U: MultiVector) -> MultiVector:
        """``A @ U``: one pass."""
        return self.engine.apply(self.engine_operator, U)

    def gram(self, U: MultiVector, V: MultiVector) -> Array:
        """``U' B V`` in float64."""
        return self.engine.gram(U, V, self.engine_operator.metric)

    def orthonormalize(self, U: MultiVector, rng: np.random.Generator | None = None) -> Orthonormal:
        """A basis of the same span with ``Q' B Q = I``."""
        return orthonormalize(self.engine, U, self.engine_operator.metric, rng)

    def resident_guess(self, rng: np.random.Generator) -> Array:
        """As :meth:`first_guess`, but N x K drawn from the generator itself, for solvers of arrays."""
        if self.start is not None:
            return np.asarray(self.first_guess(rng))
        return np.asarray(self.orthonormalize(rng.standard_normal((self.n_nodes, self.n_components)), rng).Q)

    def first_guess(self, rng: np.random.Generator) -> MultiVector:
        """The warm start if there is one, else random; orthonormal in the metric."""
        start = self.start_on_engine()
        if start is not None:
            return self.orthonormalize(start, rng).Q
        guess = self.engine.random(self.n_nodes, self.n_components, new_seed(rng), np.float64)
        return self.orthonormalize(guess, rng).Q


# Of a filter over a stream, in float32: a block and the one before or its product, which are turned in their
# place; and the K vectors of the last good state.
STREAM_BLOCKS = 2


def usual_width(k: int) -> int:
    """K and at least three guard vectors, to a multiple of 4."""
    width = k + max(3, k // 5)
    return width + -width % 4


def filter_columns(k: int) -> int:
    """Columns of float32 that a filter over a stream holds for K vectors."""
    return STREAM_BLOCKS * (usual_width(k) + PROBE_COLUMNS) + k


def copy_generator(rng: np.random.Generator) -> np.random.Generator:
    """A generator that draws the same numbers from now on; a fifth of the time of ``deepcopy``."""
    twin = type(rng.bit_generator)(0)
    twin.state = rng.bit_generator.state
    return np.random.Generator(twin)


@dataclass(frozen=True)
class Progress:
    """A measurement of a run; ``seconds`` exclude the time spent measuring and in hooks."""

    iteration: int
    matvecs: float
    edges_seen: int
    objective: float
    residual: float
    orthogonality_error: float
    seconds: float = 0.0
    events: tuple[str, ...] = ()


@dataclass(eq=False)
class State:
    """The fields of every solver's state; solvers add their own.

    ``U`` spans the current subspace (it need not be orthonormal). ``matvecs`` counts products of the operator
    with single columns (those of a coarser graph or of one layer by its share of the edges), ``edges_seen``
    the edges that mini-batches read. ``events`` collects what the user should know: lost directions, shorter
    steps. A state is flat (multivectors, arrays, numbers, random numbers), so that checkpoints are written
    generically; a field that ``init`` derives from the problem is marked
    ``field(metadata={DERIVED: True})``.
    """

    U: MultiVector
    rng: np.random.Generator
    iteration: int = 0
    matvecs: float = 0.0
    edges_seen: int = 0
    events: list[str] = field(default_factory=list)
    done: bool = False


StateT = TypeVar("StateT", bound=State)


class Solver(ABC, Generic[StateT]):
    """Base of all solvers, generic over their state; subclasses are frozen dataclasses.

    Class attributes: ``name`` (as in the registry), ``max_iter`` (how many steps unless the user
    says otherwise), ``report_every`` (steps between two measurements, which cost a pass each),
    ``direct`` (the first step is the last, so there is nothing to measure before it), ``requires`` (what the
    operator and the engine must offer; checked before any work), ``localization_check_at`` (steps after which
    even rough vectors show whether they are localised; 0: never), ``has_goal`` (whether it stops by accuracy
    though no tolerance was asked for; else it runs its iterations, and may miss none).
    """

    name: ClassVar[str]
    direct: ClassVar[bool] = False
    report_every: ClassVar[int] = 1
    requires: ClassVar[frozenset[Capability]] = PRODUCTS
    localization_check_at: ClassVar[int] = 0
    renamed: ClassVar[Mapping[str, str]] = {}
    has_goal: ClassVar[bool] = True
    max_iter: int

    @classmethod
    def streamed_columns(cls, k: int) -> int | None:
        """Columns of float32 held at once for K vectors of a graph on disk; None: those of a filter."""
        return None

    @classmethod
    def result_columns(cls, k: int) -> int:
        """Columns of the result for K vectors that are asked for: fewer where they are mixtures."""
        return k

    @classmethod
    def extra_bytes(cls, graph: Graph) -> int:
        """Bytes that a factor or a hierarchy adds to the blocks of a graph in memory."""
        return 0

    @property
    def has_stopping_rule(self) -> bool:
        """Whether :meth:`terminate` looks at accuracy, so that the loop need not."""
        return False

    def check(self, problem: Problem) -> None:
        """Refuse what the solver cannot take, before any work is done."""
        check_capabilities(self.name, self.requires, problem.operator, problem.capabilities)

    @abstractmethod
    def init(self, problem: Problem, rng: np.random.Generator) -> StateT:
        """Make the first state."""

    @abstractmethod
    def step(self, problem: Problem, state: StateT) -> StateT:
        """Consume a state and return the next; a direct method sets ``done``."""

    def terminate(self, problem: Problem, state: StateT) -> bool:
        """Whether nothing is left to do."""
        return state.done

    def shows_localization(self, state: StateT) -> bool:
        """Whether the state is the one whose rough vectors show if they are localised."""
        return state.iteration == self.localization_check_at

    def progress(self, problem: Problem, state: StateT) -> Progress:
        """Measure the current subspace: Rayleigh-Ritz, residuals, orthogonality."""
        Q = self.finish(problem, state)
        # one pass, which ``matvecs`` does not count: measuring is not part of the method
        ritz = rayleigh_ritz(problem.engine, problem.engine_operator, Q)
        return Progress(
            iteration=state.iteration,
            matvecs=state.matvecs,
            edges_seen=state.edges_seen,
            objective=float(ritz.values.sum()),
            residual=float(residuals(problem.engine, problem.engine_operator, ritz).max()),
            orthogonality_error=orthogonality_error(problem.engine, problem.engine_operator, Q),
            events=tuple(state.events),
        )

    def finish(self, problem: Problem, state: StateT) -> MultiVector:
        """A basis of the result that is orthonormal in the metric, in float64 whatever the state is in."""
        U = problem.engine.astype(state.U, np.float64)
        is_exact = state.U.dtype == np.float64  # float32 is not orthonormal to so many digits
        if is_exact and orthogonality_error(problem.engine, problem.engine_operator, U) < ORTHONORMAL:
            return U
        return problem.orthonormalize(U).Q

    def evidence(self, problem: Problem, state: StateT) -> Evidence:
        """Evidence on the eigenvalues beyond the result, at no cost: it helps the certificate."""
        return Evidence()

    def complement_bound(self, problem: Problem, state: StateT) -> ComplementBound | None:
        """A bound on the rest of the spectrum, where the solver finds it cheaper than a probe."""
        return None

    def vectors(self, problem: Problem, state: StateT) -> MultiVector:
        """The subspace as it is, in the problem's own metric; not always orthonormal."""
        return state.U

    def snapshot(self, problem: Problem, state: StateT) -> StateT:
        """A copy of a measured state, which the run keeps while the next step is at work.

        Where the step writes over its state it may be less: what :meth:`finish` needs.
        """
        return copy.deepcopy(state)

    def overwrites_state(self, state: StateT) -> bool:
        """Whether the next step uses the memory of the state again: no checkpoint can be written later."""
        return False

    def snapshots_are_copies(self, state: StateT) -> bool:
        """Whether a copy of a state stays what it is when steps go on.

        Else a step that was left at a product must be able to go on from the state as it is then.
        """
        return True

    def back_off(self, problem: Problem, state: StateT) -> StateT | None:
        """Called with the last good state when the run diverges: retry more carefully, or None."""
        return None


@dataclass(eq=False)
class StepState(State):
    """A state with a step size that a diverging run can shorten."""

    step_size: float = 0.0


StepT = TypeVar("StepT", bound=StepState)


def halve_step(state: StepT) -> StepT:
    """Mutates: the step of a run that has diverged; an event says so."""
    state.step_size /= 2
    state.events.append(f"iteration {state.iteration}: diverged, step halved to {state.step_size:.3g}")
    return state


class SteppingSolver(Solver[StepT]):
    """A solver that walks with a step size and halves it when it diverges."""

    def back_off(self, problem: Problem, state: StepT) -> StepT | None:
        """Halve the step."""
        return halve_step(state)
