"""Every method on three graphs by `compare`, three seconds each: the tables of docs/methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import DATA, table
from spectrograd import Graph, datasets, knn_graph
from spectrograd.pipeline import Settings
from spectrograd.pipeline.compare import compare

BUDGET = 3.0
COLUMNS = ("solver", "seconds", "passes", "objective", "angle", "NMI", "ARI", "converged", "remark")


def run() -> dict[str, str]:
    """One block for the overview, one for the page of each method."""
    overview, by_method = [], {}
    for name, sentence, graph, labels, k in _graphs():
        settings = Settings(n_components=k, seed=0, time_budget=BUDGET, regularization=None)
        rows, _ = compare(graph, settings, classes=labels)
        overview.append(f"**{name}**: {sentence}\n\n{table(COLUMNS, [_cells(row) for row in rows])}")
        for row in rows:
            by_method.setdefault(row["method"].split(":")[0], []).append((name, _sentence(row)))
    pages = {f"method-{name}": table(("graph", "result"), rows) for name, rows in by_method.items()}
    pages.pop("method-auto", None)
    return {"methods": "\n\n".join(overview)} | pages


def _graphs() -> Any:
    data = datasets.make_block_model(10_000, 5, random_state=0)
    yield "block model", "10,000 nodes, mean degree 20, K = 5", data.graph, data.labels, 5
    points, labels = datasets.make_gaussian_mixture(10_000, 5, random_state=0)
    yield (
        "k-NN",
        "10-NN graph of a planar Gaussian mixture, 10,000 nodes, K = 5",
        knn_graph(points),
        labels,
        5,
    )
    folder = DATA / "lastfm_asia"
    if folder.exists():
        import pandas as pd
        import scipy.sparse as sp

        matrix = sp.load_npz(folder / "layer_friends.npz").astype(float)
        classes = pd.read_csv(folder / "labels.csv.gz", keep_default_na=False)["label"].to_numpy()
        known = np.asarray(classes)
        yield "lastfm_asia", "7,624 nodes, K = 18", Graph.from_matrix(matrix), known, 18


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    good = {True: "yes", False: "no", None: "-"}[row["converged"]]
    figures = (("seconds", ".2f"), ("passes", ".1f"), ("objective", ".5f"), ("angle", ".1e"))
    shown = [_shown(row[key], form) for key, form in figures]
    scores = [_shown(row[key], ".3f") for key in ("nmi", "ari")]
    return (f"`{row['method']}`", *shown, *scores, good, row["error"] or "")


def _sentence(row: dict[str, Any]) -> str:
    if row["objective"] is None:
        return str(row["error"])
    good = "yes" if row["converged"] else "no"
    return (
        f"{_shown(row['seconds'], '.1f')} s, {_shown(row['passes'], '.0f')} passes, angle "
        f"{_shown(row['angle'], '.0e')}, NMI {_shown(row['nmi'], '.3f')}, converged: {good}"
    )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
