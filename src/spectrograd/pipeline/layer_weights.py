"""What a layer's edges prove: clusters of its own, and clusters that other layers see.

Both are read from the normalised adjacency ``A = D^-1/2 W D^-1/2``, which has no scale of weights in it,
and both are measured against random graphs with the same degrees (docs/adr/0026).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from spectrograd.aggregation import typical_diagonal, without_absent
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.typing import Array

# Spread of the largest eigenvalue of a random matrix over its mean, times N^(2/3) (Tracy-Widom, 1.268 / 2).
TRACY_WIDOM = 0.634
# A layer is shuffled until so many nodes were seen, 4 to 16 times. Large layers need fewer: their evidence,
# counted in spreads, grows like N^(2/3), and the mean of 4 is only half a spread off.
SHUFFLED_NODES = 8_000
# Spreads, or standard deviations, that chance alone seldom reaches, and that it never does.
CLEAR_DEVIATIONS = 2.0
CERTAIN_DEVIATIONS = 4.0
# A residual of a hundredth leaves an error of about its square in an eigenvalue: well below the spread.
EIGENVALUE_TOLERANCE = 1e-2
# Up to this many nodes all eigenvalues are found faster than two.
MAX_DENSE_NODES = 100


@dataclass(frozen=True, eq=False)
class LayerSignificance:
    """The evidence for clusters in one layer by itself.

    Attributes
    ----------
    edge, spread
        Largest eigenvalue below the trivial one of ``A`` of a shuffled layer: mean and standard deviation.
    values
        Eigenvalues of ``A`` on the layer's embedding without its trivial vector, falling.
    directions
        The vectors that belong to them, N x len(values).
    """

    edge: float
    spread: float
    values: Array
    directions: Array

    @property
    def excess(self) -> Array:
        """How many spreads each eigenvalue lies above the edge."""
        return np.asarray((self.values - self.edge) / self.spread)

    @property
    def strengths(self) -> Array:
        """Per direction, the eigenvalue that noise has lifted to the one seen; half the edge if none shows.

        A signal of strength ``t`` in noise with spectrum up to ``e`` has its eigenvalue at
        ``t + (e / 2)^2 / t``, and hides below ``e`` if ``t < e / 2`` (Benaych-Georges & Nadakuditi 2011).
        """
        edge = self.edge + CLEAR_DEVIATIONS * self.spread
        above = np.maximum(self.values, edge)
        return np.asarray((above + np.sqrt(above**2 - edge**2)) / 2)

    @property
    def clarity(self) -> Array:
        """Per direction, the squared cosine between the vector seen and the signal's, by the same theory."""
        edge = self.edge + CLEAR_DEVIATIONS * self.spread
        return np.asarray(ramp(self.excess) * (1 - (edge / (2 * self.strengths)) ** 2))

    @property
    def strength(self) -> float:
        """Mean strength of the directions, each counted by its clarity."""
        total = float(self.clarity.sum())
        return float(self.clarity @ self.strengths) / total if total > 0 else self.edge / 2

    @property
    def mean_clarity(self) -> float:
        """Clarity of a typical direction among those that show."""
        total = float(self.clarity.sum())
        return float(np.sum(self.clarity**2)) / total if total > 0 else 0.0

    @property
    def structure(self) -> float:
        """Mean height of the eigenvalues between the edge (0) and perfect clusters (1)."""
        if not len(self.values) or self.edge >= 1:
            return 0.0
        return float(np.clip((self.values - self.edge) / (1 - self.edge), 0.0, 1.0).mean())


def layer_significance(
    operator: SparseOperator, U: Array, rng: np.random.Generator
) -> LayerSignificance | None:
    """Measure the evidence for clusters in a layer; None without edges or nontrivial directions."""
    graph = operator.graph
    width = U.shape[1]
    if width < 2 or graph.n_edges == 0:
        return None
    own = _symmetric(graph)
    if operator.scale is None:  # eigenvectors of D - W sit on nodes of low degree and show little
        settings = Settings(solver="eigen", params={"tol": 1e-3}, seed=int(rng.integers(2**31)))
        U = embed(own, width, settings).embedding.vectors
    inner = _remove_direction(U, np.sqrt(graph.degrees))
    values, turn = np.linalg.eigh(np.eye(width - 1) - inner.T @ (own @ inner))
    n_linked = int((graph.degrees > 0).sum())
    n_shuffles = int(np.clip(SHUFFLED_NODES // n_linked, 4, 16))
    tops = [_second_eigenvalue(shuffled(graph, rng), rng) for _ in range(n_shuffles)]
    edge = float(np.mean(tops))
    return LayerSignificance(edge, _spread(tops, n_linked), values[::-1], inner @ turn[:, ::-1])


@dataclass(frozen=True, eq=False)
class LayerConfirmation:
    """How far each layer (row) confirms each other one (column): S x S, zero where nothing is compared.

    ``found`` is the confirmation, ``deviation`` its standard deviation by chance, and ``full`` what
    a layer of strength 1 would have.
    """

    found: Array
    deviation: Array
    full: Array

    def levels(self) -> tuple[Array, Array]:
        """Per layer, the most strength it can have, and how sure it is, from 0 to 1, that it has some.

        Deviations are added, not their squares: what the other layers show is much the same.
        """
        found, deviation, full = (table.sum(axis=1) for table in (self.found, self.deviation, self.full))
        most = np.divide(
            found + CLEAR_DEVIATIONS * deviation, full, out=np.full(len(full), np.inf), where=full > 0
        )
        sure = ramp(np.divide(self.found, self.deviation, out=np.zeros_like(self.found), where=self.full > 0))
        return most, sure.max(axis=1)

    def shares(self, strengths: Array, deviations: float = 0.0) -> Array:
        """Share of each other layer's clusters that a layer confirms, plus so many deviations."""
        expected = self.full * strengths[:, None]
        found = self.found + deviations * self.deviation
        share = np.divide(found, expected, out=np.ones_like(found), where=expected > 0)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def share(self, strengths: Array, deviations: float = 0.0) -> Array:
        """The same over all other layers, each counted by what it shows."""
        expected = self.full.sum(axis=1) * strengths
        found = (self.found + deviations * self.deviation).sum(axis=1)
        share = np.divide(found, expected, out=np.ones_like(found), where=expected > 0)
        return np.asarray(np.clip(share, 0.0, 1.0))


def confirm_layers(
    graphs: Sequence[Graph], found: Sequence[LayerSignificance | None], same: Array
) -> LayerConfirmation:
    """Let every layer's edges judge what the others show; copies (``same``) do not judge each other."""
    tables = np.zeros((3, len(graphs), len(graphs)))
    for t, shown in enumerate(found):
        if shown is None or not shown.clarity.any():
            continue
        V = shown.directions * np.sqrt(shown.clarity)
        for s, graph in enumerate(graphs):
            if not same[s, t] and graph.n_edges:
                tables[:, s, t] = *confirmation(graph, V), float(np.sum(shown.clarity**2))
    return LayerConfirmation(*tables)


def ramp(deviations: object) -> Array:
    """From 0, where chance reaches, to 1, where it never does."""
    return np.asarray(
        np.clip(
            (np.asarray(deviations) - CLEAR_DEVIATIONS) / (CERTAIN_DEVIATIONS - CLEAR_DEVIATIONS), 0.0, 1.0
        )
    )


def confirmation(graph: Graph, V: Array) -> tuple[float, float]:
    """``Tr(V' A V)`` beyond chance, and its standard deviation if the edges of the layer were random.

    In closed form: each edge joins two ends drawn by degree, independently of ``V``, the directions that
    another layer shows (N x k, each as long as the root of its clarity). A layer of strength ``t`` in these
    directions has ``t`` times the sum of squared clarities here, however weak it is: unlike its own
    eigenvalues it need not rise above any noise.
    """
    degrees = graph.degrees
    linked = degrees > 0
    inverse = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=linked)
    trivial = np.sqrt(degrees / degrees.sum())
    V = np.where(linked[:, None], V, 0.0)
    V = V - np.outer(trivial, trivial @ V)
    scaled = np.sqrt(inverse)[:, None] * V
    ends = np.diff(graph.matrix.indptr) / graph.matrix.nnz  # chance that an end of an edge is this node
    mean = float(np.sum((ends @ scaled) ** 2))
    square = float(np.sum((scaled.T @ (ends[:, None] * scaled)) ** 2))
    weights = graph.matrix.data  # each edge twice
    found = float(np.sum(scaled * (graph.matrix @ scaled)))
    variance = 2 * float(weights @ weights) * max(square - mean**2, 0.0)
    return found - float(weights.sum()) * mean, float(np.sqrt(variance))


def shuffled(graph: Graph, rng: np.random.Generator) -> Graph:
    """A random graph with (nearly) the same degrees and the same weights: ends joined anew."""
    upper = sp.triu(graph.matrix, format="coo")
    ends = rng.permutation(np.concatenate([upper.row, upper.col]))
    rows, cols = np.split(ends, 2)
    keep = rows != cols
    one_way = sp.coo_array((upper.data[keep], (rows[keep], cols[keep])), shape=graph.matrix.shape).tocsr()
    return Graph._from_clean_csr(sp.csr_array(one_way + one_way.T), graph.names)


def _spread(tops: Sequence[float], n_nodes: int) -> float:
    """The law's, which no sample shakes; the measured one where hubs or small pieces clearly exceed it."""
    law = TRACY_WIDOM * float(np.mean(tops)) * n_nodes ** (-2 / 3)
    measured = float(np.std(tops, ddof=1))
    return max(measured if measured > 1.25 * law else law, 1e-9)


def _symmetric(graph: Graph) -> SparseOperator:
    return without_absent(laplacian(graph, "symmetric", allow_isolated=True))


def _second_eigenvalue(graph: Graph, rng: np.random.Generator) -> float:
    """Of ``D^-1/2 W D^-1/2``, largest first. No certificate: it is one draw of a mean."""
    roots = np.sqrt(graph.degrees)
    inverse = sp.diags_array(np.divide(1.0, roots, out=np.zeros(len(roots)), where=roots > 0))
    matrix = sp.csr_array(inverse @ graph.matrix @ inverse)
    if len(roots) <= MAX_DENSE_NODES:
        return float(np.linalg.eigvalsh(matrix.toarray())[-2])
    found = eigsh(
        matrix,
        2,
        which="LA",
        tol=EIGENVALUE_TOLERANCE,
        v0=rng.standard_normal(len(roots)),
        return_eigenvectors=False,
    )
    return float(found.min())


def _remove_direction(U: Array, trivial: Array) -> Array:
    """The subspace without its direction nearest to ``trivial``."""
    first = U.T @ trivial
    basis = np.linalg.qr(np.column_stack([first, np.eye(U.shape[1])]))[0]
    return np.asarray(U @ basis[:, 1:])


# --- Which layers agree: distances and overlaps between their subspaces.

# Squared distance, per dimension, below which two layers say the same thing.
MAX_COPY_DISTANCE = 1e-6


def layer_distances(embeddings: Sequence[Array]) -> Array:
    """Pairwise squared projection distances ``(K_s + K_t) / 2 - |U^s' U^t|^2`` (Eq. 20)."""
    overlap = _overlaps(embeddings)
    widths = np.array([U.shape[1] for U in embeddings], dtype=float)
    distances = (widths[:, None] + widths) / 2 - overlap
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.maximum(distances, 0.0))


def copies(embeddings: Sequence[Array]) -> Array:
    """Which layers have the same subspace: a symmetric table of booleans, true on its diagonal."""
    widths = np.array([U.shape[1] for U in embeddings])
    near = layer_distances(embeddings) <= MAX_COPY_DISTANCE * np.maximum(widths, 1)
    return np.asarray(near & np.equal.outer(widths, widths))


def _overlaps(embeddings: Sequence[Array]) -> Array:
    """``|U^s' U^t|^2`` of every two layers, from the Gram matrix of all columns."""
    columns = np.hstack(list(embeddings))
    squares = np.square(columns.T @ columns)
    layers = np.repeat(np.arange(len(embeddings)), [U.shape[1] for U in embeddings])
    member = (layers[:, None] == np.arange(len(embeddings))).astype(np.float64)
    return np.asarray(member.T @ squares @ member)


def pairwise_agreement(embeddings: Sequence[Array]) -> Array:
    """Overlap of every two subspaces, from 0 (chance) to 1 (the same).

    The trivial vectors of any two layers nearly coincide; they say nothing and are taken out.
    """
    inner = [_without_trivial(U) for U in embeddings]
    overlap = _overlaps(inner)
    widths = np.array([max(1, U.shape[1]) for U in inner], dtype=float)
    space = np.minimum.outer(widths, widths)
    chance = np.outer(widths, widths) / len(embeddings[0])
    return np.asarray(np.clip((overlap - chance) / np.maximum(space - chance, 1e-12), 0.0, 1.0))


def node_agreement(layer: Array, merged: Array) -> Array:
    """Per node, the share of its place in the merged embedding that the layer's subspace holds too.

    With the projection ``P`` onto the layer's subspace and the rows ``u_i`` of the merged one (both without
    their trivial vectors), ``<(P U)_i, u_i> / |u_i|^2``, cut to [0, 1]. Weighted with ``|u_i|^2`` the
    scores add up to the overlap of the two subspaces.
    """
    P, U = (_without_trivial(np.linalg.qr(basis)[0]) for basis in (layer, merged))
    shared = np.einsum("ij,ij->i", P @ (P.T @ U), U)
    lengths = np.einsum("ij,ij->i", U, U)
    share = np.divide(shared, lengths, out=np.zeros(len(U)), where=lengths > 0)
    return np.asarray(np.clip(share, 0.0, 1.0))


def _without_trivial(U: Array) -> Array:
    """The subspace without its most constant direction (that of ``sqrt(degree)`` or ones)."""
    if U.shape[1] < 2:
        return U[:, :0]
    direction = U.sum(axis=0)
    length = np.linalg.norm(direction)
    if length == 0:
        return U
    basis = np.linalg.qr(np.column_stack([direction / length, np.eye(U.shape[1])]))[0]
    return np.asarray(U @ basis[:, 1:])


# --- ``layer_weights="auto"``: as much influence for a layer as its edges can show it deserves.

# What a layer keeps that is outvoted: it has clusters, though other ones than the rest, and is no noise.
OUTVOTED_WEIGHT = 0.1
# Clarity of a layer up to which it cannot judge others, and from which it can. Below, ratios of weights
# of 1.4 already cost layers that complete each other a tenth of NMI.
MIN_CLARITY = 0.45
FULL_CLARITY = 0.7


@dataclass(frozen=True, eq=False)
class LayerScores:
    """Per layer.

    Attributes
    ----------
    structure
        How far the layer's eigenvalues lie from those of random graphs with the same degrees: 0 is
        a random graph, 1 is perfect clusters.
    strength
        How strong its clusters are over its own noise: above 1 they show in its eigenvalues, up to 1 they
        do not, and it is the most that the evidence allows.
    agreement
        Share of what the other layers show that this layer's edges confirm, from 0 (chance) to 1; 1 where
        no other layer shows anything.
    copies
        How many layers have this same subspace, itself included.
    noise
        Layers without structure whose edges confirm nothing, although those of a weak layer would.
    weights
        ``strength / copies``, less for a layer that is outvoted, none for noise, nearer to equal where some
        nodes would be left with next to nothing; over the layer's median degree
        where the Laplacians are unnormalised, so that no layer wins by the scale of its weights.
    """

    structure: Array
    strength: Array
    agreement: Array
    copies: Array
    noise: Array
    weights: Array


def weigh_layers(
    operators: Sequence[SparseOperator], embeddings: Sequence[Array], seed: int | None = None
) -> LayerScores:
    """Weights that follow what the layers show and confirm; see :class:`LayerScores` for the rule.

    ``seed`` draws the shuffled layers against which each layer is held.
    """
    rng = np.random.default_rng(seed)
    found = [layer_significance(operator, U, rng) for operator, U in zip(operators, embeddings, strict=True)]
    same = copies(embeddings)
    heard = confirm_layers([operator.graph for operator in operators], found, same)
    strength = _strengths(found, heard, same)
    agreement = heard.share(np.maximum(strength, 1.0) * np.array([f.edge / 2 if f else 0.5 for f in found]))
    scales = np.array([typical_diagonal(operator) or 1.0 for operator in operators])
    has_embedding = np.array([U.shape[1] > 0 for U in embeddings])
    trust = _trust(found, heard, same)
    weights = has_embedding * strength * trust / same.sum(axis=1)
    present = np.array([(op.graph.degrees > 0) | (op.rank > 0) for op in operators])
    weights = _keep_every_node(weights, present * has_embedding[:, None]) / scales
    structure = np.array([f.structure if f else 0.0 for f in found])
    return LayerScores(structure, strength, agreement, same.sum(axis=1), strength == 0, weights)


def _keep_every_node(weights: Array, present: Array) -> Array:
    """Weights moved towards equal ones, as far as no node falls below the least that these give a node.

    ``present`` says which layer (row) knows which node (column). A node known only to a layer of small
    weight hardly hangs together with the rest; a few of them would make up the whole merged embedding.
    """
    equal = present.any(axis=1).astype(float)
    if not weights.sum() > 0:  # nothing to go by: every layer that has an embedding counts the same
        return equal
    weights = weights * (equal.sum() / weights.sum())
    alike = equal @ present
    own = weights @ present
    least = alike[alike > 0].min()
    short = (alike > 0) & (own < (1 - 1e-9) * least)  # not by rounding
    move = float(np.max((least - own[short]) / (alike[short] - own[short]), initial=0.0))
    return np.asarray((1 - move) * weights + move * equal)


def _strengths(found: Sequence[LayerSignificance | None], heard: LayerConfirmation, same: Array) -> Array:
    """Strength over half the edge: own where the layer has clear clusters, else what the others allow."""
    levels = zip(*heard.levels(), _authority(found, same), strict=True)
    strength = np.array([_strength(f, *at) if f else np.nan for f, at in zip(found, levels, strict=True)])
    known = strength[np.isfinite(strength)]
    usual = float(np.median(known)) if len(known) else 1.0
    strength = np.where(np.isfinite(strength), strength, usual)  # too small a layer to tell
    return np.asarray(
        same @ strength / same.sum(axis=1)
    )  # copies have one strength, however they were shuffled


def _strength(layer: LayerSignificance, most: float, certainty: float, authority: float) -> float:
    """Between its own strength and what it confirms: ``most`` it can have, ``certainty`` that it has any.

    A layer that may, for all we know, be as strong as one just below the edge, counts as such. If it
    can have at most half of that, and nothing says that it has any, it is noise.
    """
    hidden = min(1.0, most / (layer.edge / 2))
    hidden = max(2 * hidden - 1, certainty * (1 + hidden) / 2, 0.0)
    hidden = 1 - authority * (1 - hidden)
    clear = float(ramp(layer.excess[0]))
    return clear * _shrink_strength(layer) + (1 - clear) * hidden


def _shrink_strength(layer: LayerSignificance) -> float:
    """At most half way from 1 to its own strength: just above the edge a strength is hardly known.

    Layers that complete each other are best merged equally, and strengths of like blocks differ by chance.
    """
    return 1 + layer.mean_clarity * (layer.strength / (layer.edge / 2) - 1) / 2


def _authority(found: Sequence[LayerSignificance | None], same: Array) -> Array:
    """Per layer, from 0 to 1, whether another one is clear enough to judge it.

    Among layers that barely show themselves one that shows nothing may be as good as they are.
    """
    clarity = np.array([f.mean_clarity if f else 0.0 for f in found])
    return _sharpness(np.max(np.where(same, 0.0, clarity), axis=1))


def _sharpness(clarity: Any) -> Array:
    return np.asarray(np.clip((clarity - MIN_CLARITY) / (FULL_CLARITY - MIN_CLARITY), 0.0, 1.0))


def _trust(found: Sequence[LayerSignificance | None], heard: LayerConfirmation, same: Array) -> Array:
    """Less than 1 for layers that are outvoted *and* leave no space for the rest among K - 1 directions.

    Layers that see different clusters complete each other as long as all that they show has space.
    Relative to the median, so layers that agree little, but equally, all keep their weight.
    """
    trust = np.ones(len(found))
    shown = np.array([ramp(f.excess).sum() if f else 0.0 for f in found])
    speaking = np.flatnonzero(shown > 0)
    if len(speaking) < 3:  # two cannot outvote each other
        return trust
    space = max(f.directions.shape[1] for f in found if f)
    own = np.array([f.strength if f else 1.0 for f in found])
    agreement = heard.share(own, CLEAR_DEVIATIONS)
    first = same.argmax(axis=1) == np.arange(len(same))  # copies have one vote
    usual = float(np.median(agreement[(shown > 0) & first]))
    for s in speaking:
        needed = shown[s] + np.max(shown * (1 - heard.shares(own, CLEAR_DEVIATIONS)[s]) * ~same[s])
        shortage = np.clip((needed - space) / shown[s], 0.0, 1.0)
        loyal = min(1.0, agreement[s] / usual) if usual > 0 else 1.0
        trust[s] = max(OUTVOTED_WEIGHT, 1 - shortage * (1 - loyal))
    return trust
