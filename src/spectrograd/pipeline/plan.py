"""The plan of ``auto``: a cost model of every solver, and which solvers are tried in which order.

Seconds are ``sum_i c_i x_i``: numbers ``x`` of what a solver does (products, numbers it moves, operations of
BLAS), times constants ``c`` of one thread of an ordinary machine. How many products there are follows from
the shape of the spectrum (:mod:`spectrograd.linalg.spectral_shape`) by laws ``exp(a) K^b crowding^c``. Both
were fitted on graphs that are made up, and judged on others (docs/adr/0049-a-plan-by-cost.md). The constants
are constants, so a plan is a function of the graph: only ratios decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spectrograd.certificate.block_probe import PROBE_COLUMNS
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.linalg.ldl import FactorSize, estimate_factor_size, factor_bytes, max_factor_bytes
from spectrograd.linalg.spectral_shape import SHAPE_STEPS, SpectralShape, spectral_shape
from spectrograd.linalg.subspace import Basis
from spectrograd.operators.base import ALL
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline import few_pass_cost
from spectrograd.pipeline.memory_estimate import (
    largest_basis,
    solver_bytes,
    spare_bytes,
)
from spectrograd.solvers.base import STREAM_BLOCKS, Problem, usual_width
from spectrograd.solvers.chebyshev_by_parts import columns_at_once, held_columns
from spectrograd.solvers.lanczos import usual_basis_size
from spectrograd.solvers.lanczos_few_passes import MAX_BASIS_BLOCKS
from spectrograd.solvers.ritz import guarded_width
from spectrograd.solvers.settings import SolverSettings


class Law(NamedTuple):
    """``exp(constant) K^k crowding^crowding``: how often something is done."""

    constant: float
    k: float
    crowding: float

    def at(self, k: int, crowding: float) -> float:
        """The number for K vectors."""
        return math.exp(self.constant + self.k * math.log(k) + self.crowding * math.log(crowding))


@dataclass(frozen=True)
class ProblemFeatures:
    """Size, spectrum and fill of a problem, measured before it is solved."""

    n: int
    entries: int  # of the matrix, and two for each row and low-rank column
    k: int
    shape: SpectralShape
    factor: FactorSize
    shrinkage: float = 1.0  # of the entries, what one matching leaves

    @property
    def crowding(self) -> float:
        """See :meth:`SpectralShape.crowding`."""
        return self.shape.crowding(self.k)


# How often, fitted by least squares on logarithms: products of one vector, passes of a filter's block (times
# its columns over K), passes of a hierarchy, and products of the certificate's probe.
LAWS: Mapping[str, Law] = {
    "lanczos": Law(1.31, 0.39, 0.49),
    "chebyshev": Law(3.18, -0.33, 0.40),
    "multilevel": Law(4.34, -0.21, 0.12),
    "probe": Law(1.31, -0.11, 0.46),
}
CACHED_NODES = 20_000  # rows of a block that a core's own cache holds
UNCACHED_NODES = 400_000  # rows of a block that no cache holds
OUT_OF_CACHE = 2.0  # times as long, on top, where none does


def work(solver: str, features: ProblemFeatures) -> tuple[float, ...]:
    """Operation counts of a solver on a problem, in the units of its :data:`CONSTANTS`."""
    n = features.n
    k = features.k
    entries = features.entries
    crowding = features.crowding
    if solver == "eigen":
        return (1.0, float(n) ** 2, float(n) ** 3)
    # products are counted in columns; a block of ``width`` columns is one pass
    width = usual_width(k)
    if solver == "shift-invert":  # a factor, some thirty solves of K and guards, and no probe
        factor = features.factor
        return (1.0, n * width, factor.entries * width, factor.operations, n * width**2)
    probe = LAWS["probe"].at(k, crowding)
    if solver == "lanczos":
        steps = LAWS["lanczos"].at(k, crowding)
        # Gram-Schmidt against the basis: n numbers per vector of it and step
        basis = 1.7 * k + 14  # between a restart and the next, in the mean
        products = steps + probe
        return (1.0, products, products * entries, n * (steps * basis + probe * k))
    passes = LAWS[solver].at(k, crowding) * k / width
    columns = passes * width
    return (
        1.0,
        passes + probe,
        (passes + probe) * entries,
        columns * entries * _latency(n),
        n * (columns + probe * k),
        columns * n * width,
    )


def _latency(n: int) -> float:
    """Factor by which the gathering of rows is slower than inside a core's own cache."""
    share = math.log(n / CACHED_NODES) / math.log(UNCACHED_NODES / CACHED_NODES)
    return 1 + OUT_OF_CACHE * min(max(share, 0.0), 1.0)


# Seconds per unit of :func:`work`, one thread: of graphs up to 4,096 nodes, which numpy and scipy work on,
# and of larger ones, which compiled kernels do.
CONSTANTS: Mapping[tuple[str, bool], tuple[float, ...]] = {
    ("eigen", False): (0.0021, 2.4e-08, 3.4e-11),
    ("lanczos", False): (0.0032, 2.7e-05, 6e-10, 4.5e-10),
    ("lanczos", True): (0.006, 4e-05, 9e-10, 3.6e-10),
    ("chebyshev", False): (0.0041, 1.2e-05, 3.2e-10, 2.9e-10, 9.8e-10, 2.6e-11),
    ("chebyshev", True): (0.008, 4e-05, 4e-10, 2e-10, 7e-10, 2.2e-11),
    ("shift-invert", False): (0.0051, 2.7e-07, 1.4e-09, 7e-11, 1e-08),
    ("shift-invert", True): (0.011, 4e-08, 3.5e-09, 3e-11, 3.2e-09),
    ("multilevel", False): (0.028, 3.2e-05, 0, 3.7e-10, 8.3e-10, 4e-10),
    ("multilevel", True): (0.04, 0, 0, 0, 1.2e-09, 3.7e-10),
}


def predicted_seconds(solver: str, features: ProblemFeatures, small: int) -> float:
    """Seconds of one thread until the certificate stands; up to ``small`` nodes nothing is compiled."""
    constants = CONSTANTS[solver, features.n > small]
    return sum(c * x for c, x in zip(constants, work(solver, features), strict=True))


# --- ``auto``: which solvers for which problem, in which order, and why.


class PlannedSolver(NamedTuple):
    """A solver's name, the reason it was picked, and parameters that are not its defaults.

    ``seconds`` is what it should take on one thread, its certificate included; None: nobody can tell.
    ``by_size`` says that nothing was measured: where its certificate is not met, the plan is made by cost.
    """

    name: str
    reason: str
    params: tuple[tuple[str, object], ...] = ()
    seconds: float | None = None
    by_size: bool = False
    basis: Basis | None = None  # of the look at the spectrum, which the solver goes on with


ONE_VECTOR = (("block_size", 1),)
MIN_KRYLOV_BLOCKS = 8  # of a Krylov basis: with fewer it restarts too soon to save passes
BLOCK = PlannedSolver("chebyshev", "escalated: a block does not skip repeated eigenvalues")
LAST = PlannedSolver("lanczos", "escalated: the best polynomial of all")
AFTER_DIRECT = PlannedSolver("lanczos", "escalated: the direct solve was not certified")
ESCALATIONS = {
    "eigen": (),
    "lanczos": (BLOCK, LAST),
    "chebyshev": (LAST,),
    "shift-invert": (AFTER_DIRECT,),
    "multilevel": (LAST,),
}


def plan(problem: Problem, memory_limit: int | None = None) -> tuple[PlannedSolver, ...]:
    """Solvers to try, best first; the next one goes on where the certificate of the last is not met.

    A cost model decides (:mod:`spectrograd.pipeline.plan`): from size, fill (at most two breadth-first
    searches), shrinkage (one matching) and the shape of the spectrum (twenty products of one vector) it
    predicts the seconds of every candidate. Solvers that do not fit ``memory_limit`` (bytes of the whole
    process) are no candidates.
    """
    # 1. tiny: all eigenvectors at once
    n = problem.n_nodes
    operator = problem.operator
    sizes = problem.engine.thresholds
    if n <= sizes.all_vectors and "resident" in problem.capabilities and not operator.is_streamed:
        return (PlannedSolver("eigen", f"{n} nodes: a dense eigendecomposition is exact and instant"),)
    # 2. products only (functions of layers, streams, clusters): few candidates, no cost model
    if not isinstance(operator, SparseOperator) or not problem.capabilities >= ALL:
        return plan_by_products(problem, memory_limit)
    # 3. small and compact: by size alone
    if _is_small_and_compact(problem):
        return (_small_choice(problem),)
    # 4. by predicted seconds
    return plan_by_cost(problem, memory_limit)


def plan_by_cost(problem: Problem, memory_limit: int | None = None) -> tuple[PlannedSolver, ...]:
    """The plan for a sparse operator in memory, from predicted seconds."""
    best, *others = candidates(problem, memory_limit)
    return (best, *ESCALATIONS[best.name]) if others else (best, LAST)


def choices_for(problem: Problem, settings: SolverSettings) -> tuple[PlannedSolver, ...]:
    """The plan of ``auto``, or the solver that was asked for."""
    asked = (PlannedSolver(settings.solver, "asked for"),)
    return plan(problem, settings.memory_limit) if settings.solver == "auto" else asked


def plan_after(
    tried: PlannedSolver, problem: Problem, memory_limit: int | None = None
) -> list[PlannedSolver]:
    """The plan by cost, without the solver that was tried by size alone."""
    choices = plan_by_cost(problem, memory_limit)
    return [choice for choice in choices if (choice.name, choice.params) != (tried.name, tried.params)]


# Of a breadth-first search; k-NN graphs of thousands of points in the plane have thirty and more, social
# graphs five, k-NN graphs of many dimensions eight or nine.
MAX_COMPACT_LEVELS = 10
MIN_NODES_PER_COLUMN = 6  # else a Krylov space is nearly all of the vectors there are


def is_planned_by_cost(problem: Problem) -> bool:
    """Whether the plan begins with a look at the spectrum: sparse, in memory, neither tiny nor compact."""
    operator = problem.operator
    if not isinstance(operator, SparseOperator) or operator.is_streamed or not problem.capabilities >= ALL:
        return False
    is_tiny = problem.n_nodes <= problem.engine.thresholds.all_vectors
    return not (is_tiny or problem.passes_are_expensive or _is_small_and_compact(problem))


def _is_small_and_compact(problem: Problem) -> bool:
    """Whether one vector of Lanczos is the plan by size alone; measurements take a third of a small solve.

    A search from any node, which the components were found by, ends after few levels: no small separator
    makes a factor cheap, and no eigenvalues crowd at zero.
    """
    operator = problem.sparse
    sizes = problem.engine.thresholds
    few = problem.n_nodes <= sizes.small and MIN_NODES_PER_COLUMN * problem.n_components < problem.n_nodes
    if not few or problem.start is not None or "resident" not in problem.capabilities:
        return False
    first = operator.graph.search.first
    # several columns of low rank: a merge of layers, or components, of which the first tells nothing
    connected = operator.rank <= 1 or first.size == problem.n_nodes
    return connected and len(first.widths) <= MAX_COMPACT_LEVELS


def _small_choice(problem: Problem) -> PlannedSolver:
    levels = len(problem.sparse.graph.search.first.widths)
    reason = f"{problem.n_nodes} nodes within {levels} steps of each other: one vector at a time"
    return PlannedSolver("lanczos", reason, ONE_VECTOR, by_size=True)


def candidates(problem: Problem, memory_limit: int | None = None) -> list[PlannedSolver]:
    """Solvers for a problem in memory, the quickest first, each with its predicted seconds."""
    operator = problem.sparse
    sizes = problem.engine.thresholds
    # 1. what fits: a factor and a hierarchy have to stay within memory
    budget = min(max_factor_bytes(), spare_bytes(operator.graph, problem.n_components, memory_limit))
    features = measure_features(problem)
    names = ["lanczos", "chebyshev"]
    if features.n <= sizes.dense_at_most and "resident" in problem.capabilities:
        names.append("eigen")
    if factor_bytes(features.factor.entries) <= budget:
        names.append("shift-invert")
    fits = solver_bytes(operator.graph, "multilevel") <= budget
    if features.n > sizes.small and operator.rank <= 1 and fits and features.shrinkage <= sizes.shrinks:
        names.append("multilevel")
    # 2. predicted seconds, the quickest first; ties by name, so that the plan is deterministic
    seconds = {name: predicted_seconds(name, features, sizes.small) for name in names}
    ranked = sorted(seconds, key=lambda name: (seconds[name], name))
    return [_choice(name, features, seconds, ranked) for name in ranked]


PARAMS: dict[str, tuple[tuple[str, object], ...]] = {
    "lanczos": ONE_VECTOR,
    "shift-invert": (("memory_limit", math.inf),),  # looked at here
    "eigen": (("method", "dense"),),
}


def _choice(
    name: str, features: ProblemFeatures, seconds: dict[str, float], ranked: list[str]
) -> PlannedSolver:
    """A candidate with its reason: its predicted seconds and those of the next best."""
    rival = next(other for other in ranked if other != name)
    times = f"about {format_seconds(seconds[name])} predicted, {rival} {format_seconds(seconds[rival])}"
    reason = f"{_describe(name, features)}: {times}"
    basis = features.shape.basis if name == "lanczos" else None
    return PlannedSolver(name, reason, PARAMS.get(name, ()), seconds[name], basis=basis)


def _describe(name: str, features: ProblemFeatures) -> str:
    """The features that a candidate's prediction follows from, in words."""
    if name == "eigen":
        return f"{features.n} nodes: a dense eigendecomposition is exact"
    if name == "shift-invert":
        return f"a factor has about {features.factor.entries:.2g} entries and is exact"
    if name == "multilevel":
        return f"coarsening leaves {features.shrinkage:.0%} of the entries, and eigenvalues crowd at zero"
    value, distance = features.shape.near(features.k)
    many = "one vector at a time" if name == "lanczos" else "few passes of a block"
    return f"eigenvalues near {value:.2g} at distances of {distance:.1g}, {many}"


def format_seconds(seconds: float) -> str:
    """Seconds as text, in ms below a tenth."""
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"


def look_size(k: int) -> int:
    """Vectors of the basis of a look at the spectrum, with which ``lanczos`` can go on."""
    return max(usual_basis_size(k, 1), SHAPE_STEPS + 1)


def measure_features(problem: Problem) -> ProblemFeatures:
    """Measure the features of the cost model by products, searches and a matching; nothing is solved."""
    operator = problem.sparse
    sizes = problem.engine.thresholds
    limit = look_size(problem.n_components)
    shape = spectral_shape(problem.engine, problem.operator, limit=limit, basis=problem.basis)
    entries = operator.graph.n_entries + 2 * operator.rank * problem.n_nodes
    shrinks = problem.n_nodes > sizes.small and operator.rank <= 1
    shrinkage = first_shrinkage(problem) if shrinks else 1.0
    factor = factor_size(problem, sizes)
    return ProblemFeatures(problem.n_nodes, entries, problem.n_components, shape, factor, shrinkage)


def plan_by_products(problem: Problem, memory_limit: int | None = None) -> tuple[PlannedSolver, ...]:
    """The plan for an operator known by its products only; few wide passes where each one is expensive."""
    if problem.operator.is_streamed or problem.passes_are_expensive:
        return plan_few_passes(problem, memory_limit)
    return (PlannedSolver("lanczos", "the operator has no edges of its own: products only"),)


def plan_few_passes(problem: Problem, memory_limit: int | None) -> tuple[PlannedSolver, ...]:
    """The plan where every pass is expensive: block Krylov, which takes the fewest, where its blocks fit.

    A filter needs a gap that it can guess, and takes the least memory of all certified solvers
    (docs/larger_than_memory.md). Predicted seconds are those of :mod:`spectrograd.pipeline.few_pass_cost`.
    """
    where = (
        "the graph is on disk" if problem.operator.is_streamed else "products only, and passes are expensive"
    )
    width = guarded_width(problem, None)
    blocks = _blocks_within(problem, width, memory_limit)
    small = (
        f"{where}: few passes of {width} columns and {PROBE_COLUMNS} of the probe, and "
        f"{STREAM_BLOCKS} blocks of these in memory at most"
    )
    if problem.is_short_of_memory:
        return (_filter_by_parts(problem, where),)
    seconds = {name: few_pass_cost.predicted_seconds(name, problem, width) for name in few_pass_cost.COSTS}
    if blocks < MIN_KRYLOV_BLOCKS:
        choice = PlannedSolver("chebyshev", small, seconds=seconds["chebyshev"])
        return (choice, *_last_within(problem, memory_limit))
    krylov = f"{where}: block Krylov takes the fewest passes, and {blocks} blocks of {width} columns fit"
    params = (("basis_size", blocks * width),)
    return (
        PlannedSolver("lanczos", krylov, params, seconds["lanczos"]),
        PlannedSolver("chebyshev", f"escalated: {small}", seconds=seconds["chebyshev"]),
        *_last_within(problem, memory_limit),
    )


def _filter_by_parts(problem: Problem, where: str) -> PlannedSolver:
    """A filter that takes some columns at a time: every part of them is a pass."""
    assert problem.max_columns is not None
    k = problem.n_components
    at_once = columns_at_once(k, problem.max_columns)
    reason = (
        f"{where}, and memory is short: a filter that takes {at_once} of {held_columns(k)} columns at a time"
    )
    n_parts = -(-held_columns(k) // at_once)
    width = held_columns(k) - PROBE_COLUMNS
    seconds = few_pass_cost.predicted_seconds("chebyshev", problem, width, n_parts)
    return PlannedSolver("chebyshev", reason, seconds=seconds)


def _blocks_within(problem: Problem, width: int, memory_limit: int | None) -> int:
    """Number of blocks of a Krylov basis that fit, at most ``MAX_BASIS_BLOCKS``."""
    operator = problem.operator
    if memory_limit is None or not isinstance(operator, SparseOperator):
        return MAX_BASIS_BLOCKS
    columns = largest_basis(operator.graph, problem.n_components, memory_limit)
    return MAX_BASIS_BLOCKS if columns is None else min(MAX_BASIS_BLOCKS, columns // width)


def _last_within(problem: Problem, memory_limit: int | None) -> tuple[PlannedSolver, ...]:
    """A last Krylov solver where the limit leaves space for its basis; else none."""
    operator = problem.operator
    if memory_limit is None or not isinstance(operator, SparseOperator):
        return (LAST._replace(params=(("basis_size", 3 * guarded_width(problem, None)),)),)
    k = problem.n_components
    columns = largest_basis(operator.graph, k, memory_limit)
    if columns is None or columns < 2 * k + 20:
        return ()
    return (LAST._replace(params=(("basis_size", min(columns, usual_basis_size(k, min(k, 8)))),)),)


def last_resort(problem: Problem) -> PlannedSolver:
    """The solver after all others of the plan have failed: no factor, and no single precision."""
    # All eigenvectors of 4,096 nodes take half a minute and 270 MB.
    if problem.n_nodes > problem.engine.thresholds.small:
        return PlannedSolver("eigen", "the last resort: products in double precision")
    return PlannedSolver(
        "eigen", "the last resort: all eigenvectors, in double precision", (("method", "dense"),)
    )


def choose(problem: Problem, memory_limit: int | None = None) -> PlannedSolver:
    """The first solver of the plan."""
    return plan(problem, memory_limit)[0]


def factor_size(problem: Problem, sizes: Thresholds) -> FactorSize:
    """Estimated size of a factor; one search is enough where it is far too large."""
    graph = problem.sparse.graph
    return estimate_factor_size(graph, enough=sizes.far_too_much * max(1, graph.n_edges))


def first_shrinkage(problem: Problem) -> float:
    """Share of the entries that one matching leaves."""
    from spectrograd.linalg.multigrid import shrinkage

    return shrinkage(problem.sparse.random_walk_form())
