"""``projection`` against the same pipeline from scipy's pieces, and at a hundred thousand nodes."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from threadpoolctl import threadpool_limits

from benchmarks import beyond
from benchmarks.harness import table
from spectrograd import MultilayerGraph, datasets, metrics
from spectrograd.labels.assign import assign
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.settings import Settings

K = 5
SHIFT = 1e-5  # below the spectrum: the Laplacian itself is singular


def ours(graph: MultilayerGraph) -> CertifiedEmbedding:
    settings = Settings(seed=0)
    return merge(graph, K, settings).embed(K, settings)


def scipy_pieces(graph: MultilayerGraph, alpha: float = 0.5) -> np.ndarray:
    """ARPACK with shift-invert per layer, then on the merged operator (LU of the sum, Woodbury)."""
    laplacians = [_normalised(layer.matrix) for layer in graph.layers]
    size = graph.n_nodes
    Z = np.hstack([sla.eigsh(L, K, sigma=-SHIFT, which="LM")[1] for L in laplacians])
    total = sp.csc_matrix(sum(laplacians))
    sigma = -alpha * len(laplacians) - SHIFT
    factor = sla.splu(sp.csc_matrix(total - sigma * sp.eye(size)))
    SZ = factor.solve(Z)
    small = la.lu_factor(np.eye(Z.shape[1]) / alpha - Z.T @ SZ)

    def solve(x: np.ndarray) -> np.ndarray:
        y = factor.solve(x)
        return y + SZ @ la.lu_solve(small, Z.T @ y)

    merged = sla.LinearOperator((size, size), matvec=lambda x: total @ x - alpha * (Z @ (Z.T @ x)))
    inverse = sla.LinearOperator((size, size), matvec=solve)
    return np.asarray(sla.eigsh(merged, K, sigma=sigma, which="LM", OPinv=inverse)[1])


def _normalised(W: sp.csr_array) -> sp.csc_matrix:
    scale = sp.diags(1 / np.sqrt(np.asarray(W.sum(axis=1)).ravel()))
    return sp.csc_matrix(sp.eye(W.shape[0]) - scale @ W @ scale)


def _nmi(labels: np.ndarray, vectors: np.ndarray) -> str:
    return f"{metrics.nmi(labels, assign(vectors, K, unit_rows=True, random_state=0).labels):.3f}"


def pieces(n_nodes: int = 10_000) -> str:
    """`projection`, layers and merge, three layers, N=10,000, against scipy's shift-invert throughout."""
    data = datasets.make_multilayer_gmm(n_nodes, random_state=0)
    found = ours(data.graph)  # compiles
    with threadpool_limits(1):
        mine = beyond.ours(lambda: ours(data.graph))
        theirs = beyond.rival(lambda: scipy_pieces(data.graph))
    score = "-" if theirs.value is None else _nmi(data.labels, theirs.value)
    rows = [
        ["spectrograd", mine.shown, _nmi(data.labels, found.embedding.vectors)],
        ["scipy pieces", theirs.shown, score],
    ]
    least = "at least " if theirs.value is None else ""
    text = f"Ratio: {least}{theirs.seconds / mine.seconds:.0f}." if theirs.seconds else ""
    return f"{table(('pipeline', 'CPU seconds', 'NMI'), rows)}\n\n{text}"


def large(n_nodes: int = 100_000, n_layers: int = 6) -> str:
    """`projection` at N=100,000 with six layers."""
    ours(datasets.make_multilayer_gmm(5_000, 2, random_state=1).graph)  # compiles
    data = datasets.make_multilayer_gmm(n_nodes, n_layers, random_state=0)
    before, busy = _peak(), time.process_time()
    seconds, found = _timed(lambda: ours(data.graph))
    busy = time.process_time() - busy
    assigning, nmi = _timed(lambda: _nmi(data.labels, found.embedding.vectors))
    row = [
        f"{data.graph.n_edges:,}",
        f"{seconds:.0f}",
        f"{busy:.0f}",
        f"{assigning:.1f}",
        nmi,
        f"{_peak() - before:.0f}",
    ]
    head = (
        "edges",
        "layers and merge: s",
        "of processor time",
        "k-means: s",
        "NMI",
        "memory beyond the data: MB",
    )
    return table(head, [row])


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
