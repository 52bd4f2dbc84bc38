"""Laplacian positional encodings for graph neural networks, in the conventions of PyTorch Geometric and DGL.

``AddLaplacianEigenvectorPE`` stands in for PyG's transform of that name; ``laplacian_pe`` takes the arrays of
any library, one graph or many small ones at once. Vectors are accurate one by one, not only as a span, and
those that share an eigenvalue are named: no rule of signs makes them unique, any rotation is as good.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, GraphError
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline.eigenpairs import (
    MAX_DENSE_NODES,
    MAX_STACK_NUMBERS,
    StackedEigenpairs,
    dense_eigenpairs,
    equal_value_groups,
    smallest_eigenpairs,
)
from spectrograd.system import check_version, need
from spectrograd.typing import Array

Normalization = Literal["sym", "rw"]
KINDS: dict[str, Kind] = {"sym": "symmetric", "rw": "random_walk"}
ISOLATED_VALUE = 1.0  # of I - A at a node without edges: the convention of both libraries
MIXED_CHUNK = 1 << 20  # edges: 8 MB for each of five arrays
MAX_MIXED_NODES = 1 << 32  # squared, a number of 64 bits
ENCODING_TOL = 1e-5  # residual of each vector, relative to the spectrum's width


@dataclass(frozen=True, eq=False)
class LaplacianEncoding:
    """Positional encodings with what is known of them.

    Attributes
    ----------
    vectors : array of shape (n_nodes, k)
        The eigenvectors after the first; columns that a graph lacks are zero.
    eigenvalues : array of shape (k,), or (n_graphs, k)
        Ascending; NaN for columns that a graph lacks.
    residuals : array, shaped like ``eigenvalues``
        ``||L u - lambda u||``.
    converged : bool
        Whether all vectors met the tolerance, and none was missed.
    """

    vectors: Array
    eigenvalues: Array
    residuals: Array
    converged: bool

    def groups(self, graph: int = 0) -> tuple[tuple[int, ...], ...]:
        """Columns of a graph (of a batch: by its number), those of one eigenvalue together."""
        values = np.atleast_2d(self.eigenvalues)[graph]
        residuals = np.atleast_2d(self.residuals)[graph]
        return equal_value_groups(values[~np.isnan(values)], residuals[~np.isnan(values)])


def laplacian_encoding(
    edge_index: object,
    num_nodes: int | None = None,
    k: int = 8,
    *,
    edge_weight: object = None,
    ptr: object = None,
    normalization: Normalization = "sym",
    tol: float = ENCODING_TOL,
    seed: int | None = 0,
) -> LaplacianEncoding:
    """Compute the first k eigenvectors after the trivial one, of one graph or of each graph of a batch.

    Parameters
    ----------
    edge_index : array or tensor of shape (2, n_edges)
        Sources and targets, both directions of an edge or one.
    num_nodes : int, optional
        Number of nodes; by default one more than the largest number in ``edge_index``.
    k : int
        Number of eigenvectors. Where a graph has fewer, the others are zero columns.
    edge_weight : array or tensor of shape (n_edges,), optional
        Not negative.
    ptr : array or tensor of shape (n_graphs + 1,), optional
        Where the nodes of each graph of a batch begin, as ``Batch.ptr``. No edge joins two graphs.
    normalization : {"sym", "rw"}
        Of ``D^-1/2 (D - A) D^-1/2``, or of ``D^-1 (D - A)``, whose vectors are orthonormal in the degrees.
        An isolated node has the eigenvalue 1 in both.
    tol : float
        Residual that each vector has to meet.
    seed : int or None
        Of the solver's start on large graphs.

    Returns
    -------
    LaplacianEncoding

    Examples
    --------
    >>> path = np.array([[0, 1], [1, 2]])
    >>> laplacian_encoding(path, 3, k=2).eigenvalues.round(6).tolist()
    [1.0, 2.0]
    """
    if normalization not in KINDS:
        raise ValueError(f"normalization={normalization!r}: expected 'sym' or 'rw'")
    if not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k={k!r}: expected a whole number of at least 1")
    edges = _read_edges(edge_index, num_nodes, edge_weight)
    kind = KINDS[normalization]
    bounds = np.array([0, edges.n_nodes]) if ptr is None else _to_numpy(ptr).astype(np.int64)
    if bounds[0] != 0 or bounds[-1] != edges.n_nodes or (np.diff(bounds) < 1).any():
        raise GraphError(
            f"ptr must rise from 0 to the number of nodes, {edges.n_nodes}; every graph has nodes"
        )
    encoding = _empty_encoding(bounds, k)
    if ptr is None:
        pairs = smallest_eigenpairs(
            edges.graph(), k + 1, kind=kind, tol=tol, isolated_value=ISOLATED_VALUE, seed=seed
        )
        encoding = _with_pairs(encoding, bounds, np.array([0]), pairs.stacked(), pairs.converged)
    else:
        encoding = _solve_many(encoding, edges, bounds, kind, tol, seed)
    if ptr is not None:
        return encoding
    return replace(encoding, eigenvalues=encoding.eigenvalues[0], residuals=encoding.residuals[0])


def laplacian_pe(
    edge_index: object,
    num_nodes: int | None = None,
    k: int = 8,
    *,
    edge_weight: object = None,
    ptr: object = None,
    normalization: Normalization = "sym",
    padding: bool = True,
    return_eigval: bool = False,
    tol: float = ENCODING_TOL,
    seed: int | None = 0,
) -> Any:
    """Return positional encodings as an array, or as a tensor where the edges are one; as DGL's function.

    Parameters
    ----------
    edge_index, num_nodes, k, edge_weight, ptr, normalization, tol, seed
        As for :func:`laplacian_encoding`.
    padding : bool
        Fill up with zero columns where a graph has fewer than ``k`` further eigenvectors; else refuse it.
    return_eigval : bool
        Return the eigenvalues as well.

    Returns
    -------
    array or tensor of shape (n_nodes, k), float32; with the eigenvalues, where they are asked for
    """
    encoding = laplacian_encoding(
        edge_index,
        num_nodes,
        k,
        edge_weight=edge_weight,
        ptr=ptr,
        normalization=normalization,
        tol=tol,
        seed=seed,
    )
    if not padding and np.isnan(encoding.eigenvalues).any():
        raise ValueError(f"k={k}: a graph has no more than k nodes; padding=True fills up with zeros")
    if not encoding.converged:
        largest = float(np.nanmax(encoding.residuals))
        warn(f"the positional encodings did not converge: largest residual {largest:.2g}", RuntimeWarning)
    like = edge_index if hasattr(edge_index, "new_tensor") else None
    vectors = _like(like, encoding.vectors.astype(np.float32))
    if not return_eigval:
        return vectors
    return vectors, _like(like, encoding.eigenvalues.astype(np.float32))


class AddLaplacianEigenvectorPE:
    """PyTorch Geometric's transform of this name: same parameters, same attribute, certified vectors.

    Parameters
    ----------
    k : int
        Number of eigenvectors after the first.
    attr_name : str or None
        Attribute of ``data`` that takes the encodings; None appends them to ``data.x``.
    is_undirected : bool
        Taken for compatibility. Edges without their reverse are taken in both directions.
    **kwargs
        Options of :func:`laplacian_encoding`: ``normalization``, ``tol``, ``seed``. PyG passes its options on
        to scipy's ``eigs``; names such as ``ncv`` or ``v0`` are of no use here and are refused.
    """

    def __init__(
        self,
        k: int,
        attr_name: str | None = "laplacian_eigenvector_pe",
        is_undirected: bool = False,
        **kwargs: Any,
    ) -> None:
        known = {"normalization", "tol", "seed"}
        if set(kwargs) - known:
            unknown = ", ".join(sorted(set(kwargs) - known))
            raise TypeError(f"AddLaplacianEigenvectorPE takes {', '.join(sorted(known))}, not {unknown}")
        self.k = k
        self.attr_name = attr_name
        self.is_undirected = is_undirected
        self.kwargs = kwargs

    def __call__(self, data: Any) -> Any:
        """Return a copy of ``data`` (Data or Batch) with the encodings; signs are random, as PyG's are."""
        torch = need("torch", "AddLaplacianEigenvectorPE")
        check_version("torch_geometric", "AddLaplacianEigenvectorPE")
        if data.edge_index is None:
            raise GraphError("data has no edge_index")
        vectors = laplacian_pe(
            data.edge_index,
            data.num_nodes,
            self.k,
            edge_weight=getattr(data, "edge_weight", None),
            ptr=getattr(data, "ptr", None),
            **self.kwargs,
        )
        signs = 2 * torch.randint(0, 2, (self.k,), device=vectors.device) - 1
        changed = data.clone() if hasattr(data, "clone") else data
        return _with_attribute(changed, vectors * signs, self.attr_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k})"


def _with_attribute(data: Any, values: Any, name: str | None) -> Any:
    """Set an attribute of all nodes, or append to ``data.x``, as PyG does."""
    torch = need("torch", "AddLaplacianEigenvectorPE")
    if name is not None:
        data[name] = values
        return data
    if data.x is None:
        data.x = values
        return data
    features = data.x.view(-1, 1) if data.x.dim() == 1 else data.x
    data.x = torch.cat([features, values.to(features.device, features.dtype)], dim=-1)
    return data


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges as they were given, without loops: in one direction or both, one by one or several times."""

    source: Array
    target: Array
    weights: Array | None
    n_nodes: int

    def graph(self) -> Graph:
        """The undirected graph; a single direction stands for both, parallel edges are summed."""
        if self.weights is None:
            source, target = _one_direction(self.source, self.target, self.n_nodes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph = Graph.from_edges(source, target, n_nodes=self.n_nodes)
            if not graph.is_weighted:  # else some edge is there more often than others
                return graph
        weights = np.ones(len(self.source)) if self.weights is None else self.weights
        matrix = sp.coo_array((weights, (self.source, self.target)), shape=(self.n_nodes,) * 2).tocsr()
        return Graph.from_matrix(matrix.maximum(matrix.T))

    def part(self, chosen: Array | slice, start: int, n_nodes: int) -> _Edges:
        """Some of the edges, among nodes that begin at ``start``."""
        weights = None if self.weights is None else self.weights[chosen]
        return _Edges(self.source[chosen] - start, self.target[chosen] - start, weights, n_nodes)


def _one_direction(source: Array, target: Array, n_nodes: int) -> tuple[Array, Array]:
    """Half of a list that holds each edge and its reverse, which takes half of the memory; else all of it.

    Two lists of edges are alike where sums of 64-bit mixtures of the ends agree: others do so by a chance of
    2^-64. Chunks keep the scratch memory small.
    """
    forward = source < target
    if 2 * np.count_nonzero(forward) != len(source) or n_nodes > MAX_MIXED_NODES:
        return source, target
    sums = np.zeros(2, np.uint64)
    for start in range(0, len(source), MIXED_CHUNK):
        chunk = slice(start, start + MIXED_CHUNK)
        one = np.minimum(source[chunk], target[chunk]).astype(np.uint64)
        other = np.maximum(source[chunk], target[chunk]).astype(np.uint64)
        # splitmix64 (Steele, Lea and Flood 2014)
        mixed = one * np.uint64(n_nodes) + other + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        sums[0] += mixed[forward[chunk]].sum(dtype=np.uint64)
        sums[1] += mixed[~forward[chunk]].sum(dtype=np.uint64)
    if sums[0] != sums[1]:
        return source, target
    return source[forward], target[forward]


def _read_edges(edge_index: object, num_nodes: int | None, edge_weight: object) -> _Edges:
    """The edges as arrays, which are checked; nothing is copied where there are no loops."""
    index = _to_numpy(edge_index)
    if index.ndim != 2 or index.shape[0] != 2 or index.dtype.kind not in "iu":
        raise GraphError(
            f"edge_index has shape {index.shape} and type {index.dtype}; two rows of numbers are needed"
        )
    n_nodes = int(index.max(initial=-1)) + 1 if num_nodes is None else int(num_nodes)
    if index.size and not 0 <= index.min() <= index.max() < n_nodes:
        raise GraphError(
            f"edge_index names nodes from {index.min()} to {index.max()}, num_nodes is {n_nodes}"
        )
    weights = None if edge_weight is None else _to_numpy(edge_weight).astype(np.float64)
    if weights is not None and (
        weights.shape != (index.shape[1],) or not np.isfinite(weights).all() or (weights < 0).any()
    ):
        raise GraphError("edge_weight must hold one number for each edge, finite and not negative")
    edges = _Edges(index[0], index[1], weights, n_nodes)
    proper = index[0] != index[1]
    return edges if proper.all() else edges.part(proper, 0, n_nodes)


def _solve_many(
    encoding: LaplacianEncoding,
    edges: _Edges,
    bounds: Array,
    kind: Kind,
    tol: float,
    seed: int | None,
) -> LaplacianEncoding:
    """Mutates: encodings of each graph; small ones of one size in one call of LAPACK, large ones alone."""
    sizes = np.diff(bounds)
    k = encoding.eigenvalues.shape[1] + 1
    # 1. edges in the order of their graphs
    graph_of = np.repeat(np.arange(len(sizes)), sizes)
    owner = graph_of[edges.source]
    if (owner != graph_of[edges.target]).any():
        raise GraphError("an edge joins two graphs of the batch")
    order = np.argsort(owner, kind="stable")
    edges = edges.part(order, 0, edges.n_nodes)
    owner = owner[order]
    first_edge = np.searchsorted(owner, np.arange(len(sizes) + 1))
    # 2. large graphs by the certified pipeline
    for member in np.flatnonzero(sizes > MAX_DENSE_NODES):
        chosen = slice(first_edge[member], first_edge[member + 1])
        graph = edges.part(chosen, bounds[member], int(sizes[member])).graph()
        pairs = smallest_eigenpairs(graph, k, kind=kind, tol=tol, isolated_value=ISOLATED_VALUE, seed=seed)
        encoding = _with_pairs(encoding, bounds, np.array([member]), pairs.stacked(), pairs.converged)
    # 3. small graphs of one size, as many as a stack holds
    for size in np.unique(sizes[sizes <= MAX_DENSE_NODES]):
        members = np.flatnonzero(sizes == size)
        for part in np.array_split(members, -(-len(members) * size**2 // MAX_STACK_NUMBERS)):
            stack = _stack(edges, owner, first_edge, bounds, part, int(size))
            encoding = _with_pairs(encoding, bounds, part, dense_eigenpairs(stack, k, kind=kind), True)
    return encoding


def _stack(edges: _Edges, owner: Array, first_edge: Array, bounds: Array, members: Array, size: int) -> Array:
    """Dense symmetric weights of graphs of one size, by one scatter of all their edges."""
    counts = first_edge[members + 1] - first_edge[members]
    ends = np.cumsum(counts)
    # the numbers of all edges of the members, without a loop over them
    chosen = np.arange(counts.sum()) + np.repeat(first_edge[members] - ends + counts, counts)
    slot = np.repeat(np.arange(len(members)), counts)
    start = bounds[owner[chosen]]
    row = edges.source[chosen] - start
    column = edges.target[chosen] - start
    weights = None if edges.weights is None else edges.weights[chosen]
    entries = len(members) * size**2
    stack = np.bincount((slot * size + row) * size + column, weights, entries).astype(np.float64)
    stack = stack.reshape(len(members), size, size)
    return np.maximum(stack, stack.transpose(0, 2, 1))


def _empty_encoding(bounds: Array, k: int) -> LaplacianEncoding:
    """Encodings of graphs without any eigenvector: zeros, and NaN for what does not exist."""
    shape = (len(bounds) - 1, k)
    return LaplacianEncoding(np.zeros((bounds[-1], k)), np.full(shape, np.nan), np.full(shape, np.nan), True)


def _with_pairs(
    encoding: LaplacianEncoding, bounds: Array, members: Array, pairs: StackedEigenpairs, converged: bool
) -> LaplacianEncoding:
    """Mutates: the encodings of graphs of one size, from their eigenpairs but the first."""
    n_graphs, size, count = pairs.vectors.shape
    rows = (bounds[members][:, None] + np.arange(size)).ravel()
    encoding.vectors[rows, : count - 1] = pairs.vectors[:, :, 1:].reshape(n_graphs * size, count - 1)
    encoding.eigenvalues[members, : count - 1] = pairs.values[:, 1:]
    encoding.residuals[members, : count - 1] = pairs.residuals[:, 1:]
    return replace(encoding, converged=encoding.converged and converged)


def _to_numpy(array: object) -> Array:
    return np.asarray(array.detach().cpu().numpy() if hasattr(array, "detach") else array)


def _like(tensor: Any, array: Array) -> Any:
    """The array as a tensor on the device of another one; as it is where there is none."""
    return array if tensor is None else need("torch", "laplacian_pe").from_numpy(array).to(tensor.device)
