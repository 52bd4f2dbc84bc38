"""Signed graphs, similarities that are never formed, diffusion maps, co-clustering, features beside edges.

`python -m benchmarks beyond [--write]`. Times are CPU seconds of one thread, so that
other work on the machine does not count. ``SPECTROGRAD_BEYOND=small`` takes a tenth of the sizes, a part by
itself is ``python -m benchmarks.beyond signed``. Rivals run in processes of their own, which end after
``LIMIT`` CPU seconds or at ``MEMORY`` bytes; those that are not installed are left out, and that is said.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralClustering as TheirClustering
from sklearn.cluster import SpectralCoclustering as TheirCoclustering
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from benchmarks.documents import make_documents, reviews_of_clothing
from benchmarks.harness import DATA, table
from spectrograd import (
    DiffusionMap,
    Graph,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralCoclustering,
    datasets,
    knn_graph,
    metrics,
    read_labels,
)
from spectrograd.operators.laplacian import laplacian
from spectrograd.system import peak_memory

IS_SMALL = os.environ.get("SPECTROGRAD_BEYOND") == "small"
SHRINK = 10 if IS_SMALL else 1
NOTE = "\n\nA tenth of the usual sizes (`SPECTROGRAD_BEYOND=small`)." if IS_SMALL else ""
LIMIT = 10 if IS_SMALL else 60  # CPU seconds of a rival
MEMORY = 12 << 30  # bytes of a rival
DENSE_NODES = 10_000 // SHRINK
N_GROUPS = 3
SIGNED_DEGREE = 100  # groups are detectable from (K / (2 - 4 noise))^2 on: 56 at noise .4
LARGE_DEGREE = 30
DOCUMENTS = (100_000 // SHRINK, 50_000 // SHRINK, 160, 20)  # rows, words, words drawn a row, topics
MANY_DOCUMENTS = (1_000_000 // SHRINK, 50_000 // SHRINK, 60, 20)
SAMPLE = 5_000  # rows of a fit before, so that no kernel is compiled in a measurement
N_POINTS = 20_000 // SHRINK


class Timed(NamedTuple):
    """CPU seconds of a call and its value; None, and why, where there is none."""

    seconds: float
    value: Any = None
    outcome: str = ""

    @property
    def shown(self) -> str:
        """The seconds, or how the call ended."""
        return self.outcome or f"{self.seconds:.2f}"


def run() -> dict[str, str]:
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        return {f"beyond_{name}": part() + NOTE for name, part in PARTS.items()}


def fitted(model: Any, X: Any, sample: Any) -> Timed:
    """Our fit, after one of a sample that has compiled its kernels."""
    model.fit(sample)
    return ours(lambda: model.fit(X))


def ours(function: Callable[[], Any]) -> Timed:
    """CPU seconds and value."""
    began = time.process_time()
    value = function()
    return Timed(time.process_time() - began, value)


def rival(function: Callable[[], Any]) -> Timed:
    """The same in a process of its own, which may not take more than its limits."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        try:
            sender.send(ours(function))
        except MemoryError:
            sender.send(Timed(0.0, None, f"needs more than {MEMORY >> 30} GiB"))
        except Exception as error:  # the outcome is a row of the table, whatever it is
            sender.send(Timed(0.0, None, type(error).__name__))

    process = context.Process(target=work)
    process.start()
    sender.close()
    try:
        result: Timed = receiver.recv()
    except EOFError:
        result = Timed(LIMIT, None, f"stopped after {LIMIT} s")
    process.join()
    return result


def _ratio(theirs: Timed, mine: Timed) -> str:
    return "" if theirs.outcome else f"{theirs.seconds / mine.seconds:.1f}x"


def _nmi(labels: Any, found: Any) -> str:
    return "" if found is None else f"{metrics.nmi(labels, found):.3f}"


# --- Signed block models


def signed() -> str:
    """Every size and noise, and a million nodes once."""
    sizes = [(size // SHRINK, SIGNED_DEGREE, noise) for size in (10_000, 100_000) for noise in (1, 2, 3, 4)]
    _signed_row(10_000, LARGE_DEGREE, 1)  # compiles the kernels of large graphs
    rows = [_signed_row(*size) for size in (*sizes, (1_000_000 // SHRINK, LARGE_DEGREE, 2))]
    header = ("nodes", "degree", "noise", "NMI", "positive part", "certified", "off dense", "s", "unsigned")
    return (
        f"Signed block models of {N_GROUPS} groups. The last column is the time over that of an unsigned "
        "block model of as many nodes and edges, with the same distance between its eigenvalues:\n\n"
        + table(header, rows)
    )


def _signed_row(n: int, degree: int, tenths: int) -> tuple[Any, ...]:
    noise = tenths / 10
    data = datasets.make_signed_block_model(n, N_GROUPS, mean_degree=degree, noise=noise, random_state=0)
    model = SpectralClustering(N_GROUPS, laplacian="signed", random_state=0)
    mine = ours(lambda: model.fit(data.graph))
    positive = data.graph.matrix.maximum(0)
    positive.eliminate_zeros()
    alone = SpectralClustering(N_GROUPS, affinity="precomputed", random_state=0).fit(positive)
    # eigenvalues of both: degree 2 (1 - 2 noise) / K = degree (1 - mixing K / (K - 1))
    mixing = (1 - 2 * (1 - 2 * noise) / N_GROUPS) * (N_GROUPS - 1) / N_GROUPS
    degree_drawn = 2 * data.graph.n_edges / n
    usual = datasets.make_block_model(n, N_GROUPS, mean_degree=degree_drawn, mixing=mixing, random_state=0)
    unsigned = ours(lambda: SpectralClustering(N_GROUPS, random_state=0).fit(usual.graph))
    off = ""
    if n <= DENSE_NODES and tenths == 2:
        values = np.linalg.eigvalsh(laplacian(data.graph, "signed_symmetric").to_dense())
        off = f"{np.abs(values[: len(model.eigenvalues_)] - model.eigenvalues_).max():.0e}"
    nmi = [_nmi(data.labels, one.labels_) for one in (model, alone)]
    certified = "yes" if model.converged_ else "no"
    ratio = f"{mine.seconds / unsigned.seconds:.2f}"
    return f"{n:,}", degree, noise, *nmi, certified, off, mine.shown, ratio


# --- Rows of features


def similarities() -> str:
    """All pairs of documents by the cosine, against what there is."""
    Z, labels = make_documents(*DOCUMENTS)
    k = DOCUMENTS[-1]
    rows = [_cosine_row(Z, labels, k)]
    svd = rival(partial(_svd_clusters, Z, k))
    rows.append(("`TruncatedSVD`, k-means", _shape(Z), _nmi(labels, svd.value), svd.shown, "", ""))
    theirs = rival(lambda: TheirClustering(k, affinity="cosine", random_state=0).fit_predict(Z.toarray()))
    rows.append(('scikit-learn\'s `affinity="cosine"`', _shape(Z), "", theirs.shown, "", ""))
    rows.append(_snapatac(Z, labels, k))
    Z, labels = make_documents(*MANY_DOCUMENTS)
    rows.append(_cosine_row(Z, labels, k))
    header = (
        "",
        "rows x features, entries",
        "NMI",
        "CPU seconds",
        "certified",
        "memory added, in units of Z",
    )
    return f"tf-idf of documents of {k} topics:\n\n" + table(header, rows)


def _shape(Z: Any) -> str:
    return f"{Z.shape[0]:,} x {Z.shape[1]:,}, {Z.nnz:,}"


def _cosine_row(Z: Any, labels: Any, k: int) -> tuple[str, ...]:
    model = SpectralClustering(k, affinity="cosine", random_state=0)
    model.fit(Z[:SAMPLE])
    with peak_memory() as peak:
        mine = ours(lambda: model.fit(Z))
    size = Z.data.nbytes + Z.indices.nbytes + Z.indptr.nbytes
    certified = "yes" if model.converged_ else "no"
    memory = f"{peak.added / size:.1f}"
    return 'our `affinity="cosine"`', _shape(Z), _nmi(labels, model.labels_), mine.shown, certified, memory


def _svd_clusters(Z: Any, k: int) -> Any:
    vectors = TruncatedSVD(k, random_state=0).fit_transform(normalize(sp.csr_matrix(Z)))
    return KMeans(k, n_init=10, random_state=0).fit_predict(vectors)


def _snapatac(Z: Any, labels: Any, k: int) -> tuple[str, ...]:
    name = "snapatac2's `spectral`, k-means"
    if find_spec("snapatac2") is None or find_spec("anndata") is None:
        return name, _shape(Z), "", "not installed", "", ""

    def cluster() -> Any:
        import anndata
        import snapatac2

        data = anndata.AnnData(sp.csr_matrix(Z))
        vectors = snapatac2.tl.spectral(data, n_comps=k, features=None, random_state=0, inplace=False)[1]
        return KMeans(k, n_init=10, random_state=0).fit_predict(vectors)

    theirs = rival(cluster)
    return name, _shape(Z), _nmi(labels, theirs.value), theirs.shown, "", ""


# --- Diffusion maps


def diffusion() -> str:
    """A swiss roll: the same vectors as pydiffmap and scanpy, from the same kernel."""
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, 1, N_POINTS)) * 3 * np.pi / 2 + np.pi / 2
    X = np.column_stack([angle * np.cos(angle), rng.uniform(0, 8, N_POINTS), angle * np.sin(angle)])
    rows = []
    if find_spec("pydiffmap"):
        rows.append(_pydiffmap(X))
    if find_spec("scanpy"):
        rows.append(_scanpy(X))
    missing = [name for name in ("pydiffmap", "scanpy") if not find_spec(name)]
    text = f"Diffusion maps of {N_POINTS:,} points, four coordinates, the same kernel matrix for both:\n\n"
    header = ("rival", "sine between the subspaces", "its CPU seconds", "ours", "ratio")
    text += table(header, rows) if rows else ""
    return text + (f"\n\nNot installed: {', '.join(missing)}." if missing else "")


def _sine(A: Any, B: Any) -> str:
    Q = np.linalg.qr(A)[0]
    P = np.linalg.qr(B)[0]
    return f"{np.linalg.norm(P - Q @ (Q.T @ P), 2):.0e}"


def _map_row(name: str, theirs: Timed, vectors: Any, model: DiffusionMap, graph: Graph) -> tuple[Any, ...]:
    mine = fitted(model, graph, graph)
    sine = _sine(model.embedding_, vectors)
    return name, sine, theirs.shown, mine.shown, _ratio(theirs, mine)


def _pydiffmap(X: Any) -> tuple[Any, ...]:
    from pydiffmap.diffusion_map import DiffusionMap as Theirs

    model = Theirs.from_sklearn(n_evecs=4, epsilon=1.0, alpha=0.5, k=64)
    model.construct_Lmat(X)
    theirs = ours(lambda: model._make_diffusion_coords(model.L))
    K = sp.csr_array(model.kernel_matrix)
    own = float(K.diagonal()[0])
    K.setdiag(0)
    K.eliminate_zeros()
    mine = DiffusionMap(4, alpha=0.5, t=0, self_weight=own, random_state=0)
    return _map_row("pydiffmap", theirs, theirs.value[1], mine, Graph.from_matrix(K))


def _scanpy(X: Any) -> tuple[Any, ...]:
    import anndata
    import scanpy

    W = knn_graph(X, 15).matrix
    data = anndata.AnnData(X.astype(np.float32))
    keys = ("connectivities", "distances")
    data.uns["neighbors"] = {f"{key}_key": key for key in keys}
    data.uns["neighbors"]["params"] = {"n_neighbors": 15, "method": "umap"}
    for key in keys:
        data.obsp[key] = sp.csr_matrix(W)
    theirs = ours(lambda: scanpy.tl.diffmap(data, n_comps=5))
    psi = data.obsm["X_diffmap"][:, 1:] / data.obsm["X_diffmap"][:, :1]
    mine = DiffusionMap(4, alpha=1.0, t=0, random_state=0)
    return _map_row("scanpy `diffmap`", theirs, psi, mine, Graph.from_matrix(W))


# --- Two-sided data


def coclustering() -> str:
    """Documents and words at once, against scikit-learn's class."""
    tables = {"generated": (*make_documents(*DOCUMENTS), DOCUMENTS[-1])}
    if (DATA / "clothing_reviews").is_dir():
        Z, labels = reviews_of_clothing(DATA)
        tables["`clothing_reviews`"] = (Z, labels, int(labels.max()) + 1)
    rows = []
    for name, (Z, labels, k) in tables.items():
        Z = sp.csr_array(Z[:, np.flatnonzero(np.bincount(Z.indices, minlength=Z.shape[1]))])
        model = SpectralCoclustering(k, random_state=0)
        mine = fitted(model, Z, Z[:SAMPLE])
        theirs = rival(
            lambda Z=Z, k=k: TheirCoclustering(k, random_state=0).fit(sp.csr_matrix(Z)).row_labels_
        )
        nmi = (_nmi(labels, model.row_labels_), _nmi(labels, theirs.value))
        rows.append((name, _shape(Z), k, *nmi, mine.shown, theirs.shown, _ratio(theirs, mine)))
    header = ("table", "size", "clusters", "NMI of the rows", "scikit-learn's", "CPU s", "its CPU s", "ratio")
    return "Documents and their words:\n\n" + table(header, rows)


# --- Features beside edges


def features() -> str:
    """Co-authors and words: each alone, and both as layers."""
    place = DATA / "coauthor_cs"
    if not place.is_dir():
        return "coauthor_cs is not there: not measured."
    graph = Graph.from_matrix(sp.load_npz(place / "layer_coauthor.npz"))
    words = sp.csr_array(sp.load_npz(place / "view_keywords.npz")).astype(np.float32)
    labels = read_labels(place / "labels.csv.gz", np.arange(graph.n_nodes))
    k = int(labels.max()) + 1
    both = {"graph": graph, "words": words}
    found = {
        "graph": ours(lambda: SpectralClustering(k, random_state=0).fit(graph)),
        "words, all pairs by the cosine": ours(
            lambda: SpectralClustering(k, affinity="cosine", random_state=0).fit(words)
        ),
        "words, nearest neighbours": ours(
            lambda: SpectralClustering(k, affinity="nearest_neighbors", metric="cosine", random_state=0).fit(
                words
            )
        ),
        "both, words by neighbours": ours(lambda: MultilayerSpectralClustering(k, random_state=0).fit(both)),
        "both, words by neighbours, `projection`": ours(
            lambda: MultilayerSpectralClustering(k, aggregation="projection", random_state=0).fit(both)
        ),
        "both, words by the cosine": ours(
            lambda: MultilayerSpectralClustering(k, affinity="cosine", random_state=0).fit(both)
        ),
    }
    rows = [
        (name, _nmi(labels, one.value.labels_), one.shown, "yes" if one.value.converged_ else "no")
        for name, one in found.items()
    ]
    head = f"coauthor_cs, {k} fields (the words of pubmed are not among the data here):\n\n"
    return head + table(("layers", "NMI", "CPU seconds", "certified"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "signed": signed,
    "similarities": similarities,
    "diffusion": diffusion,
    "coclustering": coclustering,
    "features": features,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for chosen in sys.argv[1:] or PARTS:
            sys.stdout.write(f"{PARTS[chosen]()}\n\n")
            sys.stdout.flush()
