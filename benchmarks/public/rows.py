"""One row per graph and number of vectors: ours, every peer at its loosest tolerance of equal quality."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.public.cases import Case
from benchmarks.public.entrants import OURS, TASKS, TOLERANCES
from benchmarks.public.worker import Worker

SINE = 0.03  # of the largest angle between a span and the exact one: labels do not change below it
RESIDUAL = 2e-3  # of the operator's width, where no gap determines the vectors
NMI_MARGIN = 0.02
PATIENCE = 5  # times our time that a peer may take
LEAST_LIMIT = 10.0  # seconds

Row = dict[str, Any]


def measure(case: Case, threads: int) -> Iterator[Row]:
    """The rows of one data set."""
    data, truth = case.build()
    tasks = {"layers": ("projection", "mean", "auto"), "points": ("points",)}.get(case.family)
    if tasks is None:
        tasks = ("labels",) if "labels" in case.family else ("embedding",)
    ours, peers = Worker(data, threads), Worker(data, threads)
    stopped: set[str] = set()  # peers that took too long or failed: not run again on this graph
    try:
        for task in tasks:
            for k in sorted(case.ks):
                row = _row(task, data, truth, k, ours, peers, stopped)
                name = f"{case.name}, {task}" if case.family == "layers" else case.name
                yield {"family": case.family, "graph": name, "k": k, **_size(data), **row}
    finally:
        ours.close()
        peers.close()


def _size(data: Any) -> Row:
    layers = data if isinstance(data, list) else [data]
    edges = sum(layer.nnz // 2 for layer in layers) if sp.issparse(layers[0]) else 0
    return {"nodes": int(layers[0].shape[0]), "edges": int(edges)}


def _row(task: str, data: Any, truth: Any, k: int, ours: Worker, peers: Worker, stopped: set[str]) -> Row:
    """Mutates ``stopped``: a row, of ours and all peers that were not stopped before."""
    mine = ours((task, OURS, k, None, 0.0), 900.0, warm=True)
    if "failed" in mine:
        raise RuntimeError(f"our own run failed: {mine['failed']}")
    tau = float(mine.get("tau", 0.0))
    limit = max(LEAST_LIMIT, PATIENCE * mine["wall"])
    runs: dict[str, list[Row]] = {}
    for peer in TASKS[task]:
        if peer == OURS:
            continue
        runs[peer] = [{"failed": "stopped for a smaller K"}] if peer in stopped else []
        for tol in () if peer in stopped else TOLERANCES:
            run = peers((task, peer, k, tol, tau), limit) | {"tol": tol}
            runs[peer].append(run)
            if "failed" in run:
                stopped.add(peer)
                break
    judge = _judged_vectors if task == "embedding" else _judged_labels
    judge(data, truth, k, tau, mine, [run for peer in runs.values() for run in peer if "found" in run])
    chosen = {peer: _loosest(tried) for peer, tried in runs.items()}
    equal = {peer: run for peer, run in chosen.items() if run.get("equal")}
    best = min(equal, key=lambda peer: equal[peer]["cpu"], default=None)
    ratio = None if best is None else equal[best]["cpu"] / mine["cpu"]
    walls = None if best is None else min(run["wall"] for run in equal.values()) / mine["wall"]
    rows = {"ours": mine, "peers": chosen, "best": best, "ratio": ratio, "wall_ratio": walls}
    for run in (mine, *chosen.values()):
        run.pop("found", None)
    return rows


def _loosest(tried: list[Row]) -> Row:
    """The fastest run of equal quality, else the last."""
    equal = [run for run in tried if run.get("equal")]
    return min(equal, key=lambda run: run["cpu"]) if equal else tried[-1]


def _judged_vectors(matrix: Any, truth: Any, k: int, tau: float, mine: Row, others: list[Row]) -> None:
    """Mutates the runs: sine against the best Ritz vectors of all spans together, residual, equal quality."""
    spans = [_Span.of(matrix, run["found"], tau) for run in (mine, *others)]
    exact = _Span.best_of(matrix, spans, k, tau)
    for run, span in zip((mine, *others), spans, strict=True):
        run["sine"] = exact.sine_to(span)
        run["residual"] = span.residual
    goal, rough = max(SINE, mine["sine"]), max(RESIDUAL, mine["residual"])
    for run in others:
        undetermined = mine["sine"] > SINE and run["residual"] <= rough
        run["equal"] = run["sine"] <= goal or undetermined


def _judged_labels(data: Any, truth: Any, k: int, tau: float, mine: Row, others: list[Row]) -> None:
    """Mutates the runs: NMI with the classes; without classes all are of equal quality."""
    from sklearn.metrics import normalized_mutual_info_score

    for run in (mine, *others):
        run["equal"] = True
        if truth is not None:
            inside = truth >= 0
            run["nmi"] = float(normalized_mutual_info_score(truth[inside], run["found"][inside]))
    for run in others:
        if truth is not None:
            run["equal"] = run["nmi"] >= mine["nmi"] - NMI_MARGIN


class _Span:
    """An orthonormal basis of a span in the coordinates of the symmetric operator, with its Ritz residual."""

    def __init__(self, matrix: Any, Q: Any, tau: float, k: int | None = None) -> None:
        product = _times(matrix, Q, tau)
        H = Q.T @ product
        values, Y = np.linalg.eigh(-(H + H.T) / 2)
        Y = Y[:, :k]
        self.Q = Q @ Y
        left = product @ Y + self.Q * values[:k]
        self.residual = float(np.linalg.norm(left, axis=0).max())

    @classmethod
    def of(cls, matrix: Any, vectors: Any, tau: float) -> _Span:
        """The span of vectors in the coordinates of the random walk."""
        Q, _ = np.linalg.qr(vectors * np.sqrt(_degrees(matrix, tau))[:, None])
        return cls(matrix, Q, tau)

    @classmethod
    def best_of(cls, matrix: Any, spans: list[_Span], k: int, tau: float) -> _Span:
        """The best K Ritz vectors of all spans together: nearer to the exact ones than any of them."""
        U, s, _ = np.linalg.svd(np.hstack([span.Q for span in spans]), full_matrices=False)
        return cls(matrix, U[:, s > 1e-6], tau, k)

    def sine_to(self, other: _Span) -> float:
        """The largest sine of the angles between two spans."""
        outside = self.Q - other.Q @ (other.Q.T @ self.Q)
        return float(np.linalg.norm(outside, 2))


def _degrees(matrix: Any, tau: float) -> Any:
    degrees = np.asarray(matrix.sum(axis=1)).ravel()
    return degrees + tau * degrees.mean()


def _times(matrix: Any, X: Any, tau: float) -> Any:
    """The normalised adjacency, regularised by ``tau`` mean degrees, times X."""
    scale = 1 / np.sqrt(_degrees(matrix, tau))
    inside = scale[:, None] * X
    product = matrix @ inside
    if tau > 0:
        added = tau * float(np.asarray(matrix.sum()).mean()) / matrix.shape[0] ** 2
        product = product + added * inside.sum(axis=0)
    return scale[:, None] * product
