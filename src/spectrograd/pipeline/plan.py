"""``auto``: which solvers for which problem, in which order, and why."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from spectrograd.certificate.riding_probe import COLUMNS
from spectrograd.graph import Graph
from spectrograd.kernels.thresholds import USUAL, Thresholds
from spectrograd.linalg.fill import estimated_fill, factor_bytes, most_factor_bytes
from spectrograd.linalg.filters import has_hubs
from spectrograd.operators.protocol import ALL
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.needs import (
    STREAM_BLOCKS,
    largest_basis,
    least_basis,
    solver_bytes,
    spare_bytes,
)
from spectrograd.solvers.lanczos_sweeps import MOST_BLOCKS
from spectrograd.solvers.protocol import Problem
from spectrograd.solvers.ritz import guarded_width


class Choice(NamedTuple):
    """A solver's name, the reason it was picked, and parameters that are not its defaults."""

    name: str
    reason: str
    params: tuple[tuple[str, Any], ...] = ()


ONE_VECTOR = (("block_size", 1),)
BLOCK = Choice("chebyshev", "escalated: a block does not skip repeated eigenvalues")
LAST = Choice("lanczos", "escalated: the best polynomial of all")


def plan(problem: Problem, memory_limit: int | None = None) -> tuple[Choice, ...]:
    """Solvers to try, best first; the next one goes on where the certificate of the last is not met.

    Cheap looks decide: size, fill (at most two breadth-first searches), shrinkage (one matching). A direct
    solve comes first wherever time and memory allow, since a factorisation can prove what it found. What does
    not fit ``memory_limit`` (bytes of the whole process) is not in the plan.
    """
    n, operator, sizes = problem.n_nodes, problem.operator, problem.engine.thresholds
    if n <= sizes.all_vectors and "resident" in problem.offers and not operator.is_streamed:
        return (Choice("eigen", f"{n} nodes: a dense eigendecomposition is exact and instant"),)
    if not isinstance(operator, SparseOperator) or not problem.offers >= ALL:
        return by_products(problem, memory_limit)
    fill = fill_ratio(operator.graph, sizes)
    room = min(most_factor_bytes(), spare_bytes(operator.graph, problem.n_components, memory_limit))
    if fill <= sizes.little_fill and factor_bytes(fill * operator.graph.n_edges) <= room:
        reason = f"a factor has about {fill:.0f} entries per edge: direct is exact"
        direct = Choice("shift-invert", reason, (("memory_limit", math.inf),))  # looked at here
        return (direct, Choice("lanczos", "escalated: the direct solve was not certified"))
    if operator.rank > 1:  # a regularised graph, rank one, is as cheap as a plain one
        return (Choice("chebyshev", "sparse plus low rank: products are cheap, a factor is not"), LAST)
    if n <= sizes.small:  # nothing is compiled, and one vector at a time is what scipy is best at
        reason = f"{n} nodes, a factor would fill: one vector at a time"
        return (Choice("lanczos", reason, ONE_VECTOR), BLOCK, LAST)
    shrinkage = first_shrinkage(problem)
    if shrinkage <= sizes.shrinks and solver_bytes(operator.graph, "multilevel") <= room:
        geometric = Choice("multilevel", f"coarsening leaves {shrinkage:.0%} of the entries: geometric")
        return (geometric, LAST)
    kind = "an expander" if shrinkage > sizes.shrinks else "no memory for coarser graphs"
    reason = f"{kind} (coarsening leaves {shrinkage:.0%} of the entries)"
    if problem.n_components <= sizes.one_by_one:
        return (Choice("lanczos", f"{reason}: one vector at a time", ONE_VECTOR), BLOCK, LAST)
    return (Choice("chebyshev", f"{reason}: few passes"), LAST)


def by_products(problem: Problem, memory_limit: int | None = None) -> tuple[Choice, ...]:
    """The plan where neither edges nor rows can be looked at; few wide sweeps where each one is dear."""
    if problem.operator.is_streamed:
        return on_disk(problem, memory_limit)
    if problem.dear_sweeps:
        return (Choice("chebyshev", "products only, and sweeps are dear: few wide ones"), LAST)
    return (Choice("lanczos", "the operator has no edges of its own: products only"),)


def on_disk(problem: Problem, memory_limit: int | None) -> tuple[Choice, ...]:
    """The plan over a stream: filters, which take the least memory of what a certified solve takes.

    Block Krylov takes now fewer, now more sweeps (docs/larger_than_memory.md), and holds a block for each.
    """
    width = guarded_width(problem, None)
    reason = (
        f"the graph is on disk: few sweeps of {width} columns and {COLUMNS} of the probe, and "
        f"{STREAM_BLOCKS} blocks of these in memory at most"
    )
    if has_hubs(problem.operator) and _blocks_fit(problem, memory_limit, MOST_BLOCKS * width):
        reason = (
            f"the graph is on disk and has hubs, whose eigenvalues lie far above the others: block Krylov, "
            f"{width} columns and {COLUMNS} of the probe"
        )
        return (Choice("lanczos", reason),)
    return (Choice("chebyshev", reason), *_last_within(problem, memory_limit))


def _blocks_fit(problem: Problem, memory_limit: int | None, n_columns: int) -> bool:
    """Whether a limit leaves room for a Krylov basis of so many columns."""
    if memory_limit is None or not isinstance(problem.operator, SparseOperator):
        return memory_limit is None
    columns = largest_basis(problem.operator.graph, problem.n_components, memory_limit)
    return columns is not None and columns >= n_columns


def _last_within(problem: Problem, memory_limit: int | None) -> tuple[Choice, ...]:
    """Go on by a Krylov basis where the limit leaves room for one; there is none without it."""
    operator = problem.operator
    if memory_limit is None or not isinstance(operator, SparseOperator):
        return (LAST._replace(params=(("basis_size", 3 * guarded_width(problem, None)),)),)
    columns = largest_basis(operator.graph, problem.n_components, memory_limit)
    if columns is None or columns < 2 * problem.n_components + 20:
        return ()
    return (LAST._replace(params=(("basis_size", min(columns, least_basis(problem.n_components))),)),)


def last_resort(problem: Problem) -> Choice:
    """What is left where every solver of the plan has failed: no factor, and no single precision."""
    if (
        problem.n_nodes > problem.engine.thresholds.small
    ):  # all eigenvectors of 4,096 nodes take half a minute and 270 MB
        return Choice("eigen", "the last resort: products in double precision")
    return Choice("eigen", "the last resort: all eigenvectors, in double precision", (("method", "dense"),))


def choose(problem: Problem, memory_limit: int | None = None) -> Choice:
    """The first solver of the plan."""
    return plan(problem, memory_limit)[0]


def fill_ratio(graph: Graph, sizes: Thresholds = USUAL) -> float:
    """Estimated entries of a factor per edge; one search is enough where they are far too many."""
    n_edges = max(1, graph.n_edges)
    return estimated_fill(graph, enough=sizes.far_too_much * sizes.little_fill * n_edges) / n_edges


def first_shrinkage(problem: Problem) -> float:
    """Share of the entries that one matching leaves."""
    from spectrograd.linalg.multigrid import shrinkage

    return shrinkage(problem.sparse.walk_form())
