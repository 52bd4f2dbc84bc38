"""The torch engine beside the local one on block models: `python -m benchmarks.torch_engine [NODES ...]`.

It is not among the suites of `python -m benchmarks`, whose extra leaves torch out.
"""

from __future__ import annotations

import sys

from benchmarks.harness import table
from spectrograd.engines import make_engine
from spectrograd.pipeline.device_check import timings


def run(sizes: tuple[int, ...] = (100_000,), device: str = "torch:cpu") -> str:
    engine = make_engine(device)
    rows = [
        (f"{t.n_nodes:,}", t.name, f"{t.local:.2f}", f"{t.device:.2f}", f"{t.device / t.local:.2f}")
        for n_nodes in sizes
        for t in timings(engine, n_nodes)
    ]
    return f"## {device} beside local\n\n" + table(
        ("nodes", "solver", "local s", f"{device} s", "ratio"), rows
    )


if __name__ == "__main__":
    print(run(tuple(int(word) for word in sys.argv[1:]) or (100_000,)))
