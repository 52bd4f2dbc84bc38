"""A backend of networkx: its spectral functions of algebraic connectivity, computed and certified here.

``nx.fiedler_vector(G, backend="spectrograd")``, or ``NETWORKX_BACKEND_PRIORITY=spectrograd`` for a whole
program. networkx converts a graph once and keeps the conversion with it; results are those of the functions
of the same name. ``method`` is checked as networkx checks it, and otherwise of no consequence: the solver is
chosen by size and spectrum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph
from spectrograd.graph.components import subgraph
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline.eigenpairs import Eigenpairs, smallest_eigenpairs
from spectrograd.system import check_version, need
from spectrograd.typing import Array

if TYPE_CHECKING:
    from collections.abc import Hashable

METHODS = ("tracemin", "tracemin_pcg", "tracemin_lu", "lanczos", "lobpcg")  # networkx's names
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, eq=False)
class BackendGraph:
    """A networkx graph as this library holds it: one matrix of absolute weights, directions dropped.

    Attributes
    ----------
    weights
        Loops and edges of weight zero are left out; parallel edges are summed.
    nodes
        The nodes in the order of the networkx graph, one for each row.
    """

    weights: sp.csr_array
    nodes: tuple[Hashable, ...]
    directed: bool
    multigraph: bool
    __networkx_backend__ = "spectrograd"

    @cached_property
    def graph(self) -> Graph:
        """The graph; networkx allows graphs without nodes, which are refused here."""
        return Graph.from_matrix(self.weights)

    def is_directed(self) -> bool:
        """Whether the networkx graph is directed."""
        return self.directed

    def is_multigraph(self) -> bool:
        """Whether the networkx graph has parallel edges."""
        return self.multigraph

    def __len__(self) -> int:
        return len(self.nodes)


def convert_from_nx(
    graph: Any, *, edge_attrs: Mapping[str, float] | None = None, **options: object
) -> BackendGraph:
    """Convert a networkx graph.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
    edge_attrs : mapping, optional
        The attribute that holds the weight, with the weight of an edge without it. None: every edge weighs
        one.
    **options
        What else networkx says of a conversion (names, attributes to preserve): of no use here.
    """
    check_version("networkx", "the networkx backend")
    attribute, default = next(iter(edge_attrs.items())) if edge_attrs else (None, 1)
    nodes = tuple(graph)
    row_of = {node: row for row, node in enumerate(nodes)}
    missing = 1.0 if default is None else default
    if attribute is None:
        triples = [(row_of[edge[0]], row_of[edge[1]], 1.0) for edge in graph.edges()]
    else:
        edges = graph.edges(data=attribute, default=missing)
        triples = [(row_of[source], row_of[target], abs(weight)) for source, target, weight in edges]
    rows, cols, weights = np.array(triples, np.float64).reshape(-1, 3).T
    matrix = sp.coo_array((weights, (rows.astype(np.int64), cols.astype(np.int64))), shape=(len(nodes),) * 2)
    return BackendGraph(_symmetrize(matrix), nodes, graph.is_directed(), graph.is_multigraph())


def _symmetrize(matrix: sp.coo_array) -> sp.csr_array:
    """Sum of both directions, without loops and zeros."""
    linked = (matrix.row != matrix.col) & (matrix.data != 0)
    row = matrix.row[linked]
    col = matrix.col[linked]
    weights = matrix.data[linked]
    both = (np.concatenate([row, col]), np.concatenate([col, row]))
    return sp.coo_array((np.concatenate([weights, weights]), both), shape=matrix.shape).tocsr()


def convert_to_nx(result: object, **options: object) -> Any:
    """Results are arrays, numbers, lists and sets: nothing is converted."""
    return result


# --- The functions, with networkx's signatures, results and errors.


def algebraic_connectivity(
    G: BackendGraph,
    weight: str | None = "weight",
    normalized: bool = False,
    tol: float = 1e-8,
    method: str = "tracemin_pcg",
    seed: object = None,
) -> float:
    """Compute the second smallest eigenvalue of the Laplacian; 0 where the graph is not connected."""
    _check_size(G)
    if not _is_connected(G.graph):
        return 0.0
    if len(G) == 2:
        return 2.0 if normalized else 2.0 * float(G.graph.degrees[0])
    return float(_solve(G.graph, normalized, tol, method, seed).values[1])


def fiedler_vector(
    G: BackendGraph,
    weight: str | None = "weight",
    normalized: bool = False,
    tol: float = 1e-8,
    method: str = "tracemin_pcg",
    seed: object = None,
) -> Array:
    """Compute the eigenvector of the second smallest eigenvalue of a connected graph's Laplacian."""
    _check_size(G)
    if not _is_connected(G.graph):
        raise _error("graph is not connected.")
    if len(G) == 2:
        return np.array([1.0, -1.0])
    vector: Array = _solve(G.graph, normalized, tol, method, seed).vectors[:, 1]
    return vector


def spectral_ordering(
    G: BackendGraph,
    weight: str | None = "weight",
    normalized: bool = False,
    tol: float = 1e-8,
    method: str = "tracemin_pcg",
    seed: object = None,
) -> list[Hashable]:
    """Order the nodes: component by component, within each by its Fiedler vector."""
    if len(G) == 0:
        raise _error("graph is empty.")
    _check_method(method)
    labels = G.graph.components
    order: list[Hashable] = []
    for component in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == component)
        if len(rows) > 2:
            vector = _solve(subgraph(G.graph, rows), normalized, tol, method, seed).vectors[:, 1]
            rows = rows[np.argsort(vector, kind="stable")]
        order.extend(G.nodes[row] for row in rows)
    return order


def spectral_bisection(
    G: BackendGraph,
    weight: str | None = "weight",
    normalized: bool = False,
    tol: float = 1e-8,
    method: str = "tracemin_pcg",
    seed: object = None,
) -> tuple[set[Hashable], set[Hashable]]:
    """Split the nodes of a connected graph by the sign of the Fiedler vector."""
    if G.directed:
        raise need("networkx", "the networkx backend").NetworkXNotImplemented(
            "not implemented for directed type"
        )
    positive = fiedler_vector(G, weight, normalized, tol, method, seed) >= 0
    sides: tuple[set[Hashable], set[Hashable]] = (set(), set())
    for node, side in zip(G.nodes, positive.tolist(), strict=True):
        sides[side].add(node)
    return sides


def _solve(graph: Graph, normalized: bool, tol: float, method: str, seed: object) -> Eigenpairs:
    _check_method(method)
    kind: Kind = "symmetric" if normalized else "unnormalized"
    pairs = smallest_eigenpairs(graph, 2, kind=kind, tol=tol, seed=_integer_seed(seed))
    if not pairs.converged:
        warn(f"the Fiedler vector did not converge: its residual is {pairs.residuals[1]:.2g}", RuntimeWarning)
    return pairs


def _integer_seed(seed: Any) -> int | None:
    """A seed of ours from networkx's: None, a number, or numpy's RandomState or Generator."""
    if seed is None or isinstance(seed, int | np.integer):
        return None if seed is None else int(seed)
    draw = seed.integers if hasattr(seed, "integers") else seed.randint
    return int(draw(MAX_SEED))


def _is_connected(graph: Graph) -> bool:
    return graph.n_edges > 0 and int(graph.components.max()) == 0


def _check_size(graph: BackendGraph) -> None:
    if len(graph) < 2:
        raise _error("graph has less than two nodes.")


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise _error(f"unknown method {method!r}.")


def _error(message: str) -> Exception:
    error: Exception = need("networkx", "the networkx backend").NetworkXError(message)
    return error
