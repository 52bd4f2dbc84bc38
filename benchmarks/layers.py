"""Layers: every aggregation and the default against peers, on labelled sets; half choose, half judge.

python -m benchmarks layers [--write]

Peers in other environments (mvlearn, graspologic, leidenalg, Infomap) run in the interpreter that the
environment variable ``SPECTROGRAD_PEERS`` names; without it they are left out.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans

from benchmarks import layer_sets
from benchmarks.harness import table
from spectrograd import MultilayerGraph, metrics
from spectrograd.pipeline import Settings, cluster
from spectrograd.typing import Array

AGGREGATIONS = ("auto", "mean", "sum", "projection", "grassmann", "power-mean", "geometric", "coregularized")
FUNCTIONS = ("power-mean", "geometric")
PEERS = ("SC-ML", "mean + eigsh")
OTHERS = ("mvlearn co-regularized", "graspologic MASE", "leidenalg multiplex", "infomap")
SECONDS = 60  # for a peer on one set, its import included
MANY_LAYERS = 20  # sets of more are left to the default, the mean and the peers
# Functions of larger layers take minutes: 12 to 39 passes per product.
MANY_NODES = 5_000
MANY_EDGES = 300_000
MAX_REPEATED_SECONDS = 2.0  # a shorter run is timed once more: the first run of a size compiles


@dataclass(frozen=True)
class Row:
    """NMI, CPU seconds and whether the result is certified (None where nothing is)."""

    nmi: float
    seconds: float
    certified: bool | None = None

    def __str__(self) -> str:
        mark = {None: "", True: "", False: " *"}[self.certified]
        return f"{self.nmi:.3f}{mark} ({self.seconds:.2g})"


def _score(classes: Array, labels: Array) -> float:
    known = classes >= 0
    own = np.where(labels < 0, labels.max(initial=0) + 1, labels)
    return float(metrics.nmi(classes[known], own[known]))


def _normalized(weights: sp.csr_array) -> sp.csr_array:
    degrees = np.asarray(weights.sum(axis=1)).ravel()
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0)
    return sp.csr_array(sp.diags_array(scale) @ weights @ sp.diags_array(scale))


def _rows_to_labels(vectors: Array, k: int) -> Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return np.asarray(KMeans(k, n_init=10, random_state=0).fit_predict(vectors / lengths))


def _largest(operator: object, k: int, n: int) -> Array:
    start = np.random.default_rng(0).standard_normal(n)
    return np.asarray(eigsh(operator, k, which="LA", v0=start)[1])


def sc_ml(graph: MultilayerGraph, k: int) -> Array:
    """Dong et al. 2014 from scipy's pieces: an eigsh per layer, one of the merge, k-means."""
    n = graph.n_nodes
    layers = [_normalized(layer.matrix) for layer in graph.layers]
    Z = np.hstack([_largest(layer, k, n) for layer in layers if layer.nnz > 4 * k])
    summed = sp.csr_array(sum(layers))
    merged = LinearOperator((n, n), matvec=lambda x: summed @ x + 0.5 * (Z @ (Z.T @ x)), dtype=float)
    return _rows_to_labels(_largest(merged, k, n), k)


def mean_eigsh(graph: MultilayerGraph, k: int) -> Array:
    """The normalised sum of the adjacency matrices, eigsh, k-means."""
    summed = _normalized(sp.csr_array(sum(layer.matrix for layer in graph.layers)))
    return _rows_to_labels(_largest(summed, k, graph.n_nodes), k)


def _timed(classes: Array, solve: Callable[[], Array]) -> Row | None:
    began = time.process_time()
    try:
        labels = solve()
    except Exception as error:  # a peer that fails has no row
        print(type(error).__name__, str(error)[:80], file=sys.stderr)
        return None
    return Row(_score(classes, labels), time.process_time() - began)


def _own(drawn: layer_sets.LabelledLayers, aggregation: str) -> tuple[Row, str]:
    settings = Settings(n_components=drawn.n_clusters, aggregation=aggregation, seed=0)
    seconds: list[float] = []
    while not seconds or (len(seconds) < 2 and seconds[0] < MAX_REPEATED_SECONDS):
        began = time.process_time()
        result = cluster(drawn.graph, settings)
        seconds.append(time.process_time() - began)
    assert result.merged is not None
    assert result.labels is not None
    chosen = result.merged.chosen
    name = "one layer" if chosen.layer is not None else chosen.aggregation
    return Row(_score(drawn.classes, result.labels), min(seconds), result.converged), name


class Peers:
    """Methods of other packages in a process of the other interpreter, started anew after a timeout."""

    def __init__(self) -> None:
        self.python = os.environ.get("SPECTROGRAD_PEERS")
        self.process: subprocess.Popen[str] | None = None
        self.too_many: dict[str, int] = {}  # edges of the smallest set that took a method too long

    def __call__(self, drawn: layer_sets.LabelledLayers) -> dict[str, Row | None]:
        """Rows by method."""
        if self.python is None:
            return {}
        found: dict[str, Row | None] = {}
        with tempfile.TemporaryDirectory() as folder:
            for at, layer in enumerate(drawn.graph.layers):
                sp.save_npz(f"{folder}/{at:03d}.npz", sp.csr_matrix(layer.matrix))
            for name in OTHERS:
                if drawn.graph.n_edges >= self.too_many.get(name, drawn.graph.n_edges + 1):
                    found[name] = None
                    continue
                answer = self._ask([name, folder, drawn.n_clusters])
                if answer is None:
                    self.too_many[name] = drawn.graph.n_edges
                labels = None if answer is None else answer.get("labels")
                found[name] = None
                if answer is not None and labels is not None:
                    found[name] = Row(_score(drawn.classes, np.array(labels)), answer["seconds"])
        return found

    def _ask(self, request: list[object]) -> dict[str, Any] | None:
        if self.process is None:
            script = str(Path(__file__).with_name("layers_peers.py"))
            pipe = subprocess.PIPE
            command = [str(self.python), script, "serve"]
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        ready = select.select([self.process.stdout], [], [], SECONDS)[0]
        line = self.process.stdout.readline() if ready else ""
        if not line:  # it takes too long, or died
            self.close()
            return None
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def measure(name: str, peers: Peers) -> tuple[dict[str, Row | None], str]:
    """Rows of one set by method, and what the default chose."""
    drawn = layer_sets.load(name)
    k = drawn.n_clusters
    rows: dict[str, Row | None] = {}
    chosen = ""
    for aggregation in AGGREGATIONS:
        if not _is_affordable(aggregation, drawn.graph):
            continue
        rows[aggregation], picked = _own(drawn, aggregation)
        chosen = picked if aggregation == "auto" else chosen
    if drawn.graph.n_layers <= MANY_LAYERS:
        rows["SC-ML"] = _timed(drawn.classes, lambda: sc_ml(drawn.graph, k))
    rows["mean + eigsh"] = _timed(drawn.classes, lambda: mean_eigsh(drawn.graph, k))
    return rows | peers(drawn), chosen


def _is_affordable(aggregation: str, graph: MultilayerGraph) -> bool:
    if graph.n_layers > MANY_LAYERS:
        return aggregation in ("auto", "mean", "sum")
    large = graph.n_nodes > MANY_NODES or graph.n_edges > MANY_EDGES
    return not (large and aggregation in FUNCTIONS)


def _summary(found: Mapping[str, Mapping[str, Row | None]], names: Sequence[str], which: str) -> str:
    """How often the default is within .02 of the best aggregation, mean NMI, and time against SC-ML."""
    near = 0
    ratios = []
    for name in names:
        rows = found[name]
        own = [row.nmi for key in AGGREGATIONS if (row := rows.get(key)) is not None]
        default = rows["auto"]
        assert default is not None
        near += default.nmi >= max(own) - 0.02
        if (peer := rows.get("SC-ML")) is not None:
            ratios.append(peer.seconds / default.seconds)
    means = []
    for key in (*AGGREGATIONS, *PEERS, *OTHERS):
        values = [row.nmi for name in names if (row := found[name].get(key)) is not None]
        if values:
            means.append(f"{key} {np.mean(values):.3f} ({len(values)})")
    speed = f"{np.exp(np.mean(np.log(ratios))):.2f} (least {min(ratios):.2f})" if ratios else "-"
    return (
        f"{which}: the default is within .02 of the best aggregation on {near} of {len(names)} sets; time of "
        f"SC-ML over its own, geometric mean, {speed}. Mean NMI (sets): {', '.join(means)}."
    )


def run() -> str:
    """All sets; every second one is of the half that chose criterion and candidates."""
    names = layer_sets.names()
    peers = Peers()
    found: dict[str, dict[str, Row | None]] = {}
    lines = []
    header = ("set", "half", "chosen", *AGGREGATIONS, *PEERS, *OTHERS)
    for at, name in enumerate(names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[name], chosen = measure(name, peers)
        cells = [str(found[name].get(key) or "-") for key in header[3:]]
        lines.append([name, ("chooses", "judges")[at % 2], chosen, *cells])
        print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    peers.close()
    return "\n\n".join(
        [
            "## Layers",
            "NMI (CPU seconds, one thread, labels included); * is not certified.",
            _summary(found, names[::2], "The choosing half"),
            _summary(found, names[1::2], "The judging half"),
            table(header, lines),
            f"Peers: {_versions()}.",
        ]
    )


def _versions() -> str:
    """Of the packages in the other interpreter."""
    python = os.environ.get("SPECTROGRAD_PEERS")
    if python is None:
        return "scipy and scikit-learn only"
    command = [python, str(Path(__file__).with_name("layers_peers.py")), "versions"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
