"""The graphs of the shootout: made here, or read from a folder of real ones (skipped when absent)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import DATA
from spectrograd import datasets
from spectrograd.points.knn_graph import knn_graph


@dataclass(frozen=True)
class Case:
    """A graph by name: ``build`` returns its matrix and its classes, or None where there are none."""

    name: str
    n_clusters: int
    build: Callable[[], tuple[sp.csr_array, Any]]
    family: str


def cases() -> Iterator[Case]:
    """Every case whose data is here, small ones first."""
    for n in (20_000, 200_000, 1_000_000):
        yield Case(f"knn {n:,}", 5, lambda n=n: _mixture(n), "geometric")
    for n in (20_000, 200_000, 1_000_000):
        for k in (5, 32):
            for exponent in (None, 2.5):
                name = f"{'degree-corrected' if exponent else 'block model'} {n:,} K={k}"
                yield Case(name, k, lambda n=n, k=k, e=exponent: _blocks(n, k, e), "expander")
    for n in (10_000, 100_000):
        yield Case(f"three layers {n:,}", 5, lambda n=n: _layers(n), "expander")
    for name, k, view in (
        ("mnist", 10, "view_pixels"),
        ("mfeat", 10, "view_fac"),
        ("coauthor_cs", 15, "layer_coauthor"),
        ("lastfm_asia", 18, "layer_friends"),
        ("email_eu_core", 42, "layer_email"),
        ("pubmed", 3, "layer_citation"),
        ("road_ny", 8, "layer_road"),
        ("luxembourg_osm", 8, "layer_road"),
    ):
        if (DATA / name).is_dir():
            yield Case(name, k, lambda n=name, v=view: _real(n, v), "real")
        else:
            print(f"{name}: skipped, no {DATA / name} (set SPECTROGRAD_DATA)", flush=True)


def _mixture(n_nodes: int) -> tuple[sp.csr_array, Any]:
    points, labels = datasets.make_gaussian_mixture(n_nodes, 5, random_state=0)
    return knn_graph(points, 10).matrix, labels


def _blocks(n_nodes: int, n_clusters: int, exponent: float | None) -> tuple[sp.csr_array, Any]:
    data = datasets.make_block_model(n_nodes, n_clusters, degree_exponent=exponent, random_state=0)
    return data.graph.matrix, data.labels


def _layers(n_nodes: int) -> tuple[sp.csr_array, Any]:
    """The mean of the layers' normalised adjacencies."""
    data = datasets.make_multilayer_gmm(n_nodes, random_state=0)
    total = sum(normalised(layer.matrix)[0] for layer in data.graph.layers)
    return sp.csr_array(total), data.labels


def _real(name: str, part: str) -> tuple[sp.csr_array, Any]:
    labels = labels_of_file(DATA / name / "labels.csv.gz")
    if part.startswith("layer"):
        matrix = sp.csr_array(sp.load_npz(DATA / name / f"{part}.npz").astype(np.float64))
        linked = np.asarray(matrix.sum(axis=0)).ravel() > 0  # peers divide by the degree
        matrix, labels = matrix[linked][:, linked], None if labels is None else labels[linked]
    else:
        points = np.load(DATA / name / f"{part}.npz")["X"].astype(np.float32)
        matrix = knn_graph(points, 10).matrix
    return matrix, labels


def labels_of_file(path: Path) -> Any:
    if not path.exists():
        return None
    with gzip.open(path, "rt", newline="") as file:
        return np.array([int(row["label"]) for row in csv.DictReader(file)])


def normalised(matrix: Any) -> tuple[Any, Any]:
    """``D^-1/2 W D^-1/2`` and ``d^-1/2``, as every peer needs it."""
    scale = 1 / np.sqrt(np.asarray(matrix.sum(axis=1)).ravel())
    return sp.csr_array(sp.diags_array(scale) @ matrix @ sp.diags_array(scale)), scale
