"""Eigenpairs one by one: the smallest of a Laplacian, over all components and isolated nodes of a graph.

Clusters need a *subspace*, and tiny components are left out of it. Positional encodings, layouts and Fiedler
vectors need single eigenvectors of the whole matrix instead. The spectrum of a graph is the union of the
spectra of its components, so each component is solved on its own, and the smallest values win.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph
from spectrograd.graph.components import subgraph
from spectrograd.operators.laplacian import Kind, laplacian
from spectrograd.pipeline.run import embed
from spectrograd.pipeline.settings import Settings
from spectrograd.typing import Array

MAX_DENSE_NODES = 200  # nodes: up to here LAPACK takes less time than the first steps of an iteration
MAX_DENSE_SHARE = 0.3  # of all eigenvectors: beyond, an iteration finds nearly all of them anyway
MAX_STACK_NUMBERS = 500_000  # numbers of the dense matrices that are solved in one call: 4 MB, in the cache
SAME_VALUE = 1e-8  # of the spectrum's width: eigenvalues nearer than this are one eigenvalue
DENSE_CERTIFICATE = "all eigenvectors by LAPACK, exact to rounding"
DEFAULT_TOL = 1e-6  # residual: a looser one leaves single vectors undetermined where gaps are small


@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """The smallest eigenpairs of a Laplacian.

    Attributes
    ----------
    values : array of shape (k,)
        Ascending.
    vectors : array of shape (n_nodes, k)
        Orthonormal columns (in the metric of the degrees for ``"random_walk"``); the entry that is largest in
        absolute value is positive.
    residuals : array of shape (k,)
        ``||L u - lambda u||`` of each column, in units of the matrix that was asked for.
    converged : bool
        Whether every solve met its tolerance and no eigenvalue was missed.
    certificate : str
        The statement on each component that was solved by iteration; others are exact to rounding.
    """

    values: Array
    vectors: Array
    residuals: Array
    converged: bool
    certificate: str = DENSE_CERTIFICATE

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns that share an eigenvalue: within a group vectors are determined up to a rotation only."""
        return equal_value_groups(self.values, self.residuals)

    def stacked(self) -> StackedEigenpairs:
        """The pairs as those of a stack of one graph."""
        return StackedEigenpairs(self.values[None], self.vectors[None], self.residuals[None])


class StackedEigenpairs(NamedTuple):
    """The smallest eigenpairs of graphs of one size.

    Attributes
    ----------
    values : array of shape (n_graphs, k)
    vectors : array of shape (n_graphs, n, k)
    residuals : array of shape (n_graphs, k)
    """

    values: Array
    vectors: Array
    residuals: Array

    def of_graph(self, number: int) -> Eigenpairs:
        """The pairs of one of the graphs."""
        return Eigenpairs(self.values[number], self.vectors[number], self.residuals[number], True)


def equal_value_groups(values: Array, residuals: Array) -> tuple[tuple[int, ...], ...]:
    """Group columns whose eigenvalues are equal as far as is known.

    Parameters
    ----------
    values : array of shape (k,)
        Ascending.
    residuals : array of shape (k,)
        Of these eigenpairs; an eigenvalue is known to its residual.

    Examples
    --------
    >>> equal_value_groups(np.array([0.0, 0.5, 0.5, 2.0]), np.zeros(4))
    ((0,), (1, 2), (3,))
    """
    if not len(values):
        return ()
    width = max(1.0, float(np.abs(values).max()))
    tolerance = max(SAME_VALUE * width, 10 * float(residuals.max()))
    breaks = np.flatnonzero(np.diff(values) > tolerance) + 1
    return tuple(tuple(part.tolist()) for part in np.split(np.arange(len(values)), breaks))


def smallest_eigenpairs(
    graph: Graph,
    k: int,
    *,
    kind: Kind = "symmetric",
    tol: float | str = DEFAULT_TOL,
    isolated_value: float = 0.0,
    seed: int | None = 0,
) -> Eigenpairs:
    """Compute the k smallest eigenpairs of a graph's Laplacian, null vectors of every component included.

    Parameters
    ----------
    graph
        May have any number of components and isolated nodes.
    k
        Number of eigenpairs; fewer are returned where the graph has fewer nodes.
    kind
        Which Laplacian.
    tol
        Residual that every vector has to meet, relative to the width of the spectrum; "auto" asks for an
        angle of the whole subspace instead, which is enough for pictures.
    isolated_value
        Eigenvalue of an isolated node: 0 for the Laplacian itself; 1 where ``I - A`` is meant, as in PyTorch
        Geometric and DGL.
    seed
        Of the random start.

    Examples
    --------
    >>> path_and_node = Graph.from_edges([0, 1], [1, 2], n_nodes=4)
    >>> smallest_eigenpairs(path_and_node, 3, kind="unnormalized").values.round(6).tolist()
    [0.0, 0.0, 1.0]
    """
    k = min(k, graph.n_nodes)
    labels = graph.components
    sizes = np.bincount(labels)
    # 1. The null space: one vector for each component with edges, and for nodes where their value is zero.
    has_edges = sizes > 1
    n_null = int(has_edges.sum()) + (int((~has_edges).sum()) if isolated_value == 0 else 0)
    # 2. Every component may hold all of the other vectors; where the null space is enough, none is asked for.
    n_further = max(k - n_null, 0)
    rows_by_component = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    solved = _solve_components(graph, rows_by_component, n_further + 1, kind, tol, isolated_value, seed)
    # 3. The smallest values win; of equal ones those of the larger component.
    values = np.concatenate([pairs.values for pairs in solved])
    owner = np.repeat(np.arange(len(solved)), [len(pairs.values) for pairs in solved])
    column = np.concatenate([np.arange(len(pairs.values)) for pairs in solved])
    chosen = np.lexsort((column, -sizes[owner], values))[:k]
    vectors = np.zeros((graph.n_nodes, k))
    residuals = np.zeros(k)
    for place, index in enumerate(chosen):
        pairs = solved[owner[index]]
        vectors[rows_by_component[owner[index]], place] = pairs.vectors[:, column[index]]
        residuals[place] = pairs.residuals[column[index]]
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(k)]
    converged = all(solved[owner[index]].converged for index in chosen)
    statements = dict.fromkeys(solved[owner[index]].certificate for index in chosen)
    iterated = [statement for statement in statements if statement != DENSE_CERTIFICATE]
    certificate = "; ".join(iterated) or DENSE_CERTIFICATE
    vectors *= np.where(peaks < 0, -1.0, 1.0)
    return Eigenpairs(values[chosen], vectors, residuals, converged, certificate)


def _solve_components(
    graph: Graph,
    rows_by_component: Sequence[Array],
    k: int,
    kind: Kind,
    tol: float | str,
    isolated_value: float,
    seed: int | None,
) -> list[Eigenpairs]:
    """The k smallest eigenpairs of each component, dense ones of equal size in one call."""
    solved: list[Eigenpairs | None] = [None] * len(rows_by_component)
    dense: dict[int, list[int]] = {}
    for component, rows in enumerate(rows_by_component):
        size = len(rows)
        if size == 1:
            one = np.ones((1, 1))
            solved[component] = Eigenpairs(np.array([isolated_value]), one, np.zeros(1), True)
        elif size <= MAX_DENSE_NODES or k > MAX_DENSE_SHARE * size:
            dense.setdefault(size, []).append(component)
        else:
            solved[component] = _iterate(subgraph(graph, rows), k, kind, tol, seed)
    matrix = graph.matrix if dense else None
    for size, members in dense.items():
        for part in _chunks(members, max(1, MAX_STACK_NUMBERS // size**2)):
            stack = np.stack([_dense_rows(matrix, rows_by_component[member]) for member in part])
            pairs = dense_eigenpairs(stack, k, kind=kind)
            for number, member in enumerate(part):
                solved[member] = pairs.of_graph(number)
    return [pairs for pairs in solved if pairs is not None]


def _chunks(members: Sequence[int], size: int) -> list[Sequence[int]]:
    return [members[start : start + size] for start in range(0, len(members), size)]


def _dense_rows(matrix: sp.csr_array, rows: Array) -> Array:
    return np.asarray(matrix[rows][:, rows].toarray(), np.float64)


def dense_eigenpairs(weights: Array, k: int, *, kind: Kind = "symmetric") -> StackedEigenpairs:
    """Solve many small dense graphs of one size by LAPACK, in one call; nothing is compiled.

    Parameters
    ----------
    weights : array of shape (n_graphs, n, n)
        Symmetric weights. A node without edges has the diagonal entry 1 in the normalised Laplacians
        (``I - A``), 0 in the unnormalised one.
    k : int
        Smallest pairs to return of each.
    kind
        Which Laplacian.

    Examples
    --------
    >>> triangle = np.ones((1, 3, 3)) - np.eye(3)
    >>> dense_eigenpairs(triangle, 2).values.round(6).tolist()
    [[0.0, 1.5]]
    """
    degrees = weights.sum(axis=2)
    eye = np.eye(weights.shape[1])
    if kind == "unnormalized":
        matrices = degrees[:, :, None] * eye - weights
        scale = np.ones_like(degrees)
    else:
        linked = degrees > 0
        scale = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1.0)), 0.0)
        matrices = eye - scale[:, :, None] * weights * scale[:, None, :]
    values, vectors = np.linalg.eigh(matrices)
    values = values[:, :k]
    vectors = vectors[:, :, :k]
    residuals = np.linalg.norm(matrices @ vectors - vectors * values[:, None, :], axis=1)
    if kind == "random_walk":
        vectors = np.where(scale > 0, scale, 1.0)[:, :, None] * vectors
    rounded = np.where(np.abs(values) <= weights.shape[1] * np.finfo(float).eps, 0.0, values)
    return StackedEigenpairs(rounded, vectors, residuals)


def _iterate(graph: Graph, k: int, kind: Kind, tol: float | str, seed: int | None) -> Eigenpairs:
    """The k smallest eigenpairs of a connected graph, by the pipeline and under its certificate."""
    settings = Settings(
        n_components=k,
        laplacian=kind,
        regularization=None,
        tol=tol,
        seed=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caller says whether the result may be trusted
        result = embed(graph, settings)
    vectors = np.asarray(result.vectors, np.float64)
    operator = laplacian(graph, kind)
    values = np.asarray(result.eigenvalues, np.float64)
    error = np.asarray(operator @ vectors) - _in_metric(graph, kind, vectors) * values
    certificate = result.certificate
    residuals = np.linalg.norm(error, axis=0)
    return Eigenpairs(values, vectors, residuals, bool(certificate.converged), certificate.sentence)


def _in_metric(graph: Graph, kind: Kind, vectors: Array) -> Array:
    return graph.degrees[:, None] * vectors if kind == "random_walk" else vectors
