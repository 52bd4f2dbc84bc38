"""Synthetic graphs with known clusters: Gaussian mixtures, block models, and a graph that grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.points.knn_graph import knn_graph
from spectrograd.points.query import Weights
from spectrograd.typing import Array

Seed = int | np.random.Generator | None

# Rounds of drawing anew what was drawn twice; hubs of extreme degree may stay a few edges short after them.
MAX_ROUNDS = 50
# How finely expected degrees are distinguished in a degree-corrected block model.
TICKETS_PER_NODE = 16


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """A graph and the true cluster of each node."""

    graph: Graph
    labels: Array


@dataclass(frozen=True, eq=False)
class LayeredData:
    """A multilayer graph, the true cluster of each node, and the points each layer was built from."""

    graph: MultilayerGraph
    labels: Array
    points: tuple[Array, ...]


def make_gaussian_mixture(
    n_points: int = 10_000,
    n_clusters: int = 5,
    *,
    n_features: int = 2,
    separation: float = 4.0,
    random_state: Seed = None,
) -> tuple[Array, Array]:
    """Draw points around random means with unit covariance; clusters of equal size, in random order.

    Parameters
    ----------
    n_points, n_clusters, n_features
        Sizes.
    separation
        Distance from a mean to the nearest other mean, averaged over the clusters, in standard deviations.
    random_state
        Seed or numpy Generator.

    Returns
    -------
    points, labels
        N x p coordinates and the cluster of each point.

    Examples
    --------
    >>> points, labels = make_gaussian_mixture(100, 4, random_state=0)
    >>> points.shape, np.bincount(labels).tolist()
    ((100, 2), [25, 25, 25, 25])
    """
    rng = np.random.default_rng(random_state)
    labels = _shuffled_labels(n_points, n_clusters, rng)
    return _mixture_points(labels, n_features, separation, rng), labels


def make_multilayer_gmm(
    n_nodes: int = 10_000,
    n_layers: int = 3,
    n_clusters: int = 5,
    *,
    n_neighbors: int = 5,
    separation: float = 1.9,
    weights: Weights = "self-tuned",
    random_state: Seed = None,
) -> LayeredData:
    """Draw layers that share their clusters but not their layout: k-NN graphs of planar Gaussian mixtures.

    Each layer places the means anew, so clusters that overlap in one are apart in another: a layer alone is
    ambiguous, all together are not. With the defaults the exact projection merge (Eq. 22) scores about
    purity .93 and NMI .82, as in the paper's synthetic experiment.

    Parameters
    ----------
    n_nodes, n_layers, n_clusters
        Sizes.
    n_neighbors
        Neighbours of each node in each layer.
    separation
        As in :func:`make_gaussian_mixture`, in every layer. The paper does not print its own; 1.9 is the one
        whose exact merge has the paper's scores.
    weights
        As in :func:`knn_graph`.
    random_state
        Seed or numpy Generator.

    Examples
    --------
    >>> make_multilayer_gmm(200, random_state=0).graph.n_layers
    3
    """
    if n_layers < 1:
        raise ValueError(f"n_layers is {n_layers}; at least one layer is needed")
    rng = np.random.default_rng(random_state)
    labels = _shuffled_labels(n_nodes, n_clusters, rng)
    points = tuple(_mixture_points(labels, 2, separation, rng) for _ in range(n_layers))
    layers = [knn_graph(layer, n_neighbors, weights=weights) for layer in points]
    return LayeredData(MultilayerGraph.from_layers(layers), labels, points)


def make_block_model(
    n_nodes: int = 10_000,
    n_clusters: int = 5,
    *,
    mean_degree: float = 20.0,
    mixing: float = 0.2,
    degree_exponent: float | None = None,
    random_state: Seed = None,
) -> LabelledGraph:
    """Draw an unweighted graph with planted blocks of equal size; nodes come in random order.

    Parameters
    ----------
    n_nodes, n_clusters
        Sizes.
    mean_degree
        Twice the number of edges over the number of nodes.
    mixing
        Fraction of the edges that join different blocks (none do when there is one block).
    degree_exponent
        None for degrees that are nearly equal; otherwise the exponent (above 2) of the power law that the
        expected degrees follow (degree-corrected model).
    random_state
        Seed or numpy Generator.

    Notes
    -----
    A node without any edge is joined to a random node of its block.

    Examples
    --------
    >>> make_block_model(1_000, 4, mean_degree=10, random_state=0).graph.n_edges
    5000
    """
    _check_block_model(n_nodes, n_clusters, mean_degree, mixing, degree_exponent)
    rng = np.random.default_rng(random_state)
    labels = _shuffled_labels(n_nodes, n_clusters, rng)
    urn = _Urn.fill(labels, degree_exponent, rng)
    n_edges = round(n_nodes * mean_degree / 2)
    n_across = round(n_edges * mixing) if n_clusters > 1 else 0
    keys = np.concatenate(
        [
            _distinct_edges(urn, n_edges - n_across, False, rng),
            _distinct_edges(urn, n_across, True, rng),
        ]
    )
    keys = _with_lone_nodes_joined(keys, labels, rng)
    return LabelledGraph(_graph_of_keys(keys, n_nodes), labels)


@dataclass(frozen=True, eq=False)
class _Urn:
    """Tickets with node numbers, block after block; a node of high expected degree has many.

    ``tickets[start[b] : start[b + 1]]`` belong to block b: one random number per draw, whatever the degrees.
    """

    labels: Array
    tickets: Array
    start: Array

    @classmethod
    def fill(cls, labels: Array, degree_exponent: float | None, rng: np.random.Generator) -> _Urn:
        members = np.argsort(labels, kind="stable").astype(np.int32)
        if degree_exponent is None:
            copies = np.ones(len(labels), dtype=np.int64)
        else:
            # numpy's pareto(a) starts at 0 and has the density exponent a + 1
            propensity = 1 + rng.pareto(degree_exponent - 1, size=len(labels))
            copies = np.ceil(TICKETS_PER_NODE * propensity / propensity.mean()).astype(np.int64)
        per_block = np.bincount(labels[members], copies).astype(np.int64)
        return cls(labels, np.repeat(members, copies), np.concatenate([[0], np.cumsum(per_block)]))

    def draw(self, blocks: Array, rng: np.random.Generator) -> Array:
        """Draw one node of each of the blocks, in proportion to its tickets."""
        first = self.start[:-1]
        size = np.diff(self.start)
        place = rng.random(len(blocks))
        place *= size[blocks]
        at = place.astype(np.int64)
        at += first[blocks]
        return self.tickets[at].astype(np.int64)


def _distinct_edges(urn: _Urn, n_edges: int, across: bool, rng: np.random.Generator) -> Array:
    """Keys ``i * N + j``, i < j, sorted, of edges that all stay inside the blocks or all leave them."""
    n_nodes = len(urn.labels)
    n_blocks = len(urn.start) - 1
    keys = np.empty(0, dtype=np.int64)
    for _ in range(MAX_ROUNDS):
        missing = n_edges - len(keys)
        if missing == 0:
            break
        # A block's share of the edge ends is its share of the nodes.
        blocks = urn.labels[rng.integers(n_nodes, size=missing)]
        first = urn.draw(blocks, rng)
        if across:
            blocks = (blocks + rng.integers(1, n_blocks, size=missing)) % n_blocks
        second = urn.draw(blocks, rng)
        drawn = _edge_keys(first, second, n_nodes)[first != second]
        keys = _sorted_unique(np.concatenate([keys, drawn]))
    return keys


def _edge_keys(first: Array, second: Array, n_nodes: int) -> Array:
    return np.asarray(np.minimum(first, second) * n_nodes + np.maximum(first, second))


def _sorted_unique(keys: Array) -> Array:
    """Sort in place and drop repeats; several times faster here than the hash table of ``np.unique``."""
    keys.sort()
    fresh = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys[fresh]


def _with_lone_nodes_joined(keys: Array, labels: Array, rng: np.random.Generator) -> Array:
    n_nodes = len(labels)
    seen = np.zeros(n_nodes, dtype=bool)
    rows, cols = np.divmod(keys, n_nodes)
    seen[rows] = seen[cols] = True
    lone = np.flatnonzero(~seen)
    order = np.argsort(labels, kind="stable")
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[order] = np.arange(n_nodes)
    sizes = np.bincount(labels)
    start = (np.cumsum(sizes) - sizes)[labels[lone]]
    size = sizes[labels[lone]]
    # A step of 1 .. size - 1 around the block never comes back to the node itself.
    partner = order[start + (rank[lone] - start + rng.integers(1, size)) % size]
    return np.concatenate([keys, _sorted_unique(_edge_keys(lone, partner, n_nodes))])


def _graph_of_keys(keys: Array, n_nodes: int) -> Graph:
    keys = np.sort(keys, kind="stable")  # merges the sorted runs it is made of
    rows, cols = np.divmod(keys, n_nodes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_nodes))])
    ones = np.ones(len(keys), dtype=np.float32)
    upper = sp.csr_array((ones, cols.astype(np.int32), indptr.astype(np.int32)), shape=(n_nodes, n_nodes))
    return Graph._from_clean_csr(sp.csr_array(upper + upper.T.tocsr()), None)


def _check_block_model(
    n_nodes: int, n_clusters: int, mean_degree: float, mixing: float, degree_exponent: float | None
) -> None:
    if n_clusters < 1 or n_nodes < 2 * n_clusters:
        raise ValueError(f"{n_nodes} nodes for {n_clusters} blocks: every block needs at least two nodes")
    if not 0 <= mixing <= 1:
        raise ValueError(f"mixing is {mixing}; it is a fraction, 0..1")
    if degree_exponent is not None and degree_exponent <= 2:
        raise ValueError(f"degree_exponent is {degree_exponent}; degrees have a finite mean only above 2")
    inside = n_nodes // n_clusters - 1
    capacity = {"inside": inside, "across": n_nodes - inside - 2}
    wanted = {"inside": mean_degree * (1 - mixing), "across": mean_degree * mixing}
    if n_clusters == 1:
        capacity = {"inside": inside}
        wanted = {"inside": mean_degree}
    for where, degree in wanted.items():
        if not 0 <= degree <= capacity[where] / 2:
            raise ValueError(
                f"mean_degree {mean_degree} with mixing {mixing} asks for {degree:g} neighbours {where} "
                f"the blocks; 0..{capacity[where] / 2:g} can be drawn"
            )


def _shuffled_labels(n_nodes: int, n_clusters: int, rng: np.random.Generator) -> Array:
    """Equal blocks (up to one node) in random order."""
    if not 1 <= n_clusters <= n_nodes:
        raise ValueError(f"n_clusters is {n_clusters}; with {n_nodes} nodes it must be in 1..{n_nodes}")
    return rng.permutation(np.arange(n_nodes) % n_clusters)


def _mixture_points(labels: Array, n_features: int, separation: float, rng: np.random.Generator) -> Array:
    """Points of one layer around random means, each ``separation`` from the nearest other on average."""
    n_clusters = int(labels.max()) + 1
    means = rng.standard_normal((n_clusters, n_features))
    if n_clusters > 1:
        gaps = np.linalg.norm(means[:, None] - means, axis=2)
        np.fill_diagonal(gaps, np.inf)
        means *= separation / gaps.min(axis=1).mean()
    return np.asarray(means[labels] + rng.standard_normal((len(labels), n_features)))


# --- Graphs like those of the GraphChallenge's streaming-partition task (static), with known blocks.

# The numbers of the challenge's own generator (Kao et al., Streaming graph challenge: stochastic block
# partition, 2017): N^0.35 blocks of Dirichlet sizes, in- and out-degrees by one power law.
BLOCK_EXPONENT = 0.35
EVENNESS = 10.0
LEAST_DEGREE = 10
LARGEST_DEGREE = 100
DEGREE_EXPONENT = 2.5
INSIDE_OVER_OUTSIDE = 5.0


def make_partition_graph(
    n_nodes: int = 20_000,
    n_clusters: int | None = None,
    *,
    ratio: float = INSIDE_OVER_OUTSIDE,
    evenness: float = EVENNESS,
    random_state: Seed = None,
) -> LabelledGraph:
    """Draw a degree-corrected block model with uneven blocks and power-law degrees.

    Parameters
    ----------
    n_nodes
        Nodes; 2 million have 160 blocks.
    n_clusters
        Blocks; None is ``N^0.35``, as in the challenge (32 of 20,000 nodes).
    ratio
        Edge ends that stay in their block over those that leave it (5: easy; 2 to 3: the hard ones).
    evenness
        Parameter of the symmetric Dirichlet distribution of block sizes (10: low variation; 10 / 3: high).
    random_state
        Seed or numpy Generator.

    Notes
    -----
    A node has the sum of two degrees (the challenge's graphs are directed), each by a power law with exponent
    2.5 between 10 and 100, mean about 42; less where blocks have fewer than 100 nodes. Edges that are drawn
    twice count once and loops are dropped, so that the largest degrees end a little below what was drawn.

    Examples
    --------
    >>> made = make_partition_graph(2_000, random_state=0)
    >>> made.graph.n_nodes, int(made.labels.max()) + 1
    (2000, 14)
    """
    k = round(n_nodes**BLOCK_EXPONENT) if n_clusters is None else n_clusters
    if not 1 <= k <= n_nodes // LEAST_DEGREE:
        raise ValueError(
            f"n_clusters is {k}; with {n_nodes} nodes it must be in 1..{n_nodes // LEAST_DEGREE}"
        )
    for name, value in (("ratio", ratio), ("evenness", evenness)):
        if not value > 0:
            raise ValueError(f"{name} is {value}; expected a positive number")
    rng = np.random.default_rng(random_state)
    sizes = np.maximum(LEAST_DEGREE, rng.dirichlet(np.full(k, evenness)) * n_nodes)
    labels = rng.permutation(np.searchsorted(np.cumsum(sizes) / sizes.sum(), rng.random(n_nodes)))
    _, labels = np.unique(labels, return_inverse=True)  # a block that got nobody is none
    stubs = rng.permutation(
        np.repeat(np.arange(n_nodes, dtype=np.int32), _degrees(n_nodes, n_nodes // k, rng))
    )
    n_inside = round(len(stubs) * ratio / (1 + ratio))
    inside = stubs[:n_inside]
    inside = inside[np.argsort(labels[inside], kind="stable")]  # neighbours in this list share their block
    ends = np.concatenate([_paired(inside), _paired(stubs[n_inside:])])
    first = ends.min(axis=1)
    second = ends.max(axis=1)
    keys = np.unique(first.astype(np.int64) * n_nodes + second)
    heads = keys // n_nodes
    tails = keys % n_nodes
    apart = heads != tails
    graph = Graph.from_edges(heads[apart], tails[apart], n_nodes=n_nodes)
    return LabelledGraph(graph, labels)


def _degrees(n_nodes: int, block_size: int, rng: np.random.Generator) -> np.ndarray:
    """In- and out-degrees together, each by a power law that fits into a block."""
    least = max(1, min(LEAST_DEGREE, block_size // 4))
    degrees = np.arange(least, min(LARGEST_DEGREE, block_size) + 1)
    chances = degrees**-DEGREE_EXPONENT
    return np.asarray(rng.choice(degrees, (2, n_nodes), p=chances / chances.sum()).sum(axis=0))


def _paired(stubs: np.ndarray) -> np.ndarray:
    """Neighbours in the list joined to edges, shape (n / 2, 2); one that is left over is dropped."""
    return stubs[: len(stubs) // 2 * 2].reshape(-1, 2)


# --- A graph that grows by the day, and in which two groups come apart: for models that follow their graph.


@dataclass(frozen=True, eq=False)
class Day:
    """Edges that come (with the people who sign up) and go: row numbers, of shape (n, 2)."""

    added: Array
    removed: Array


@dataclass(frozen=True, eq=False)
class GrowingGraph:
    """The graph before the first day, what each day changes, and the group of everybody (n_nodes,)."""

    first: Graph
    days: tuple[Day, ...]
    labels: Array


def make_growing_graph(
    n_start: int = 800,
    n_days: int = 30,
    *,
    per_day: int = 12,
    n_groups: int = 4,
    apart_from: int = 15,
    random_state: int | None = None,
) -> GrowingGraph:
    """People who sign up with their friends so far, and two groups that begin as one.

    Parameters
    ----------
    n_start, n_days, per_day : int
        People at the start, days, and how many come on each.
    n_groups : int
        Planted groups; ties hold the first two together.
    apart_from : int
        The day (from 1) on which these ties begin to go, evenly until the last one.
    random_state : int, optional
        For reproducible graphs.
    """
    rng = np.random.default_rng(random_state)
    n_nodes = n_start + per_day * n_days
    model = make_block_model(n_nodes, n_groups, mean_degree=20, mixing=0.15, random_state=random_state)
    people = rng.permutation(n_nodes)
    labels = np.empty(n_nodes, dtype=np.int64)
    labels[people] = model.labels
    entries = model.graph.matrix.tocoo()
    once = entries.row < entries.col
    friends = people[np.column_stack([entries.row[once], entries.col[once]])]
    ties = _ties(labels[:n_start], friends, rng)
    day_of_person = np.maximum(0, (np.arange(n_nodes) - n_start) // per_day + 1)
    day_of_edge = day_of_person[friends].max(axis=1)
    shares = iter(np.array_split(ties, max(1, n_days - apart_from + 1)))
    days = tuple(
        Day(friends[day_of_edge == day], next(shares) if day >= apart_from else ties[:0])
        for day in range(1, n_days + 1)
    )
    start = np.vstack([friends[day_of_edge == 0], ties])
    return GrowingGraph(Graph.from_edges(start[:, 0], start[:, 1], n_nodes=n_start), days, labels)


def _ties(labels: Array, friends: Array, rng: np.random.Generator) -> Array:
    """Edges between the first two groups that are not there, about eight per person, in random order."""
    sides = [np.flatnonzero(labels == group) for group in (0, 1)]
    drawn = np.column_stack([rng.choice(side, 8 * len(sides[0])) for side in sides])
    keys = len(labels) * drawn.min(axis=1) + drawn.max(axis=1)
    inside = friends[(friends < len(labels)).all(axis=1)]
    known = len(labels) * inside.min(axis=1) + inside.max(axis=1)
    fresh = np.setdiff1d(keys, known)
    return rng.permutation(np.column_stack(np.divmod(fresh, len(labels))))
