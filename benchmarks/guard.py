"""``python -m benchmarks guard``: ten small cases beside a reference kernel, against the recorded ratios.

Each case is measured in CPU seconds, as a ratio to a product of NumPy and one of SciPy that take turns
with it in the same process, so that neither another machine nor its load decides. A ratio beyond 1.3
times the one on record fails. ``python -m benchmarks guard --record`` writes ``guard.json`` anew, for a
case that has become slower for a good reason.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.harness import table
from spectrograd import (
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    read_graph,
)
from spectrograd.io import write_graph
from spectrograd.operators.laplacian import laplacian
from spectrograd.points.knn_graph import knn_graph

RECORDED = Path(__file__).with_name("guard.json")
LIMIT = 1.3
REPEATS = 5
SECOND_TRIES = 2  # of a case beyond the limit, before it counts


def _reference() -> Callable[[], object]:
    """A dense and a sparse product of fixed size: what a fit is made of."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((256, 256))
    sparse = sp.random_array((20_000, 20_000), density=5e-4, rng=rng, format="csr")
    block = rng.standard_normal((20_000, 8))
    return lambda: (dense @ dense, sparse @ block)


def _cases(folder: Path) -> dict[str, Callable[[], object]]:
    """Ten things that users wait for, of some hundredths of a second each."""
    graph = datasets.make_block_model(1_500, 5, random_state=0).graph
    two = [datasets.make_block_model(600, 3, random_state=seed).graph for seed in (0, 1)]
    points = np.random.default_rng(0).standard_normal((800, 6))
    block = np.ones((graph.n_nodes, 8), np.float32)
    operator = laplacian(graph).astype(np.float32)
    for suffix in ("csv", "npz"):
        write_graph(folder / f"graph.{suffix}", graph)
    fits = {
        f"embed, {solver}": lambda solver=solver: SpectralEmbedding(4, solver=solver, random_state=0).fit(
            graph
        )
        for solver in ("lanczos", "chebyshev", "lobpcg")
    }
    return {
        **fits,
        "cluster": lambda: SpectralClustering(5, random_state=0).fit(graph),
        "cluster two layers": lambda: MultilayerSpectralClustering(3, random_state=0).fit(two),
        "cluster points": lambda: SpectralClustering(3, random_state=0).fit(points),
        "neighbours": lambda: knn_graph(points, 10),
        "read csv": lambda: read_graph(folder / "graph.csv"),
        "read npz": lambda: read_graph(folder / "graph.npz"),
        "200 products": lambda: [operator @ block for _ in range(200)],
    }


def _cpu_seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def ratio(case: Callable[[], object], reference: Callable[[], object]) -> float:
    """Shortest run of a case over the shortest of the reference, which takes turns with it."""
    pairs = [(_cpu_seconds(case), _cpu_seconds(reference)) for _ in range(REPEATS)]
    return min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs)


def slower(found: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Cases beyond the limit, or without a record.

    Examples
    --------
    >>> slower({"a": 1.2, "b": 2.8, "c": 1}, {"a": 1, "b": 2})
    ['b', 'c']
    """
    return [name for name, value in found.items() if value > LIMIT * recorded.get(name, 0.0)]


def run(record: bool = False) -> str:
    """Measure, and compare or record; a case that became slower ends the program with 1."""
    import warnings

    warnings.simplefilter("ignore")
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        reference = _reference()
        cases = _cases(Path(folder))
        for warm in (reference, *cases.values()):
            warm()  # compiles, and loads what is needed
        found = {name: round(ratio(case, reference), 3) for name, case in cases.items()}
        for _ in range(0 if record else SECOND_TRIES):
            for name in slower(found, recorded):
                found[name] = min(found[name], round(ratio(cases[name], reference), 3))
    if record:
        RECORDED.write_text(json.dumps(found, indent=2) + "\n")
        return f"recorded {len(found)} ratios in {RECORDED.name}"
    late = slower(found, recorded)
    rows = [
        (name, value, recorded.get(name, ""), "slower" if name in late else "")
        for name, value in found.items()
    ]
    text = table(("case", "ratio", "recorded", ""), rows)
    if late:
        sys.stdout.write(text + "\n")
        raise SystemExit(f"beyond {LIMIT} times the recorded ratio: {', '.join(late)}")
    return text
