"""Positions of nodes: layouts for pictures, and starting points for UMAP and t-SNE.

Positions are the eigenvectors after the first. A graph in several components has none that would tell them
apart *and* show their shape: each component gets eigenvectors of its own, and they stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from spectrograd.graph import Graph, GraphError
from spectrograd.graph.components import subgraph
from spectrograd.io.interop import graph_of
from spectrograd.io.interop.networkx import from_networkx, is_networkx
from spectrograd.notices import warn
from spectrograd.operators.laplacian import Kind
from spectrograd.pipeline.eigenpairs import smallest_eigenpairs
from spectrograd.points import knn_graph
from spectrograd.system import need
from spectrograd.typing import Array

Target = Literal["umap", "opentsne"]
UMAP_EXTENT = 10.0  # largest coordinate of UMAP's own spectral start
UMAP_NOISE = 1e-4  # standard deviation of what UMAP adds to it, so that no two points coincide
TSNE_DEVIATION = 1e-4  # standard deviation of the first column that t-SNE starts from (Kobak & Berens 2019)
TSNE_NOISE_SHARE = 0.01  # of that deviation: openTSNE's jitter
COMPONENT_MARGIN = 0.1  # of a component's radius: the space between two of them


def layout(
    G: Any,
    weight: str | None = "weight",
    scale: float = 1,
    center: ArrayLike | None = None,
    dim: int = 2,
    store_pos_as: str | None = None,
) -> dict[Any, Array]:
    """Position the nodes by eigenvectors of the Laplacian, as ``networkx.spectral_layout`` does.

    Parameters
    ----------
    G : networkx graph, Graph, igraph or PyG graph, or adjacency matrix
        Directions are dropped. Components stand side by side, where networkx puts them on single points.
    weight : str or None
        Edge attribute of a networkx graph with the weight; None: every edge weighs one.
    scale : float
        The largest coordinate, in absolute value, about ``center``.
    center : array-like of length ``dim``, optional
        The middle of the picture.
    dim : int
        Number of coordinates.
    store_pos_as : str, optional
        A node attribute of a networkx graph that is to hold the position as well.

    Returns
    -------
    dict
        Node -> array of ``dim`` coordinates.

    Examples
    --------
    >>> positions = layout(Graph.from_edges(["a", "b", "c"], ["b", "c", "d"]))
    >>> sorted(positions, key=lambda node: positions[node][0])[1:3] in (["b", "c"], ["c", "b"])
    True
    """
    middle = np.zeros(dim) if center is None else np.asarray(center, np.float64)
    if middle.shape != (dim,):
        raise ValueError(f"center has shape {middle.shape}; length of center must match dim={dim}")
    if is_networkx(G) and len(G) == 0:
        return {}
    graph = from_networkx(G, weight=weight) if is_networkx(G) else as_one_graph(G)
    coordinates = component_positions(graph, dim, kind="unnormalized")
    coordinates = coordinates - coordinates.mean(axis=0)
    largest = np.abs(coordinates).max()
    coordinates = middle + coordinates * (scale / largest if largest else 1.0)
    nodes = list(G) if is_networkx(G) else graph.node_names.tolist()
    positions = dict(zip(nodes, coordinates, strict=True))
    if store_pos_as is not None:
        need("networkx", "store_pos_as").set_node_attributes(G, positions, store_pos_as)
    return positions


def umap_init(
    X: object,
    n_components: int = 2,
    *,
    n_neighbors: int = 15,
    metric: str = "euclidean",
    target: Target = "umap",
    random_state: int | None = 0,
) -> Array:
    """Compute the spectral start of UMAP or t-SNE, whatever the components of the graph.

    ``UMAP(init=umap_init(X))``, or with the graph of a fitted UMAP, ``umap_init(reducer.graph_)``; and
    ``openTSNE.TSNE(initialization=umap_init(X, target="opentsne"))``.

    Parameters
    ----------
    X : array of shape (n_points, n_features), or a graph
        Points, whose neighbours make the graph; or a sparse matrix, :class:`Graph`, networkx, igraph or PyG
        graph, or an AnnData with neighbours.
    n_components : int
        Number of coordinates.
    n_neighbors, metric
        Of the graph of the points, as UMAP's parameters.
    target : {"umap", "opentsne"}
        "umap": the largest coordinate is 10, with noise of 1e-4. "opentsne": the first column has the
        standard deviation 1e-4, with noise of a hundredth of it.
    random_state : int or None
        Seed of the noise, and of the solver's start.

    Returns
    -------
    array of shape (n_points, n_components), float32 for UMAP, float64 for t-SNE
    """
    if target not in ("umap", "opentsne"):
        raise ValueError(f"target={target!r}: expected 'umap' or 'opentsne'")
    if isinstance(X, np.ndarray) and X.ndim == 2:
        graph = knn_graph(X, n_neighbors, metric=metric)
    else:
        graph = as_one_graph(X)
    coordinates = component_positions(graph, n_components, kind="symmetric", seed=random_state)
    noise = np.random.default_rng(random_state).standard_normal(coordinates.shape)
    if target == "umap":
        largest = np.abs(coordinates).max() or 1.0
        return np.asarray(coordinates * (UMAP_EXTENT / largest) + UMAP_NOISE * noise, np.float32)
    deviation = coordinates[:, 0].std() or 1.0
    jitter = TSNE_NOISE_SHARE * TSNE_DEVIATION * noise
    return np.asarray(coordinates * (TSNE_DEVIATION / deviation) + jitter)


def as_one_graph(given: object) -> Graph:
    """A graph of whatever holds one: another library's object, a matrix, or a Graph."""
    if isinstance(given, Graph):
        return given
    graph = graph_of(given)
    if graph is None:
        return Graph.from_matrix(given)
    if not isinstance(graph, Graph):
        raise GraphError(f"{type(given).__name__} holds several layers; give one of them")
    return graph


def component_positions(graph: Graph, dim: int, *, kind: Kind, seed: int | None = 0) -> Array:
    """Coordinates of all nodes: the eigenvectors of each component, the components side by side.

    Parameters
    ----------
    graph
        May have any number of components.
    dim
        Number of coordinates.
    kind
        Which Laplacian.
    seed
        Of the solver's start.

    Returns
    -------
    array of shape (n_nodes, dim)
    """
    labels = graph.components
    sizes = np.bincount(labels)
    coordinates = np.zeros((graph.n_nodes, dim))
    order = np.argsort(-sizes, kind="stable")
    # A component's area is its share of the nodes.
    radii = np.sqrt(sizes[order] / graph.n_nodes)
    centers = pack_in_rows(radii * (1 + COMPONENT_MARGIN)) if len(sizes) > 1 else np.zeros((1, 2))
    rows_by_component = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    for component, radius, center in zip(order, radii, centers, strict=True):
        rows = rows_by_component[component]
        local = _positions_of_connected(subgraph(graph, rows), dim, kind, seed)
        coordinates[rows] = local * radius
        coordinates[rows, : min(dim, 2)] += center[: min(dim, 2)]
    return coordinates


def _positions_of_connected(graph: Graph, dim: int, kind: Kind, seed: int | None) -> Array:
    """The eigenvectors after the first, the largest entry scaled to one; zeros for those it lacks."""
    coordinates = np.zeros((graph.n_nodes, dim))
    n_vectors = min(dim, graph.n_nodes - 1)
    if n_vectors == 0:
        return coordinates
    pairs = smallest_eigenpairs(graph, n_vectors + 1, kind=kind, tol="auto", seed=seed)
    if not pairs.converged:
        largest = float(pairs.residuals.max())
        warn(f"positions of {graph.n_nodes:,} nodes did not converge: residual {largest:.2g}", RuntimeWarning)
    coordinates[:, :n_vectors] = pairs.vectors[:, 1:]
    return np.asarray(coordinates / np.abs(coordinates).max())


def pack_in_rows(radii: Sequence[float] | Array) -> Array:
    """Put discs of falling size beside each other, in rows of about the same length.

    Parameters
    ----------
    radii : array of shape (n,)
        Falling.

    Returns
    -------
    array of shape (n, 2)
        Centres; no two discs overlap.

    Examples
    --------
    >>> pack_in_rows([1.0, 1.0, 1.0, 1.0]).tolist()
    [[1.0, 1.0], [3.0, 1.0], [1.0, 3.0], [3.0, 3.0]]
    """
    widths = 2 * np.asarray(radii, np.float64)
    length = max(float(np.sqrt(np.square(widths).sum())), float(widths[0]))
    centers = np.zeros((len(widths), 2))
    x = 0.0
    y = 0.0
    row_height = float(widths[0])
    for i, width in enumerate(widths):
        if x + width > length * (1 + 1e-9):
            x = 0.0
            y += row_height
            row_height = float(width)
        centers[i] = x + width / 2, y + row_height / 2
        x += width
    return centers
