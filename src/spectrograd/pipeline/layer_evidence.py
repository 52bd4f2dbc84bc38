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
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh

from spectrograd.aggregation import without_absent
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import Operator, laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solving import embed

Array = NDArray[Any]
# Spread of the largest eigenvalue of a random matrix over its mean, times N^(2/3) (Tracy-Widom, 1.268 / 2).
TRACY_WIDOM = 0.634
# A layer is shuffled until so many nodes were seen, 4 to 16 times. Large layers need fewer: their evidence,
# counted in spreads, grows like N^(2/3), and the mean of 4 is only half a spread off.
SHUFFLED_NODES = 8_000
# Spreads, or standard deviations, that chance alone seldom reaches, and that it never does.
CLEAR, CERTAIN = 2.0, 4.0
# A residual of a hundredth leaves an error of about its square in an eigenvalue: well below the spread.
LOOSE = 1e-2
# Up to this many nodes all eigenvalues are found faster than two.
DENSE = 100


@dataclass(frozen=True, eq=False)
class Findings:
    """What one layer shows by itself.

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
        edge = self.edge + CLEAR * self.spread
        above = np.maximum(self.values, edge)
        return np.asarray((above + np.sqrt(above**2 - edge**2)) / 2)

    @property
    def clarity(self) -> Array:
        """Per direction, the squared cosine between the vector seen and the signal's, by the same theory."""
        edge = self.edge + CLEAR * self.spread
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


def examine(operator: Operator, U: Array, rng: np.random.Generator) -> Findings | None:
    """What a layer shows by itself, or None where it has no edge or no direction but the trivial one."""
    graph, width = operator.graph, U.shape[1]
    if width < 2 or graph.n_edges == 0:
        return None
    own = _symmetric(graph)
    if operator.scale is None:  # eigenvectors of D - W sit on nodes of low degree and show little
        settings = Settings(solver="eigen", params={"tol": 1e-3}, seed=int(rng.integers(2**31)))
        U = embed(own, width, settings).embedding.vectors
    inner = _beside(U, np.sqrt(graph.degrees))
    values, turn = np.linalg.eigh(np.eye(width - 1) - inner.T @ (own @ inner))
    n_linked = int((graph.degrees > 0).sum())
    n_shuffles = int(np.clip(SHUFFLED_NODES // n_linked, 4, 16))
    tops = [_second_eigenvalue(shuffled(graph, rng), rng) for _ in range(n_shuffles)]
    edge = float(np.mean(tops))
    return Findings(edge, _spread(tops, n_linked), values[::-1], inner @ turn[:, ::-1])


@dataclass(frozen=True, eq=False)
class Hearing:
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
        most = np.divide(found + CLEAR * deviation, full, out=np.full(len(full), np.inf), where=full > 0)
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


def hear(graphs: Sequence[Graph], found: Sequence[Findings | None], same: Array) -> Hearing:
    """Let every layer's edges judge what the others show; copies (``same``) do not judge each other."""
    tables = np.zeros((3, len(graphs), len(graphs)))
    for t, shown in enumerate(found):
        if shown is None or not shown.clarity.any():
            continue
        V = shown.directions * np.sqrt(shown.clarity)
        for s, graph in enumerate(graphs):
            if not same[s, t] and graph.n_edges:
                tables[:, s, t] = *confirmation(graph, V), float(np.sum(shown.clarity**2))
    return Hearing(*tables)


def ramp(deviations: Any) -> Array:
    """From 0, where chance reaches, to 1, where it never does."""
    return np.asarray(np.clip((np.asarray(deviations) - CLEAR) / (CERTAIN - CLEAR), 0.0, 1.0))


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


def _symmetric(graph: Graph) -> Operator:
    return without_absent(laplacian(graph, "symmetric", allow_isolated=True))


def _second_eigenvalue(graph: Graph, rng: np.random.Generator) -> float:
    """Of ``D^-1/2 W D^-1/2``, largest first. No certificate: it is one draw of a mean."""
    roots = np.sqrt(graph.degrees)
    inverse = sp.diags_array(np.divide(1.0, roots, out=np.zeros(len(roots)), where=roots > 0))
    matrix = sp.csr_array(inverse @ graph.matrix @ inverse)
    if len(roots) <= DENSE:
        return float(np.linalg.eigvalsh(matrix.toarray())[-2])
    found = eigsh(
        matrix, 2, which="LA", tol=LOOSE, v0=rng.standard_normal(len(roots)), return_eigenvectors=False
    )
    return float(found.min())


def _beside(U: Array, trivial: Array) -> Array:
    """The subspace without its direction nearest to ``trivial``."""
    first = U.T @ trivial
    basis = np.linalg.qr(np.column_stack([first, np.eye(U.shape[1])]))[0]
    return np.asarray(U @ basis[:, 1:])
