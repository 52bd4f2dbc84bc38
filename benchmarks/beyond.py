"""Signed graphs, similarities that are never formed, diffusion maps, co-clustering, features beside edges.

`SPECTROGRAD_DATA=FOLDER python -m benchmarks beyond [--write]`. Times are CPU seconds of one process, so that
other work on the machine does not count. The environment variable ``SPECTROGRAD_BEYOND=full`` takes the sizes
of a machine that has nothing else to do: a million signed nodes, 100,000 documents of 50,000 words.
Rivals that are not installed (pydiffmap, scanpy) are left out, and that is said.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralCoclustering as TheirCoclustering
from sklearn.decomposition import TruncatedSVD

from benchmarks.harness import table
from spectrograd import (
    DiffusionMap,
    Graph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralCoclustering,
    datasets,
    metrics,
    read_labels,
)
from spectrograd.operators.laplacian import laplacian

IS_FULL = os.environ.get("SPECTROGRAD_BEYOND") == "full"
SIGNED_SIZES = (10_000, 100_000, 1_000_000) if IS_FULL else (2_000, 20_000)
DOCUMENTS = (100_000, 50_000, 100) if IS_FULL else (10_000, 5_000, 50)
N_POINTS = 20_000 if IS_FULL else 4_000
DENSE_AT_MOST = 10_000 if IS_FULL else 2_000


def run() -> dict[str, str]:
    warnings.simplefilter("ignore")
    blocks = {
        "beyond_signed": signed(),
        "beyond_similarities": similarities(),
        "beyond_diffusion": diffusion(),
        "beyond_coclustering": coclustering(),
    }
    folder = os.environ.get("SPECTROGRAD_DATA")
    if folder:
        blocks["beyond_features"] = features_beside_edges(Path(folder))
    return blocks


def cpu(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and the result."""
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def signed() -> str:
    """Signed block models of five groups, mean degree 30."""
    rows = []
    for n in SIGNED_SIZES:
        for noise in (0.1, 0.2, 0.3, 0.4):
            data = datasets.make_signed_block_model(n, 5, mean_degree=60, noise=noise, random_state=0)
            model = SpectralClustering(5, laplacian="signed", random_state=0)
            seconds, _ = cpu(lambda model=model, data=data: model.fit(data.graph))
            positive = data.graph.matrix.maximum(0)
            positive.eliminate_zeros()
            alone = SpectralClustering(5, affinity="precomputed", random_state=0)
            unsigned_seconds, _ = cpu(lambda alone=alone, positive=positive: alone.fit(positive))
            dense = ""
            if n <= DENSE_AT_MOST:
                values = np.linalg.eigvalsh(laplacian(data.graph, "signed_symmetric").to_dense())[:4]
                dense = f"{np.abs(values - model.eigenvalues_[:4]).max():.1e}"
            nmi = [f"{metrics.nmi(data.labels, one.labels_):.3f}" for one in (model, alone)]
            ratio = f"{seconds / unsigned_seconds:.2f}"
            rows.append((f"{n:,}", noise, *nmi, "yes" if model.converged_ else "no", dense, ratio))
    header = (
        "nodes",
        "noise",
        "signed NMI",
        "positive part",
        "certified",
        "off dense",
        "time / positive part",
    )
    return "Signed block models, 5 groups, mean degree 60:\n\n" + table(header, rows)


def documents(n_rows: int, n_words: int, length: int) -> tuple[Any, Any]:
    """tf-idf of documents of eight topics."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, n_rows)
    chances = rng.dirichlet(np.full(n_words, 0.05), 8)
    own = np.stack([rng.choice(n_words, (n_rows, length), p=p) for p in chances])[labels, np.arange(n_rows)]
    common = rng.zipf(1.3, (n_rows, length)) % n_words
    words = np.where(rng.random((n_rows, length)) < 0.15, own, common)
    counts = sp.coo_array(
        (np.ones(words.size, np.float32), (np.repeat(np.arange(n_rows), length), words.ravel())),
        shape=(n_rows, n_words),
    ).tocsr()
    frequency = np.bincount(counts.indices, minlength=n_words)
    weights = np.log((1 + n_rows) / (1 + frequency)).astype(np.float32) + 1
    return sp.csr_array(counts.multiply(weights[None, :])), labels


def similarities() -> str:
    """All pairs of documents by the cosine against a truncated SVD and k-means."""
    Z, labels = documents(*DOCUMENTS)
    model = SpectralClustering(8, affinity="cosine", random_state=0)
    seconds, _ = cpu(lambda: model.fit(Z))

    def rival() -> Any:
        scaled = sp.csr_matrix(Z.multiply(1 / np.sqrt(Z.multiply(Z).sum(axis=1))[:, None]))
        vectors = TruncatedSVD(8, random_state=0).fit_transform(scaled)
        return KMeans(8, n_init=10, random_state=0).fit_predict(vectors)

    theirs, found = cpu(rival)
    rows = [
        (
            "`affinity='cosine'`",
            f"{metrics.nmi(labels, model.labels_):.3f}",
            f"{seconds:.2f}",
            "yes" if model.converged_ else "no",
        ),
        ("`TruncatedSVD`, k-means", f"{metrics.nmi(labels, found):.3f}", f"{theirs:.2f}", ""),
    ]
    shape = f"{Z.shape[0]:,} documents, {Z.shape[1]:,} words, {Z.nnz:,} entries"
    return f"{shape}:\n\n" + table(("", "NMI", "CPU seconds", "certified"), rows)


def diffusion() -> str:
    """A swiss roll: the same vectors as pydiffmap and scanpy."""
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, 1, N_POINTS)) * 3 * np.pi / 2 + np.pi / 2
    X = np.column_stack([angle * np.cos(angle), rng.uniform(0, 8, N_POINTS), angle * np.sin(angle)])
    rows = [row for row in (_pydiffmap(X), _scanpy(X)) if row is not None]
    if not rows:
        return "Neither pydiffmap nor scanpy is installed: no diffusion map to compare with."
    header = ("rival", "sine between the subspaces", "its CPU seconds", "ours")
    return f"Diffusion maps of {N_POINTS:,} points, four coordinates, the same kernel:\n\n" + table(
        header, rows
    )


def _sine(A: Any, B: Any) -> str:
    Q, R = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    return f"{np.sqrt(max(0.0, 1 - np.linalg.svd(Q.T @ R)[1].min() ** 2)):.1e}"


def _pydiffmap(X: Any) -> tuple[Any, ...] | None:
    try:
        from pydiffmap.diffusion_map import DiffusionMap as Theirs
    except ImportError:
        return None
    rival = Theirs.from_sklearn(n_evecs=4, epsilon=1.0, alpha=0.5, k=64)
    theirs, _ = cpu(lambda: rival.fit(X))
    K = sp.csr_array(rival.local_kernel.compute(X))
    K = sp.csr_array((K + K.T) / 2)
    own = float(K.diagonal()[0])
    K.setdiag(0)
    K.eliminate_zeros()
    model = DiffusionMap(4, alpha=0.5, t=0, self_weight=own, tol=1e-8, random_state=0)
    seconds, _ = cpu(lambda: model.fit(Graph.from_matrix(K)))
    return (
        "pydiffmap (with its neighbours)",
        _sine(model.embedding_, rival.evecs),
        f"{theirs:.2f}",
        f"{seconds:.2f}",
    )


def _scanpy(X: Any) -> tuple[Any, ...] | None:
    try:
        import anndata
        import scanpy
    except ImportError:
        return None
    data = anndata.AnnData(X.astype(np.float32))
    scanpy.pp.neighbors(data, n_neighbors=15, use_rep="X")
    theirs, _ = cpu(lambda: scanpy.tl.diffmap(data, n_comps=5))
    W = sp.csr_array(data.obsp["connectivities"]).astype(np.float64)
    model = DiffusionMap(4, alpha=1.0, t=0, tol=1e-8, random_state=0)
    seconds, _ = cpu(lambda: model.fit(Graph.from_matrix(W)))
    psi = data.obsm["X_diffmap"][:, 1:] / data.obsm["X_diffmap"][:, :1]
    return "scanpy `diffmap`", _sine(model.embedding_, psi), f"{theirs:.2f}", f"{seconds:.2f}"


def coclustering() -> str:
    """Documents and words at once, against scikit-learn's class."""
    Z, labels = documents(*DOCUMENTS)
    model = SpectralCoclustering(8, random_state=0)
    seconds, _ = cpu(lambda: model.fit(Z))
    rival = TheirCoclustering(8, random_state=0)
    kept = np.flatnonzero(np.asarray(Z.sum(axis=0)).ravel())
    theirs, _ = cpu(lambda: rival.fit(sp.csr_matrix(Z[:, kept])))
    rows = [
        ("`SpectralCoclustering`", f"{metrics.nmi(labels, model.row_labels_):.3f}", f"{seconds:.2f}"),
        ("scikit-learn's", f"{metrics.nmi(labels, rival.row_labels_):.3f}", f"{theirs:.2f}"),
    ]
    return "The same documents and their words:\n\n" + table(("", "NMI of the rows", "CPU seconds"), rows)


def features_beside_edges(folder: Path) -> str:
    """Co-authors and words: each alone, and both as layers."""
    place = folder / "coauthor_cs"
    graph = Graph.from_matrix(sp.load_npz(place / "layer_coauthor.npz"))
    words = sp.csr_array(sp.load_npz(place / "view_keywords.npz")).astype(np.float32)
    labels = read_labels(place / "labels.csv.gz", np.arange(graph.n_nodes))
    k = int(labels.max()) + 1
    found = {
        "graph": SpectralClustering(k, random_state=0).fit(graph).labels_,
        "words": SpectralClustering(k, affinity="cosine", random_state=0).fit(words).labels_,
        "both": MultilayerSpectralClustering(k, random_state=0).fit({"graph": graph, "words": words}).labels_,
    }
    rows = [(name, f"{metrics.nmi(labels, own):.3f}") for name, own in found.items()]
    return "coauthor_cs:\n\n" + table(("layers", "NMI"), rows)
