"""Public data against the best peers: every graph of the data folder and scikit-learn's sets, by family.

`python -m benchmarks public [--write]` takes one thread for all of it, two for what is large; a part:

    python -m benchmarks.public [--family embedding ...] [--graph NAME ...] [--threads 1] [--quick] [--write]

Rows are kept in `benchmarks/results`; a part that is measured again takes the place of its old rows.

Every row is measured in one process of our own and one of the peers, with the same number of threads for
all libraries. The first call on a graph is not counted: it compiles or loads kernels. CPU seconds are those
of the process, the least of a few runs; a ratio is the fastest peer of equal quality over ours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.blocks import fill_pages, store
from benchmarks.harness import machine
from benchmarks.public.cases import FAMILIES, Case, cases
from benchmarks.public.page import pages
from benchmarks.public.rows import measure
from benchmarks.records import record

Row = dict[str, Any]
LARGE_FAMILIES = ("large", "points")  # what a second thread is for, unless a family is asked for
RESULTS = Path(__file__).parents[1] / "results"


def run(arguments: Sequence[str] = ()) -> dict[str, str]:
    """Measure the families that are asked for (all, without any); the page of all rows so far."""
    options = _options(arguments)
    rows: list[Row] = []
    for threads in options.threads:
        rows += _run_threads(options, threads)
    blocks = pages(rows)
    if options.write:
        for block, body in blocks.items():
            store(block, f"{body}\n\nMeasured {machine()}; `python -m benchmarks public --write`.")
            record(block)
        fill_pages()
    return blocks


def _run_threads(options: argparse.Namespace, threads: int) -> list[Row]:
    quick = "-quick" if options.quick else ""
    kept = RESULTS / f"public-{threads}{quick}.json"
    chosen = [case for case in cases(options.quick) if _is_chosen(case, options, threads)]
    rows: list[Row] = json.loads(kept.read_text()) if kept.exists() and _is_partial(options) else []
    names = {(case.family, case.name) for case in chosen}
    rows = [row for row in rows if (row["family"], row["graph"]) not in names]
    for case in chosen:
        for row in measure(case, threads):
            rows.append(row | {"threads": threads})
            print(_line(row), flush=True)
        RESULTS.mkdir(exist_ok=True)
        kept.write_text(json.dumps(rows, indent=1))
    return rows


def _is_chosen(case: Case, options: argparse.Namespace, threads: int) -> bool:
    in_family = case.family in (options.family or (FAMILIES if threads == 1 else LARGE_FAMILIES))
    return in_family and (not options.graph or any(word in case.name for word in options.graph))


def _is_partial(options: argparse.Namespace) -> bool:
    return bool(options.family or options.graph)


def _line(row: Row) -> str:
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}x"
    ours = row["ours"]
    quality = f"sine {ours['sine']:.1g}" if "sine" in ours else f"NMI {ours.get('nmi', float('nan')):.3f}"
    mine = f"ours {ours['cpu']:.3f} s ({ours.get('solver', '')}, {quality})"
    where = f"{row['family']:12} {row['graph']:32} K={row['k']:<4}"
    return f"  {where} {ratio:>7} {mine}; {row['best'] or 'no peer'}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=[])
    parser.add_argument("--graph", nargs="+", default=[], help="words that a graph's name must contain")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--write", action="store_true", help="store the blocks and fill in the pages")
    parser.add_argument("--quick", action="store_true", help="a tenth of the edges, fewer numbers of vectors")
    return parser.parse_args(arguments)
