"""Beside scanpy, networkx, PyG and UMAP: the same result, by their own function and by ours, in one run.

``SPECTROGRAD_ECOSYSTEM=full`` takes a million points, and 2.4 million nodes with 62 million edges; otherwise
a fifth to a tenth of that. A rival is stopped at twenty times our seconds, in a process of its own.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import table
from spectrograd import Graph, datasets, knn_graph, umap_init
from spectrograd import networkx_backend as backend
from spectrograd.pipeline.eigenpairs import smallest_eigenpairs
from spectrograd.pyg import laplacian_encoding
from spectrograd.system import peak_memory

FULL = os.environ.get("SPECTROGRAD_ECOSYSTEM") == "full"
STOPPED_AT = 20  # times our own seconds
LEAST_SECONDS = 10.0  # that a rival gets in any case
N_CELLS, RARE_CELLS = (100_000, 200) if FULL else (30_000, 60)
N_OPEN_CELLS, N_PEAKS = (100_000, 20_000) if FULL else (20_000, 5_000)
N_POINTS = 1_000_000 if FULL else 100_000
N_NODES, MEAN_DEGREE = (2_400_000, 52) if FULL else (200_000, 40)
N_GRAPHS, GRAPH_SIZE = 10_000, 25
GRID_SIDE = 316  # nodes on a side: 100,000 in all


class Timed(NamedTuple):
    """CPU seconds of a call and its value; None where it was stopped or failed."""

    seconds: float
    value: Any
    outcome: str


def run() -> str:
    header = ("task", "size", "rival", "rival CPU s", "ours CPU s", "ratio", "quality")
    with warnings.catch_warnings(action="ignore"):
        rows = [
            _diffusion_map(),
            _accessible_cells(),
            _umap_start(),
            _encodings(),
            _many_graphs(),
            _fiedler("tracemin_lu"),
            _fiedler("tracemin_pcg"),
        ]
    return table(header, rows)


def limited(function: Callable[[], Any], seconds: float) -> Timed:
    """Run a function in a process of its own, which the system ends after so many seconds of its CPU time.

    Time on the wall would stop a rival early where other jobs share the processors.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    limit = math.ceil(seconds)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        began = time.process_time()
        try:
            value = function()
        except Exception as error:  # the outcome is a row of the table, whatever it is
            sender.send((time.process_time() - began, None, type(error).__name__))
        else:
            sender.send((time.process_time() - began, value, "done"))

    process = context.Process(target=work)
    process.start()
    sender.close()  # else the end of the process would go unnoticed
    try:
        result = Timed(*receiver.recv())
    except EOFError:
        result = Timed(limit, None, "stopped")
    process.join()
    return result


def ours(function: Callable[[], Any]) -> Timed:
    """CPU seconds of our own call; one before it compiles."""
    function()
    began = time.process_time()
    value = function()
    return Timed(time.process_time() - began, value, "done")


def compare(
    task: str, size: str, rival_name: str, rival: Callable[[], Any], mine: Callable[[], Any], judge: Any
) -> tuple[str, ...]:
    """A row of the table."""
    result = ours(mine)
    other = limited(rival, max(LEAST_SECONDS, STOPPED_AT * result.seconds))
    shown = f"{other.seconds:.2f}" if other.outcome == "done" else f"{other.outcome} at {other.seconds:.0f}"
    ratio = f"{other.seconds / result.seconds:.1f}x"
    if other.outcome == "stopped":
        ratio = f"above {ratio}"
    elif other.outcome != "done":
        ratio = "-"
    return task, size, rival_name, shown, f"{result.seconds:.2f}", ratio, judge(result.value, other.value)


def span_sine(a: np.ndarray, b: np.ndarray) -> float:
    """The sine of the largest angle between two spans."""
    Q = np.linalg.qr(np.asarray(a, np.float64))[0]
    P = np.linalg.qr(np.asarray(b, np.float64))[0]
    return float(np.linalg.norm(P - Q @ (Q.T @ P), 2))


def _cells() -> sp.csr_array:
    """Neighbours of cells in a continuous development, and of a rare population beside it."""
    rng = np.random.default_rng(0)
    time_of = np.sort(rng.random(N_CELLS - RARE_CELLS))
    curve = np.stack([np.sin(3 * np.pi * time_of), np.cos(2 * np.pi * time_of), 4 * time_of], axis=1)
    points = np.concatenate([curve @ rng.normal(size=(3, 50)) * 2, np.full((RARE_CELLS, 50), 3.0)])
    graph = knn_graph(points + 0.5 * rng.normal(size=points.shape), 15)
    return graph.matrix.astype(np.float32)


def _diffusion_map() -> tuple[str, ...]:
    import anndata
    import scanpy

    from spectrograd.scanpy import diffmap

    weights = _cells()
    adata = anndata.AnnData(np.zeros((N_CELLS, 1), np.float32))
    adata.obsp["connectivities"] = sp.csr_matrix(weights)
    adata.obsp["distances"] = sp.csr_matrix(weights)
    adata.uns["neighbors"] = {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {"n_neighbors": 15, "method": "umap"},
    }

    def rival() -> Any:
        return scanpy.tl.diffmap(adata, copy=True).obsm["X_diffmap"]

    def mine() -> Any:
        return diffmap(adata, copy=True)

    def judge(changed: Any, theirs: Any) -> str:
        certified = "certified" if changed.uns["diffmap"]["converged"] else "not certified"
        if theirs is None:
            return certified
        return f"{certified}, sine {span_sine(changed.obsm['X_diffmap'], theirs):.0e}"

    return compare("diffusion map", f"{N_CELLS:,} cells", "scanpy.tl.diffmap", rival, mine, judge)


def _accessible_cells() -> tuple[str, ...]:
    """Cells by the peaks that are open: cosines of rows weighted by idf, as snapatac2 takes them."""
    import anndata
    import snapatac2

    from spectrograd import SpectralEmbedding

    rng = np.random.default_rng(0)
    kind = rng.integers(10, size=N_OPEN_CELLS)
    profiles = rng.gamma(0.3, size=(10, N_PEAKS))
    profiles = 0.7 * profiles / profiles.sum(axis=1, keepdims=True) + 0.3 / N_PEAKS
    depths = rng.lognormal(6, 0.4, size=N_OPEN_CELLS).astype(int)
    peaks = [rng.choice(N_PEAKS, depth, p=profiles[k]) for k, depth in zip(kind, depths, strict=True)]
    cells = np.repeat(np.arange(N_OPEN_CELLS), depths)
    shape = (N_OPEN_CELLS, N_PEAKS)
    counts = sp.csr_matrix((np.ones(len(cells)), (cells, np.concatenate(peaks))), shape=shape)
    counts.data[:] = 1
    adata = anndata.AnnData(counts.astype(np.float32))

    def rival() -> Any:
        return snapatac2.tl.spectral(
            adata, n_comps=10, features=None, weighted_by_sd=False, inplace=False, num_threads=1
        )[1]

    def mine() -> Any:
        idf = np.log(N_OPEN_CELLS / (1 + np.asarray(counts.sum(axis=0)).ravel()))
        model = SpectralEmbedding(
            10, affinity="cosine", laplacian="symmetric", drop_first=False, random_state=0
        )
        return model.fit(sp.csr_matrix(counts @ sp.diags_array(idf)))

    def judge(model: Any, theirs: Any) -> str:
        certified = "certified" if model.converged_ else "not certified"
        return certified if theirs is None else f"{certified}, sine {span_sine(model.embedding_, theirs):.0e}"

    size = f"{N_OPEN_CELLS:,} cells, {N_PEAKS:,} peaks"
    return compare("open chromatin, cosine", size, "snapatac2.tl.spectral", rival, mine, judge)


def _umap_start() -> tuple[str, ...]:
    from umap.spectral import spectral_layout

    rng = np.random.default_rng(0)
    points = rng.normal(size=(N_POINTS, 4)) + 6.5 * rng.integers(2, size=(N_POINTS, 1))
    graph = knn_graph(points, 15)

    def rival() -> Any:
        state = np.random.RandomState(0)
        return spectral_layout(points, sp.csr_matrix(graph.matrix), 2, state)

    def judge(start: Any, theirs: Any) -> str:
        return "finite, all points apart" if len(np.unique(start, axis=0)) > 0.99 * N_POINTS else "collapsed"

    size = f"{N_POINTS:,} points, {int(graph.components.max()) + 1} components"
    return compare("start of UMAP", size, "umap.spectral", rival, lambda: umap_init(graph), judge)


def _encodings() -> tuple[str, ...]:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE

    data = datasets.make_block_model(
        N_NODES, 20, mean_degree=MEAN_DEGREE, mixing=0.3, degree_exponent=2.5, random_state=0
    )
    graph = data.graph
    n_edges = graph.n_edges
    indptr, indices = graph.pattern
    edges = np.empty((2, graph.n_entries), np.int64)
    edges[0] = np.repeat(np.arange(N_NODES), np.diff(indptr))
    edges[1] = indices
    del data, graph, indptr, indices
    tensor = torch.from_numpy(edges)

    def rival() -> Any:
        transform = AddLaplacianEigenvectorPE(16, is_undirected=True)
        return transform(Data(edge_index=tensor, num_nodes=N_NODES)).laplacian_eigenvector_pe.numpy()

    def judge(encoding: Any, theirs: Any) -> str:
        certified = "certified" if encoding.converged else "not certified"
        share = memory[-1] / edges.nbytes
        return f"{certified}, largest residual {encoding.residuals.max():.0e}, memory {share:.1f}x the edges"

    memory: list[float] = []

    def mine() -> Any:
        with peak_memory() as peak:
            encoding = laplacian_encoding(edges, N_NODES, 16)
        memory.append(float(peak.added or 0))
        return encoding

    size = f"{N_NODES:,} nodes, {n_edges:,} edges, k = 16"
    return compare("encodings", size, "PyG's transform", rival, mine, judge)


def _many_graphs() -> tuple[str, ...]:
    import torch
    from torch_geometric.data import Batch, Data
    from torch_geometric.transforms import AddLaplacianEigenvectorPE
    from torch_geometric.utils import erdos_renyi_graph

    torch.manual_seed(0)
    graphs = [
        Data(edge_index=erdos_renyi_graph(GRAPH_SIZE, 0.3), num_nodes=GRAPH_SIZE) for _ in range(N_GRAPHS)
    ]
    batch = Batch.from_data_list(graphs)

    def rival() -> Any:
        transform = AddLaplacianEigenvectorPE(8, is_undirected=True)
        return [transform(graph).laplacian_eigenvector_pe.numpy() for graph in graphs]

    def mine() -> Any:
        return laplacian_encoding(batch.edge_index, batch.num_nodes, 8, ptr=batch.ptr)

    def judge(encoding: Any, theirs: Any) -> str:
        return "" if theirs is None else f"{_same_encodings(encoding, theirs):.1%} of the graphs alike"

    size = f"{N_GRAPHS:,} graphs of {GRAPH_SIZE} nodes, k = 8"
    return compare("many small graphs", size, "PyG's transform", rival, mine, judge)


def _same_encodings(encoding: Any, theirs: Any) -> float:
    """Share of graphs whose vectors agree up to a rotation within groups of equal eigenvalues."""
    n_alike = 0
    for number, other in enumerate(theirs):
        mine = encoding.vectors[GRAPH_SIZE * number : GRAPH_SIZE * (number + 1)]
        groups = [list(group) for group in encoding.groups(number) if group[-1] < 7]
        sines = [span_sine(mine[:, group], other[:, group]) for group in groups]
        n_alike += max(sines, default=0) < 1e-3
    return n_alike / len(theirs)


def _fiedler(method: str) -> tuple[str, ...]:
    """A grid; networkx by its fastest method, and by its default."""
    import networkx as nx

    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(GRID_SIDE, GRID_SIDE + 1))
    converted = backend.convert_from_nx(graph, edge_attrs={"weight": 1})

    def rival() -> Any:
        return nx.fiedler_vector(graph, method=method, seed=0)

    def mine() -> Any:
        return backend.fiedler_vector(converted)

    def judge(vector: Any, theirs: Any) -> str:
        pairs = smallest_eigenpairs(Graph.from_matrix(converted.weights), 2, kind="unnormalized", tol=1e-8)
        words = f"{'certified' if pairs.converged else 'not certified'}, residual {pairs.residuals[1]:.0e}"
        if theirs is None:
            return words
        return f"{words}, sine {span_sine(vector[:, None], np.asarray(theirs)[:, None]):.0e}"

    return compare(
        "Fiedler vector", f"{len(graph):,} nodes (grid)", f"networkx, {method}", rival, mine, judge
    )
