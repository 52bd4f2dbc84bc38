"""The second verdict: are the clusters more than chance would give? The certificate is about eigenvectors.

Measured against a random graph with the same numbers of neighbours and the same weights, which is clustered
in the same way (docs/trust.md): whatever can be cut there can be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from spectrograd.graph import Graph
from spectrograd.labels import assign
from spectrograd.labels.kmeans import unit_rows
from spectrograd.labels.neighbor_labels import follow_neighbours, small_blocks
from spectrograd.labels.sampled_kmeans import membership
from spectrograd.operators.laplacian import form_of
from spectrograd.operators.similarity import SimilarityOperator
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.layer_weights import TRACY_WIDOM
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.settings import Settings
from spectrograd.store.shuffled_edges import Edges
from spectrograd.store.stored_graph import StoredGraph
from spectrograd.typing import Array, JsonObject

CLEAR = "clear"
WEAK = "weak"
NONE = "none beyond chance"
NOT_JUDGED = "not judged"
# A random graph is drawn twice, with at most so many nodes and clusters: its figures hardly depend on either.
# Small ones differ more from draw to draw and are drawn four times; of few neighbours more nodes are needed,
# since what dangles there grows with their number.
N_DRAWS = 2
MAX_NULL_NODES = 1000
MAX_NULL_CLUSTERS = 20
MAX_SMALL_NODES = 600
MAX_SPARSE_NEIGHBOURS = 6.0
# Mean neighbours below which nothing is called clear: random graphs then fall into pieces and dangling trees
# that differ from draw to draw by more than clusters do (8 of 192 such graphs looked clear).
MIN_CLEAR_NEIGHBOURS = 4.0
# Neighbours per node over nodes per cluster above which nothing is called clear: a cluster smaller than a
# neighbourhood looks compact also in an even cloud of points.
MAX_CLEAR_CROWDING = 1.0
N_STARTS = 3  # of k-means on it
MAX_DENSE_NODES = 150  # nodes up to which all eigenvectors are found faster than some
EIGENVALUE_TOLERANCE = 1e-2  # of its eigenvalues: the square of that is far below what two draws differ by
MAX_SAMPLED_EDGES = 1 << 20  # of a graph on disk: shares of weight to a thousandth, and little memory
MAX_DRAWN_WEIGHTS = 4096  # of the graph, that those of a random one are drawn from
# Of the way from chance to no edge cut: below the first nothing shows, from the second on much does.
MIN_STRENGTH = 0.08
CLEAR_STRENGTH = 0.15
N_DEVIATIONS = 2.0  # standard deviations of the draws, added to the second
MIN_DEVIATIONS = 3.0  # ... that must be exceeded for anything to show, which counts in small graphs
LOPSIDED_SHARE = 0.9  # of the nodes in one cluster
TINY_SHARE = 0.1  # of a cluster's fair share of the volume: the bound of localised eigenvectors
CONFIDENCE_MARGIN = 0.08  # by how much confidence must exceed that of an even cloud


@dataclass(frozen=True)
class ClusterVerdict:
    """Whether the clusters are more than chance would give, and by which figures.

    Attributes
    ----------
    verdict
        "clear", "weak", "none beyond chance", or "not judged".
    conductance, chance_conductance
        Mean over the clusters, and that of the clusters of a random graph with the same degrees.
    strength
        How far the share of weight that stays inside goes from chance (0) to no edge cut (1).
    chance_spread
        Standard deviation of the strength of random graphs.
    confidence, chance_confidence, needed_confidence
        Mean membership, that in the random graph, and what an even cloud of points that is cut as well has.
    largest_share
        Of the nodes that take part, those in the largest cluster.
    n_tiny
        Clusters with less than a tenth of their fair share of the volume.
    eigenvalue, chance_eigenvalue
        Second smallest of the graph, and of the random one: its bulk begins there. None for layers, and for
        the unnormalised Laplacian.
    n_beyond
        Eigenvalues found, the trivial one not counted, that lie below that bulk.
    reason
        Why nothing was judged, or what else the verdict rests on.
    """

    verdict: str
    n_clusters: int
    conductance: float | None = None
    chance_conductance: float | None = None
    strength: float | None = None
    chance_spread: float | None = None
    confidence: float | None = None
    chance_confidence: float | None = None
    needed_confidence: float | None = None
    largest_share: float | None = None
    n_tiny: int = 0
    eigenvalue: float | None = None
    chance_eigenvalue: float | None = None
    n_beyond: int | None = None
    reason: str = ""

    @property
    def is_lopsided(self) -> bool:
        """Whether nearly all nodes are in one cluster, or most clusters are tiny pieces."""
        share = self.largest_share or 0.0
        return self.n_clusters > 1 and (share >= LOPSIDED_SHARE or 2 * self.n_tiny > self.n_clusters)

    @property
    def short(self) -> str:
        """For a line: the verdict, and conductance beside that of chance."""
        if self.conductance is None or self.chance_conductance is None:
            return f"{self.verdict} ({self.reason})" if self.reason else self.verdict
        return f"{self.verdict} (conductance {self.conductance:.2f}, by chance {self.chance_conductance:.2f})"

    @property
    def sentence(self) -> str:
        """The verdict in plain words, with what to try where it is not a good one."""
        sentences = [f"clusters: {self.short}"]
        sentences += [] if self.reason else [self._meaning()]
        if self.is_lopsided:
            sentences.append(self._lopsided())
        return "; ".join(sentences)

    def _meaning(self) -> str:
        if self.verdict == NONE:
            return "a random graph with the same degrees is cut as well: do not read anything into them"
        if self.verdict == CLEAR:
            return (
                "better than in random graphs with the same degrees, with clearer borders than the cells of "
                "an even cloud of points usually have"
            )
        if (self.strength or 0.0) < CLEAR_STRENGTH:
            return "hardly better than in a random graph with the same degrees; try another number of them"
        if self.is_lopsided:
            return "better than in a random graph with the same degrees"
        if (self.confidence or 0.0) >= (self.needed_confidence or 0.0):
            return (
                "better than in a random graph with the same degrees, but nodes have so few neighbours, or "
                "clusters so few nodes, that graphs without clusters can look the same"
            )
        return (
            "better than in a random graph with the same degrees, but without clear borders "
            f"(confidence {self.confidence:.2f}; an even cloud of points that is cut as well may have "
            f"{self.needed_confidence:.2f}): the places of the cuts are arbitrary; try another number of them"
        )

    def _lopsided(self) -> str:
        share = self.largest_share or 0.0
        tiny = self.n_tiny
        what = [f"{share:.0%} of the nodes are in one cluster"] if share >= LOPSIDED_SHARE else []
        what += (
            [f"{tiny} of {self.n_clusters} clusters are tiny pieces"] if 2 * tiny > self.n_clusters else []
        )
        return " and ".join(what) + ": try regularization=1, more clusters, or to remove the dangling pieces"

    def summary(self) -> JsonObject:
        """The entries of ``--summary-json``."""
        return {**asdict(self), "sentence": self.sentence}


def judge_clusters(result: Result, settings: Settings) -> ClusterVerdict:
    """Compare the clusters of a result with those of small random graphs of the same degrees.

    In memory this takes one pass over the edges. Of a graph on disk the sample of random edges is read that
    its store holds, and no pass is made; without one nothing is judged, and that is said.
    """
    assert result.labels is not None
    k = int(result.n_clusters or 0)
    layers, weights = clustered_graphs(result)
    if not layers:
        return ClusterVerdict(NOT_JUDGED, k, reason="the edges are not at hand")
    if any(layer.is_signed for layer in layers):
        return ClusterVerdict(NOT_JUDGED, k, reason="the graph is signed: a random one has no share of signs")
    labels = result.labels[result.rows]
    shares = np.bincount(labels[labels >= 0], minlength=k) / max(1, int((labels >= 0).sum()))
    if k < 2:
        return ClusterVerdict(NOT_JUDGED, k, largest_share=1.0, reason="there is one cluster only")
    cuts = _measure_cuts(layers, weights, labels, k)
    if cuts is None:
        why = "the graph is on disk, and its store holds no sample of its edges"
        return ClusterVerdict(NOT_JUDGED, k, largest_share=float(shares.max()), reason=why)
    fair = TINY_SHARE * cuts.volume.sum() / k
    n_tiny = int((cuts.volume < fair).sum())
    sure = _mean_confidence(result, labels, k)
    base = (k, cuts.conductance)
    shown: JsonObject = {"confidence": sure, "largest_share": float(shares.max()), "n_tiny": n_tiny}
    if result.connectivity.groups is not None:
        return _judge_components(cuts, result, ClusterVerdict(CLEAR, *base, **shown), settings)
    tau = result.regularization.tau
    chance = _measure_chance(
        cuts, k, min(k, result.embedding.n_components), tau, result.norm_regularization, settings
    )
    if chance is None:
        why = "too few nodes for a random graph to compare with"
        return ClusterVerdict(NOT_JUDGED, *base, reason=why, **shown)
    strength = float(np.clip((cuts.inside - chance.inside) / max(1 - chance.inside, 1e-9), -1.0, 1.0))
    active = max(1, int((labels >= 0).sum()))
    crowding = cuts.neighbours * k / active
    needed = cloud_confidence(chance.confidence, strength, k, crowding) + CONFIDENCE_MARGIN
    spread = chance.spread / max(1 - chance.inside, 1e-9)
    shown |= {
        "chance_conductance": chance.conductance,
        "strength": strength,
        "chance_spread": spread,
        "chance_confidence": chance.confidence,
        "needed_confidence": needed,
        **_compare_eigenvalues(result, settings, chance),
    }
    found = ClusterVerdict(WEAK, *base, **shown)
    if strength < max(MIN_STRENGTH, MIN_DEVIATIONS * spread):
        return replace(found, verdict=NONE)
    is_strong = strength - N_DEVIATIONS * spread >= CLEAR_STRENGTH and sure >= needed
    is_doubtful = (
        found.is_lopsided or cuts.neighbours < MIN_CLEAR_NEIGHBOURS or crowding >= MAX_CLEAR_CROWDING
    )
    return replace(found, verdict=CLEAR) if is_strong and not is_doubtful else found


def _judge_components(
    cuts: _Cuts, result: Result, found: ClusterVerdict, settings: Settings
) -> ClusterVerdict:
    """No edge is cut; what is left to ask is whether a random graph falls apart as well."""
    sizes = result.connectivity.sizes
    rng = np.random.default_rng(settings.seed or 0)
    apart = 1 - float(sizes[0]) / float(sizes.sum())
    graph = random_graph(cuts.counts, cuts.drawn, cuts.scales, rng, 2 * MAX_NULL_NODES)
    n = min(2 * MAX_NULL_NODES, len(cuts.counts[0]))
    by_chance = 1.0 if graph is None else 1 - graph.n_nodes / n
    if apart <= by_chance + MIN_STRENGTH:
        why = "the graph falls into components, and a random one with the same degrees does as well"
        return replace(found, verdict=NONE, reason=why)
    why = "clusters of whole components: no edge between them"
    doubtful = found.is_lopsided or cuts.neighbours < MIN_CLEAR_NEIGHBOURS
    return replace(found, verdict=WEAK if doubtful else CLEAR, reason=why)


def cloud_confidence(by_chance: float, strength: float, n_clusters: int, crowding: float) -> float:
    """About the most confidence that clusters of points without any border reach, when they are cut so well.

    Neighbours of points that fill a cube evenly are cut well in few dimensions (a street, a square), and
    hardly better than a random graph in many; their clusters are cells with arbitrary borders. Between these
    ends the curve was drawn by hand near the upper edge of what was measured (1 to 40 dimensions, 2 to 40
    clusters, 200 to 2,000 points); some of these clouds lie above it. ``crowding`` is
    neighbours per node over nodes per cluster: where a cluster is hardly larger than a neighbourhood, cells
    too are seen clearly.
    """
    most = min(1.0, 0.68 + 0.2 / n_clusters + 0.25 * crowding)
    power = 1 + 0.5 * float(np.clip(1 - 2 * crowding, 0.0, 1.0))
    return float(by_chance + max(0.0, most - by_chance) * max(0.0, strength) ** power)


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Volumes of the clusters, their inner weight and joint nodes per layer, from one pass over the edges.

    ``counts`` are neighbours per node and ``drawn`` some weights, one of each per layer; ``scales`` is what
    the weights of a layer are multiplied with.
    """

    volume: Array
    within: Array
    counts: tuple[Array, ...] = ()
    drawn: tuple[Array | None, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def inside(self) -> float:
        """``(sum_c inside_c / volume_c - 1) / (K - 1)``: 1 - the normalised cut, so that chance is 0."""
        share = np.divide(self.within, self.volume, out=np.zeros(len(self.volume)), where=self.volume > 0)
        n_filled = max(2, int((self.volume > 0).sum()))
        return float((share.sum() - 1) / (n_filled - 1))

    @property
    def conductance(self) -> float:
        """Mean over the clusters, as in :func:`spectrograd.metrics.conductance`."""
        least = np.minimum(self.volume, self.volume.sum() - self.volume)
        cut = np.maximum(self.volume - self.within, 0)
        filled = least > 0
        return float(np.mean(cut[filled] / least[filled])) if filled.any() else 0.0

    @property
    def neighbours(self) -> float:
        """Mean number per node, all layers together."""
        return float(sum(each.sum() for each in self.counts) / max(1, int((self.counts[0] >= 0).sum())))


def clustered_graphs(result: Result) -> tuple[tuple[Graph, ...], Array]:
    """The graphs that were clustered, in the order of ``result.rows``, and their weights."""
    if result.merged is not None:
        inputs = result.merged.inputs
        operators = () if inputs is None else inputs.operators
        if any(isinstance(operator, SimilarityOperator) for operator in operators):
            return (), np.ones(1)  # these have no edges
        graphs = tuple(operator.graph for operator in operators)
        return graphs, np.asarray(result.merged.weights)
    operator = result.operator
    return ((operator.graph,) if isinstance(operator, SparseOperator) else ()), np.ones(1)


def _measure_cuts(layers: Sequence[Graph], weights: Array, labels: Array, k: int) -> _Cuts | None:
    """Cuts of all layers together; None where one of them is on disk and has no sample of its edges."""
    volume = np.zeros(k)
    within = np.zeros(k)
    counts: list[Array] = []
    drawn: list[Array | None] = []
    scales: list[float] = []
    part = labels >= 0
    for layer, weight in zip(layers, weights, strict=True):
        mean = float(layer.degrees[part].mean()) if part.any() else 0.0
        if weight <= 0 or mean <= 0:
            continue
        scale = float(weight) / mean  # every layer counts by its weight, whatever its units
        own_volume = np.bincount(labels[part], layer.degrees[part], k)
        found = (
            _measure_layer_cuts(layer, labels, k)
            if layer.is_resident
            else _estimate_layer_cuts(layer, labels, own_volume)
        )
        if found is None:
            return None
        own_within, neighbours, some_weights = found
        volume += scale * own_volume
        within += scale * own_within
        counts.append(neighbours[part])
        drawn.append(some_weights)
        scales.append(scale)
    return _Cuts(volume, within, tuple(counts), tuple(drawn), tuple(scales))


def _measure_layer_cuts(layer: Graph, labels: Array, k: int) -> tuple[Array, Array, Array | None]:
    """Weight inside each cluster, neighbours per node and some weights of a layer: one pass."""
    within = np.zeros(k)
    neighbours = np.zeros(len(labels), np.int64)
    some_weights: list[Array] = []
    step = max(1, layer.n_entries // MAX_DRAWN_WEIGHTS)
    for block in small_blocks(layer):
        rows = np.repeat(labels[block.start : block.stop], np.diff(block.indptr))
        neighbours[block.start : block.stop] = np.diff(block.indptr)
        same = (rows == labels[block.indices]) & (rows >= 0)
        within += np.bincount(rows[same], None if block.weights is None else block.weights[same], k)
        if block.weights is not None:
            some_weights.append(np.asarray(block.weights[::step], np.float64))
    return within, neighbours, np.concatenate(some_weights) if some_weights else None


def _estimate_layer_cuts(
    layer: Graph, labels: Array, volume: Array
) -> tuple[Array, Array, Array | None] | None:
    """As :func:`_measure_layer_cuts`, estimated from random edges of a graph on disk; None where it has none.

    The share of weight that stays inside a cluster is that of the sample, its ``volume`` is exact, and a node
    has as many neighbours as its degree has mean weights.
    """
    k = len(volume)
    edges = _sample_edges(layer)
    if edges is None:
        return None
    step = max(1, len(edges.source) // MAX_SAMPLED_EDGES)
    source = labels[edges.source[::step]]
    target = labels[edges.target[::step]]
    weight = np.ones(len(source)) if edges.weight is None else np.asarray(edges.weight[::step], np.float64)
    same = (source == target) & (source >= 0)
    inside = 2 * np.bincount(source[same], weight[same], k)
    ends = np.zeros(k)
    for each in (source, target):
        ends += np.bincount(each[each >= 0], weight[each >= 0], k)
    within = volume * np.divide(inside, ends, out=np.zeros(k), where=ends > 0)
    neighbours = np.rint(layer.degrees / weight.mean()).astype(np.int64)
    neighbours[layer.degrees > 0] = np.maximum(neighbours[layer.degrees > 0], 1)
    some_weights = None if edges.weight is None else weight[:: max(1, len(weight) // MAX_DRAWN_WEIGHTS)]
    return within, neighbours, some_weights


def _sample_edges(layer: Graph) -> Edges | None:
    """Random edges of a graph on disk: its sample, or one of its chunks in random order; None: neither."""
    if not isinstance(layer, StoredGraph):
        return None
    sample = layer.sample
    if sample is None and layer.meta.edges:
        source, target, weight = next(layer.edge_chunks(0))  # views of a buffer that is used again
        sample = Edges(source.copy(), target.copy(), None if weight is None else weight.copy())
    return sample if sample is not None and len(sample.source) else None


def _mean_confidence(result: Result, labels: Array, k: int) -> float:
    sure = result.membership
    if sure is None:
        part = labels >= 0
        rows = unit_rows(result.weighted_vectors[result.rows][part], result.norm_regularization)
        sure = membership(rows, labels[part], k)
    return float(np.nanmean(sure)) if np.isfinite(sure).any() else 0.0


def _compare_eigenvalues(result: Result, settings: Settings, chance: _Chance) -> JsonObject:
    is_plain = form_of(settings.laplacian) == "unnormalized"
    if result.merged is not None or is_plain or len(result.eigenvalues) < 2:
        return {}
    # The bulk of a larger graph begins lower: by less than six spreads of the smaller one's (Tracy-Widom).
    top = (1 - chance.eigenvalue) * (1 + 6 * TRACY_WIDOM * chance.n_nodes ** (-2 / 3))
    below = int((result.eigenvalues[1:] < 1 - top).sum())
    return {
        "eigenvalue": float(result.eigenvalues[1]),
        "chance_eigenvalue": chance.eigenvalue,
        "n_beyond": below,
    }


@dataclass(frozen=True)
class _Chance:
    """The result of the same procedure on a random graph."""

    inside: float
    conductance: float
    confidence: float
    eigenvalue: float
    n_nodes: float
    spread: float = 0.0  # of ``inside`` from draw to draw


def _measure_chance(
    cuts: _Cuts, k: int, n_columns: int, tau: float, norm_regularization: float, settings: Settings
) -> _Chance | None:
    rng = np.random.default_rng(0 if settings.seed is None else settings.seed)
    few = min(k, MAX_NULL_CLUSTERS)
    width = min(n_columns, max(few, 2))
    n_draws = 2 * N_DRAWS if len(cuts.counts[0]) <= MAX_SMALL_NODES else N_DRAWS
    draws = [_cluster_random_graph(cuts, few, width, tau, norm_regularization, rng) for _ in range(n_draws)]
    found = [astuple(draw) for draw in draws if draw is not None]
    if len(found) < N_DRAWS:
        return None
    mean = _Chance(*map(float, np.mean(found, axis=0)))
    return replace(mean, spread=float(np.std([draw[0] for draw in found], ddof=1)))


def _cluster_random_graph(
    cuts: _Cuts, k: int, width: int, tau: float, norm_regularization: float, rng: np.random.Generator
) -> _Chance | None:
    """Figures of one random graph; None where its largest component is too small."""
    n_nodes = MAX_NULL_NODES if cuts.neighbours > MAX_SPARSE_NEIGHBOURS else 2 * MAX_NULL_NODES
    graph = random_graph(cuts.counts, cuts.drawn, cuts.scales, rng, n_nodes)
    if graph is None or graph.n_nodes < max(3 * k, width + 3, 8):
        return None
    solved = _embed_random_graph(graph, width, tau, rng)
    if solved is None:
        return None
    values, vectors = solved
    found = assign(
        vectors[:, :width],
        k,
        n_init=N_STARTS,
        unit_rows=True,
        norm_regularization=norm_regularization,
        random_state=int(rng.integers(2**31)),
    )
    labels = found.labels
    sure = found.membership
    if tau:
        followed = follow_neighbours([graph], labels, [tau * float(graph.degrees.mean())], sure)
        labels = followed.labels
        sure = followed.membership
    own = _measure_cuts([graph], np.ones(1), labels, k)
    assert own is not None
    assert sure is not None
    sure_mean = float(np.mean(sure))
    return _Chance(own.inside, own.conductance, sure_mean, 1 - float(values[1]), graph.n_nodes)


def random_graph(
    counts: Sequence[Array],
    drawn: Sequence[Array | None],
    scales: Sequence[float],
    rng: np.random.Generator,
    n_nodes: int,
) -> Graph | None:
    """Some nodes with their numbers of neighbours in every layer, joined at random: its largest component.

    The configuration model: each edge joins two ends drawn by chance (Molloy and Reed 1995), with a weight
    drawn from those of the layer. Layers are drawn one by one and added up.
    """
    n_all = len(counts[0])
    n = min(n_nodes, n_all)
    chosen = rng.choice(n_all, n, replace=False) if n < n_all else np.arange(n)
    total = sp.csr_array((n, n))
    for own, weights, scale in zip(counts, drawn, scales, strict=True):
        ends = rng.permutation(np.repeat(np.arange(n), np.minimum(own[chosen], n // 2)))
        rows = ends[: len(ends) // 2]
        cols = ends[len(ends) // 2 : 2 * (len(ends) // 2)]
        keep = rows != cols
        rows = rows[keep]
        cols = cols[keep]
        data = np.full(len(rows), scale)
        if weights is not None:
            data = scale * rng.choice(weights, len(rows))
        total = total + sp.coo_array((data, (rows, cols)), shape=(n, n)).tocsr()
    matrix = sp.csr_array(total + total.T)
    if matrix.nnz == 0:
        return None
    pieces_of = connected_components(matrix, directed=False)[1]
    largest = np.flatnonzero(pieces_of == np.bincount(pieces_of).argmax())
    return Graph._from_clean_csr(sp.csr_array(matrix[largest][:, largest]), None)


def _embed_random_graph(
    graph: Graph, width: int, tau: float, rng: np.random.Generator
) -> tuple[Array, Array] | None:
    """Largest eigenvalues of the (regularised) normalised adjacency, falling, and coordinates of its walk."""
    n = graph.n_nodes
    added = tau * float(graph.degrees.mean())
    root = 1 / np.sqrt(graph.degrees + added)
    scaled = sp.diags_array(root)
    matrix = sp.csr_array(scaled @ graph.matrix @ scaled)
    if n <= MAX_DENSE_NODES or 3 * width > n:
        values, vectors = np.linalg.eigh(matrix.toarray() + added / n * np.outer(root, root))
        values = values[-width:]
        vectors = vectors[:, -width:]
    else:

        def product(x: Array) -> Array:
            x = x.ravel()
            return np.asarray(matrix @ x + (added / n * (root @ x)) * root)

        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        try:
            values, vectors = eigsh(
                operator, width, which="LA", tol=EIGENVALUE_TOLERANCE, v0=rng.standard_normal(n)
            )
        except ArpackNoConvergence:
            return None
    order = np.argsort(-values)
    return values[order], vectors[:, order] * root[:, None]
