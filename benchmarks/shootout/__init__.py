"""Shootout: the default solver against the best peers, time to equal quality, on every family of graphs.

`python -m benchmarks shootout`, or with words that case names must contain:
`python -m benchmarks.shootout knn road`. Every entrant runs alone in its own process; a peer may take
``PATIENCE`` times as long as we do, and ``MOST_SECONDS`` (or ``SLOWER`` times our own, if that is more),
before it is stopped; it then does not run on larger graphs of the same kind. Scikit-learn's default is waited
for ``DEFAULT_SECONDS`` at least, to see how far behind it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.shootout.entrants import DEFAULT, ENTRANTS, OURS
from benchmarks.shootout.graphs import Case, cases
from benchmarks.shootout.page import page, right, short

PATIENCE = 10
LEAST_SECONDS, MOST_SECONDS, DEFAULT_SECONDS = 5, 15, 20
SLOWER = 4
START_SECONDS = 15  # imports, reading the graph, the small run before
RESULTS = Path(__file__).parents[1] / "results" / "shootout.json"
GRAPHS = RESULTS.parent / "graphs"  # made once: exact neighbours of 70,000 images take minutes

Row = dict[str, Any]


def run(words: tuple[str, ...] = ()) -> dict[str, str]:
    """Run the cases whose names contain one of the words (all, without words); the page of all so far."""
    RESULTS.parent.mkdir(exist_ok=True)
    table: dict[str, Row] = json.loads(RESULTS.read_text()) if RESULTS.exists() and words else {}
    for case in cases():
        if words and not any(word in case.name for word in words):
            continue
        table[case.name] = _case(case, _hopeless(case, table))
        RESULTS.write_text(json.dumps(table, indent=1))
    return {"shootout": page(table), "shootout-short": short(table)}


def _hopeless(case: Case, table: dict[str, Row]) -> set[str]:
    """Peers that were stopped or failed on a smaller graph of the same kind: they are not run again."""
    kind, size = _kind(case.name)
    smaller = [row for name, row in table.items() if _kind(name)[0] == kind and _kind(name)[1] < size]
    return {peer for row in smaller for peer, result in row["entrants"].items() if "failed" in result}


def _kind(name: str) -> tuple[str, int]:
    """The name without its number of nodes, and that number."""
    found = re.search(r" ([\d,]{5,})", name)
    return (name, 0) if found is None else (name.replace(found[0], ""), int(found[1].replace(",", "")))


def _case(case: Case, hopeless: set[str]) -> Row:
    folder = GRAPHS / case.name.replace(",", "").replace(" ", "_")
    if not (folder / "graph.npz").exists():
        _made(case, folder)
    matrix = sp.load_npz(folder / "graph.npz")
    print(f"{case.name}: {matrix.shape[0]:,} nodes, {matrix.nnz:,} nonzeros", flush=True)
    rows: Row = {}
    limit = 600.0
    for name in ENTRANTS:
        if name in hopeless:
            rows[name] = {"failed": "not run: stopped on a smaller graph of this kind"}
            continue
        patience = max(limit, DEFAULT_SECONDS) if name == DEFAULT else limit
        rows[name] = _loosest(name, folder, case, patience, rows)
        if name == OURS:
            spent = rows[name].get("seconds", 60) + rows[name].get("label_seconds", 0)
            limit = min(max(LEAST_SECONDS, PATIENCE * spent), max(MOST_SECONDS, SLOWER * spent))
    size = {"nodes": matrix.shape[0], "nonzeros": matrix.nnz, "k": case.n_clusters, "family": case.family}
    return size | {"entrants": rows}


def _loosest(name: str, folder: Path, case: Case, patience: float, rows: Row) -> Row:
    """An entrant at the loosest of its tolerances that gives equal quality (else the tightest)."""
    row: Row = {}
    for tol in ENTRANTS[name].tolerances:
        row = _alone(name, str(folder), case.n_clusters, patience, tol)
        row["tolerance"] = tol
        print(f"  {name:20} tol {tol} {_short(row)}", flush=True)
        if "failed" in row or right(row, {"entrants": rows | {name: row}, "k": case.n_clusters}):
            break
    return row


def _made(case: Case, folder: Path) -> None:
    matrix, labels = case.build()
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    folder.mkdir(parents=True)
    if labels is not None:
        np.save(folder / "labels.npy", labels)
    sp.save_npz(folder / "graph.npz", matrix, compressed=False)


def _alone(name: str, folder: str, k: int, limit: float, tol: float | None) -> Row:
    command = [sys.executable, "-m", "benchmarks.shootout.child", name, folder, str(k)]
    command.append("none" if tol is None else str(tol))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            out, errors = child.communicate(timeout=START_SECONDS + limit + 5)
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
            errors = f"more than {limit:.0f} s"
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if lines:
        row: Row = json.loads(lines[-1])
        return row
    return {"failed": errors.strip().splitlines()[-1][:120] if errors.strip() else "no answer"}


def _short(row: Row) -> str:
    if "failed" in row:
        return str(row["failed"])
    shown = (f"{key} {row[key]:.4g}" for key in ("seconds", "trace", "label_seconds", "nmi") if key in row)
    return "  ".join(shown) + f"  {row.get('solver', '')} {row.get('converged', '')}"
