"""Laplacians of a graph as operators: plain, regularised, of a part of the nodes, normalised after a sum."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from spectrograd.graph import Graph, GraphError
from spectrograd.notices import parameter
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.typing import Array, JsonObject

Kind = Literal[
    "random_walk", "symmetric", "unnormalized", "signed", "signed_symmetric", "signed_unnormalized"
]
# Of a graph with negative weights ``L = diag(|W| 1) - W`` in each of the three forms.
SIGNED_FORMS: dict[Kind, Kind] = {
    "signed": "random_walk",
    "signed_symmetric": "symmetric",
    "signed_unnormalized": "unnormalized",
}


def is_signed_kind(kind: str) -> bool:
    """Whether a Laplacian takes negative weights."""
    return kind in SIGNED_FORMS


def form_of(kind: Kind) -> Kind:
    """The normalisation of a kind of Laplacian, signed or not."""
    return SIGNED_FORMS.get(kind, kind)


def laplacian(graph: Graph, kind: Kind = "random_walk", *, allow_isolated: bool = False) -> SparseOperator:
    """The Laplacian of a graph as an operator.

    Parameters
    ----------
    graph
        The graph; a node without edges has no place in a spectral embedding, so it is an error
        unless ``allow_isolated`` (a layer of a multilayer graph may have such nodes).
    kind
        ``"unnormalized"``: ``L = D - W`` (the paper, Eq. 2). ``"symmetric"``:
        ``D^-1/2 L D^-1/2`` (Eq. 3). ``"random_walk"``: ``L u = lambda D u``, metric ``B = D``.
        ``"signed"``, ``"signed_symmetric"``, ``"signed_unnormalized"``: the same (in this order the random
        walk's, the symmetric and the plain form) of a graph with negative weights, where D sums their sizes:
        ``L = diag(|W| 1) - W`` (Kunegis et al. 2010), ``u'Lu = sum |w_ij| (u_i - sign(w_ij) u_j)^2``.

    Examples
    --------
    >>> triangle = Graph.from_edges([0, 1, 2], [1, 2, 0])
    >>> (laplacian(triangle, "unnormalized") @ np.ones(3)).tolist()
    [0.0, 0.0, 0.0]
    """
    if kind not in get_args(Kind):
        raise ValueError(f"laplacian={kind!r}: expected one of {', '.join(get_args(Kind))}")
    if graph.is_signed and not is_signed_kind(kind):
        _refuse_signs(graph, kind)
    kind = form_of(kind)
    degrees = graph.degrees
    if degrees.max() > np.finfo(np.float64).max / 2:
        raise GraphError("the weights are too large: their sums overflow; divide all of them by 1e10, say")
    _check_isolated(graph, allow_isolated)
    # Spectra lie in [0, 2] for both normalised forms (Chung 1997, Lemma 1.7), signed ones included.
    linked = degrees > 0
    if kind == "unnormalized":
        return SparseOperator(graph, degrees, upper=_largest_two(degrees))
    if kind == "symmetric":
        scale = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1)), 0.0)
        return SparseOperator(graph, linked.astype(np.float64), scale=scale)
    return SparseOperator(graph, degrees, metric=degrees if linked.all() else np.where(linked, degrees, 1.0))


def _refuse_signs(graph: Graph, kind: Kind) -> None:
    """Refuse negative weights, by the name of the first."""
    for block in graph.blocks:
        if block.weights is None or not (block.weights < 0).any():
            continue
        # the first negative entry; its row is the last one that begins at or before it
        at = int(np.argmax(block.weights < 0))
        row = block.start + int(np.searchsorted(block.indptr, at, side="right")) - 1
        ends = f"{graph.node_names[row]}, {graph.node_names[block.indices[at]]}"
        raise GraphError(
            f"weight of edge ({ends}) is {block.weights[at]}: negative, which {parameter('laplacian', kind)} "
            f"cannot take; {parameter('laplacian', 'signed')} does"
        )


def _largest_two(degrees: Array) -> float:
    """The sum of the two largest degrees: no eigenvalue of ``D - W`` is larger.

    Of the Perron vector x of ``D + W``, which bounds ``D - W``, let x_i be the largest entry and x_j the
    largest of i's neighbours. Then ``(l - d_i) x_i <= d_i x_j`` and ``(l - d_j) x_j <= d_j x_i``, so
    ``(l - d_i) (l - d_j) <= d_i d_j`` and ``l <= d_i + d_j`` (Anderson and Morley 1985, with weights).
    """
    return float(np.partition(degrees, -2)[-2:].sum()) if len(degrees) > 1 else 2.0 * float(degrees.max())


def _check_isolated(graph: Graph, allowed: bool) -> None:
    isolated = graph.isolated
    if len(isolated) == 0 or allowed:
        return
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    shown = ", ".join(str(graph.node_names[i]) for i in isolated[:5])
    more = ", ..." if len(isolated) > 5 else ""
    raise GraphError(
        f"{len(isolated)} isolated nodes (without any edge): {shown}{more}; remove them before embedding"
    )


def __getattr__(name: str) -> Any:
    """The name that 0.1 published, for one release."""
    if name != "Operator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "operators.laplacian.Operator is now operators.SparseOperator", DeprecationWarning, stacklevel=2
    )
    return SparseOperator


# --- Regularisation: ``tau / N`` added to every pair of nodes, never as an N x N matrix.
#
# On sparse real graphs the exact smallest eigenvectors sit on tiny dangling subgraphs: one of volume v that
# hangs by one edge has conductance 1 / v, below that of any real cluster of a well-linked graph. Adding
# ``tau`` to every degree lifts it to about ``tau / (degree + tau)`` and leaves large clusters almost where
# they were (Amini et al. 2013; Qin and Rohe 2013; Zhang and Rohe 2018).

# Mean degrees to add, the second only where the first leaves the eigenvectors localised. Measured: 0.1 is
# best or close to it wherever regularisation helps (docs/regularization.md).
TAU = 0.1
MORE_TAU = 0.3


@dataclass(frozen=True)
class Regularization:
    """The decision on regularisation, and its reason.

    ``tau`` is in units of the mean degree, 0 where nothing was added; ``localized`` is the share of
    localised eigenvectors where ``"auto"`` looked for them.
    """

    tau: float
    reason: str
    localized: float | None = None

    @property
    def sentence(self) -> str:
        """The consequence for the result, in words; empty where nothing was added."""
        if not self.tau:
            return ""
        return (
            f"regularised with tau = {self.tau:g} ({self.tau:g} mean degrees, spread over all pairs of "
            "nodes): the eigenvectors are those of the regularised graph"
        )

    def summary(self) -> JsonObject:
        """The entries of ``--summary-json``."""
        return {
            "tau": self.tau,
            "localized": self.localized,
            "reason": self.reason,
            "sentence": self.sentence,
        }


def check_regularization(value: Any) -> float | str | None:
    """``"auto"``, None or a number that is not negative; else an error."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and np.isfinite(value) and value >= 0:
        return float(value)
    raise ValueError(f"regularization={value!r}: expected 'auto', None or a number that is not negative")


def regularized_laplacian(graph: Graph, kind: Kind, tau: float) -> SparseOperator:
    """The Laplacian of ``W + (t / N) 11'`` with ``t = tau`` mean degrees: degrees + t, and a rank-one part.

    All three forms follow from the same matrix. For ``"unnormalized"`` it is ``L + t (I - 11'/N)``, which
    lifts every vector but the constant by t: the order of a connected graph's eigenvectors does not
    change, only the components of a disconnected one are separated from the constant.

    Of a signed graph every pair gets ``t / N`` twice, once with each sign: degrees + t, and no rank-one part
    (Cucuringu et al. 2021).

    Examples
    --------
    >>> star = Graph.from_edges([0, 0, 0], [1, 2, 3])
    >>> L = regularized_laplacian(star, "unnormalized", 1.0)
    >>> np.round(L.to_dense()[1], 3).tolist()  # mean degree 1.5: every pair gets 0.375
    [-1.375, 2.125, -0.375, -0.375]
    """
    if tau == 0:
        return laplacian(graph, kind)
    if graph.n_edges == 0:
        raise GraphError("the graph is empty: it has nodes but no edge")
    plain = laplacian(graph, kind, allow_isolated=True)  # checks the kind
    n = graph.n_nodes
    # t in units of a degree; each of the N entries of a row gets t / N
    added = tau * float(graph.degrees.mean())
    degrees = graph.degrees + added
    coefficient = np.array([added / n])
    # (t / N) 11' as a rank-one part: A = .. - Z diag(a) Z' with Z = 1, a = t / N
    ones = None if is_signed_kind(kind) else LowRank(np.ones((n, 1)), coefficient)
    kind = form_of(kind)
    if kind == "unnormalized":
        return SparseOperator(graph, degrees, low_rank=ones, upper=plain.upper + added)
    if kind == "symmetric":
        scale = 1 / np.sqrt(degrees)
        # D^-1/2 11' D^-1/2
        scaled = ones and LowRank(scale[:, None], coefficient)
        return SparseOperator(graph, np.ones(n), scale=scale, low_rank=scaled)
    return SparseOperator(graph, degrees, metric=degrees, low_rank=ones)


# --- Laplacians of a part of a graph on all of its rows: what a graph on disk has instead of a subgraph.

# Normalised entries of excluded rows are divided by this, and their diagonal is chosen such that their
# eigenvalues lie at the upper bound, but for the part 1 / EXCLUDED_DIVISOR of it: behind the K smallest,
# however large K is. Entries and diagonal are exact in float32.
EXCLUDED_DIVISOR = 2.0**20


def masked_laplacian(
    graph: Graph, kind: Kind, tau: float, excluded: Array, *, allow_isolated: bool = False
) -> SparseOperator:
    """The Laplacian of the graph without the nodes ``excluded``, as an operator on all rows.

    Parameters
    ----------
    graph, kind, tau
        As for :func:`~spectrograd.operators.laplacian.regularized_laplacian`.
    excluded : array of int, shape (n_excluded,)
        Row numbers of whole components. Eigenvectors of the other components are zero there; eigenvectors of
        the excluded ones lie at the upper end of the spectrum, which no solver computes.
    allow_isolated : bool
        Whether other nodes may be without edges, as in a layer of a multilayer graph.

    Examples
    --------
    >>> two = Graph.from_edges([0, 1, 3], [1, 2, 4])
    >>> A = masked_laplacian(two, "symmetric", 0.0, np.array([3, 4]))
    >>> np.linalg.eigvalsh(A.to_dense()).round(3).tolist()
    [0.0, 1.0, 2.0, 2.0, 2.0]
    """
    if len(excluded) == 0:
        whole = regularized_laplacian(graph, kind, tau) if tau else None
        return whole or laplacian(graph, kind, allow_isolated=allow_isolated)
    laplacian(graph, kind, allow_isolated=True)  # checks the kind and the size of the weights
    # active rows have the mean degree of the active graph only
    active = np.ones(graph.n_nodes, bool)
    active[excluded] = False
    added = tau * float(graph.degrees[active].mean())
    degrees = np.where(active, graph.degrees + added, np.where(graph.degrees > 0, graph.degrees, 1.0))
    low_rank = None
    if tau and not is_signed_kind(kind):
        low_rank = LowRank(active[:, None].astype(np.float32), np.array([added / active.sum()]))
    forms = {"random_walk": _random_walk, "symmetric": _symmetric}
    return replace(
        forms.get(form_of(kind), _unnormalized)(graph, active, degrees, low_rank), excluded=excluded
    )


def _random_walk(graph: Graph, active: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    # Excluded rows: diagonal / metric is 2 - 1/c, weights / metric at most 1/c, with c = EXCLUDED_DIVISOR:
    # by Gershgorin their eigenvalues lie in [2 - 2/c, 2].
    metric = np.where(active, np.where(degrees > 0, degrees, 1.0), EXCLUDED_DIVISOR * degrees)
    diagonal = np.where(active, degrees, (2 * EXCLUDED_DIVISOR - 1) * degrees)
    return SparseOperator(graph, diagonal, metric=metric, low_rank=low_rank)


def _symmetric(graph: Graph, active: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    linked = degrees > 0
    # the same in symmetric form: off-diagonal entries are divided by sqrt(c) twice
    root = np.where(linked, 1 / np.sqrt(np.where(linked, degrees, 1.0)), 0.0)
    scale = np.where(active, root, root / np.sqrt(EXCLUDED_DIVISOR))
    diagonal = np.where(active, linked, 2 - 1 / EXCLUDED_DIVISOR)
    if low_rank is not None:
        low_rank = LowRank(low_rank.factors * root[:, None], low_rank.coefficients)
    return SparseOperator(graph, diagonal, scale=scale, low_rank=low_rank)


def _unnormalized(graph: Graph, active: Array, degrees: Array, low_rank: LowRank | None) -> SparseOperator:
    upper = 2 * float(degrees[active].max())
    share = upper / (2 * EXCLUDED_DIVISOR)  # of the upper bound, to both sides of the diagonal
    scale = np.where(active, 1.0, np.sqrt(share / np.where(degrees > 0, degrees, 1.0)))
    return SparseOperator(
        graph, np.where(active, degrees, upper - share), scale=scale, low_rank=low_rank, upper=upper
    )


# --- A matrix that is normalised after its layers were added, as the paper's eigendecomposition takes it.


def normalize_operator(operator: SparseOperator) -> SparseOperator:
    """``D^-1/2 A D^-1/2`` with D the degrees of the graph: of all layers together where A is their sum.

    For one graph without a low-rank part this is the normalised Laplacian. A is to be unnormalised
    (no ``scale``, the identity as metric), and every node needs an edge.

    Examples
    --------
    >>> from spectrograd.graph import Graph
    >>> from spectrograd.operators.laplacian import laplacian
    >>> path = laplacian(Graph.from_edges([0, 1], [1, 2]), "unnormalized")
    >>> normalize_operator(path).diagonal.tolist()
    [1.0, 1.0, 1.0]
    """
    if operator.scale is not None or operator.metric is not None:
        raise ValueError("this operator is normalised already: begin with unnormalised layers")
    degrees = operator.graph.degrees
    if not degrees.min() > 0:
        raise ValueError("a node without any edge cannot be normalised: remove it first")
    scale = 1 / np.sqrt(degrees)
    low_rank = operator.low_rank and LowRank(
        operator.low_rank.factors * scale[:, None], operator.low_rank.coefficients
    )
    return replace(
        operator,
        diagonal=operator.diagonal / degrees,
        scale=scale,
        low_rank=low_rank,
        lower=min(operator.lower, 0.0) / float(degrees.min()),
        upper=2.0,
    )
