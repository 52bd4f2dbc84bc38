"""A graph on disk is the same graph: products, degrees, names, order, layers."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest

import reference
from spectrograd import Graph, GraphError, GraphWarning, MultilayerGraph, open_store, read_graph, write_graph
from spectrograd.engines import LocalEngine
from spectrograd.operators.laplacian import laplacian
from spectrograd.store.edge_batches import EdgeBatch, GraphSource, IngestSettings
from spectrograd.store.format import load_meta
from spectrograd.store.ingest import ingest

SMALL_BLOCKS = IngestSettings(edges=True, block_bytes=4096)


class ListedEdges:
    """Arrays as a source of edges."""

    multilayer, names = False, None

    def __init__(self, source, target, weight=None, n_nodes=None, size=50):
        self.columns, self.n_nodes, self.size = (
            (np.asarray(source), np.asarray(target), weight),
            n_nodes,
            size,
        )

    def batches(self, *, texts):
        for first in range(0, len(self.columns[0]), self.size):
            part = slice(first, first + self.size)
            yield EdgeBatch(*(None if column is None else column[part] for column in self.columns))

    def layers(self):
        return [(0, "graph")]


def stored(path, graph, **settings):
    ingest(path, GraphSource(graph), IngestSettings(**{"edges": True, "block_bytes": 4096} | settings))
    return open_store(path)


def rounded(graph):
    """The graph with the weights a store can hold."""
    matrix = graph.matrix.astype(np.float32).astype(np.float64)
    return Graph.from_matrix(matrix, names=graph.names)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["unnormalized", "random_walk", "symmetric"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_equal_those_in_memory(tmp_path, graphs, weighted, kind, dtype):
    graph = rounded(graphs[weighted])
    disk = stored(tmp_path / "g", graph)
    assert len(disk.meta.blocks) > 5
    U = np.random.default_rng(0).standard_normal((graph.n_nodes, 5)).astype(dtype)
    there, here = laplacian(disk, kind), laplacian(graph, kind)
    width = 2.0 if kind == "symmetric" else 2.0 * graph.degrees.max()
    tolerance = (1e-6 if dtype == np.float32 else 1e-13) * width
    np.testing.assert_allclose(there @ U, here @ U, atol=tolerance)
    np.testing.assert_allclose(there @ U[:, 0], here @ U[:, 0], atol=tolerance)
    np.testing.assert_allclose(there.row_sums, here.row_sums, rtol=1e-12)
    if kind != "symmetric":
        engine = LocalEngine()
        given = (U, np.zeros_like(U), (1.0, 0.5, 0.0))
        np.testing.assert_allclose(
            engine.recurrence(there, *given), engine.recurrence(here, *given), atol=tolerance
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_everything_else_comes_from_the_store(tmp_path, graphs, weighted):
    graph = rounded(graphs[weighted])
    disk = stored(tmp_path / "g", graph)
    assert (disk.n_nodes, disk.n_edges, disk.is_weighted) == (graph.n_nodes, graph.n_edges, weighted)
    assert repr(disk) == repr(graph)
    np.testing.assert_allclose(disk.degrees, graph.degrees, rtol=1e-12)
    assert disk.names is None
    assert not disk.is_resident
    assert disk.bytes_read == 8 * graph.n_nodes
    loaded = disk.in_memory()
    assert loaded.is_resident
    assert (loaded.matrix != graph.matrix).nnz == 0


def test_what_needs_the_matrix_says_so(tmp_path, graphs):
    disk = stored(tmp_path / "g", graphs[True])
    for name in ("matrix", "pattern", "search"):
        with pytest.raises(GraphError, match=r"this graph is on disk .*needs it in memory.*MB"):
            getattr(disk, name)


def test_solvers_that_need_the_graph_in_memory_say_so(tmp_path, graphs):
    from spectrograd import SpectralEmbedding

    disk = stored(tmp_path / "g", graphs[True])
    for solver in ("shift-invert", "multilevel"):
        with pytest.raises(ValueError, match=f"solver '{solver}' needs .*offers only products"):
            SpectralEmbedding(3, affinity="precomputed", solver=solver).fit(disk)


def test_a_slow_disk_can_be_played(tmp_path, graphs):
    disk = stored(tmp_path / "g", graphs[False])
    disk.store.files.speed = 200e3
    began = time.perf_counter()
    for _ in disk.blocks:
        pass
    size = sum(block.n_bytes for block in disk.meta.blocks)
    assert time.perf_counter() - began > 0.8 * size / 200e3


def test_blocks_are_read_again_and_may_be_kept(tmp_path, graphs):
    disk = stored(tmp_path / "g", graphs[False])
    kept = list(disk.blocks)  # more than there are buffers
    columns = np.concatenate([block.indices for block in kept])
    np.testing.assert_array_equal(columns, graphs[False].matrix.indices)
    assert [block.start for block in disk.blocks] == [block.start for block in kept]
    assert disk.passes == 2
    for _ in disk.blocks:  # left early: the reader ends, the next sweep is whole
        break
    assert sum(len(block.indices) for block in disk.blocks) == disk.n_entries
    inner = [sum(len(b.indices) for b in disk.blocks) for _ in zip(range(2), disk.blocks, strict=False)]
    assert inner == [disk.n_entries] * 2


def test_pinned_blocks_are_read_once(tmp_path, graphs):
    ingest(tmp_path / "g", GraphSource(graphs[True]), SMALL_BLOCKS)
    sizes = [block.n_bytes for block in load_meta(tmp_path / "g").layers[0].blocks]
    room = 4 * max(sizes) + sum(sizes[:3])
    disk = open_store(tmp_path / "g", memory_limit=room)
    assert sum(len(block.indices) for block in disk.blocks) == disk.n_entries
    first = disk.bytes_read
    again = np.concatenate([block.indices for block in disk.blocks])
    assert (first, disk.bytes_read - first) == (sum(sizes), sum(sizes[3:]))
    np.testing.assert_array_equal(again, graphs[True].matrix.indices)
    with pytest.raises(GraphError, match=f"at least {4 * max(sizes):,} bytes"):
        open_store(tmp_path / "g", memory_limit=10)


def test_edge_chunks_hold_every_edge_once_in_another_order_each_epoch(tmp_path, graphs):
    graph = rounded(graphs[True])
    disk = stored(tmp_path / "g", graph)
    epochs = [list(disk.edge_chunks(seed=0, epoch=epoch)) for epoch in (0, 1, 0)]
    assert len(epochs[0]) > 5
    for chunks in epochs:
        source, target, weight = (np.concatenate(part) for part in zip(*chunks, strict=True))
        assert (
            len(source) == graph.n_edges == len(np.unique(source.astype(np.int64) * graph.n_nodes + target))
        )
        np.testing.assert_allclose(weight, np.asarray(graph.matrix[source, target]).ravel())
    firsts = [chunks[0].source.tolist() for chunks in epochs]
    assert firsts[0] == firsts[2] != firsts[1]
    # edges of a chunk know nothing of each other: sources are not in the order of the rows
    assert abs(np.corrcoef(epochs[0][0].source, np.arange(len(firsts[0])))[0, 1]) < 0.3
    plain = stored(tmp_path / "plain", graph, edges=False)
    with pytest.raises(GraphError, match="again with --edges"):
        next(plain.edge_chunks(0))


def test_the_sample_is_a_part_of_the_edges(tmp_path):
    graph = reference.random_graph(500, np.random.default_rng(1), weighted=False, mean_degree=40)
    sample = stored(tmp_path / "g", graph).sample
    assert np.asarray(graph.matrix[sample.source, sample.target]).all()
    assert 10 < 2 * len(sample.source) / 500 < 12
    sparse = reference.random_graph(500, np.random.default_rng(1), weighted=False, mean_degree=6)
    assert stored(tmp_path / "sparse", sparse).sample is None


@pytest.mark.parametrize("order", ["bfs", "labelprop", "auto"])
@pytest.mark.parametrize("names", [None, "texts", "numbers"])
def test_another_order_is_undone(tmp_path, graphs, order, names):
    graph = rounded(graphs[True])
    given = {"texts": np.array([f"n{i}" for i in range(1300)]), "numbers": np.arange(1300) * 3 + 5}.get(names)
    graph = Graph(graph.blocks, graph.n_nodes, given)
    disk = stored(tmp_path / "g", graph, order=order)
    assert (disk.input_order is not None) == (order != "auto")  # 1,300 nodes are in a cache anyway
    loaded = disk.in_memory()
    assert (loaded.matrix != graph.matrix).nnz == 0
    np.testing.assert_array_equal(loaded.node_names, graph.node_names)
    np.testing.assert_allclose(
        dict(zip(disk.node_names.tolist(), disk.degrees.tolist(), strict=True))[graph.node_names[7].item()],
        graph.degrees[7],
    )
    again = stored(tmp_path / "copy", disk)  # a store is a source, too
    assert (again.in_memory().matrix != graph.matrix).nnz == 0
    np.testing.assert_array_equal(again.in_memory().node_names, graph.node_names)


def test_auto_orders_large_graphs_that_gain(tmp_path):
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(40_000)
    source = shuffled[np.arange(40_000)]
    ring = Graph.from_edges(source, np.roll(source, 1), n_nodes=40_000)
    assert stored(tmp_path / "ring", ring, order="auto", block_bytes=1 << 20).input_order is not None
    keys = np.unique(rng.integers(0, 40_000 * 40_000, 600_000))
    keys = keys[keys // 40_000 < keys % 40_000]
    random = Graph.from_edges(keys // 40_000, keys % 40_000, n_nodes=40_000)
    assert stored(tmp_path / "random", random, order="auto", block_bytes=1 << 20).input_order is None


def test_breadth_first_order_that_does_not_fit_is_refused(tmp_path, graphs):
    with pytest.raises(GraphError, match=r"--order bfs needs the graph in memory, about .*labelprop"):
        stored(tmp_path / "g", graphs[False], order="bfs", memory_limit=60_000)
    assert list(tmp_path.iterdir()) == []


def test_layers_share_their_nodes(tmp_path, graphs):
    names = np.array([f"n{i}" for i in range(1300)])
    layers = MultilayerGraph(
        tuple(Graph(graphs[w].blocks, 1300, names) for w in (True, False)), ("calls", "mails")
    )
    disk = stored(tmp_path / "g", layers)
    assert disk.layer_names == ("calls", "mails")
    assert [layer.is_weighted for layer in disk.layers] == [True, False]
    np.testing.assert_array_equal(disk.node_names, names)
    assert disk.layers[0].names is disk.layers[1].names
    loaded = read_graph(tmp_path / "g")
    assert (loaded.layers[1].matrix != graphs[False].matrix).nnz == 0


def test_components_and_lone_nodes_are_known(tmp_path):
    graph = Graph.from_edges([0, 1, 4, 5, 6], [1, 2, 5, 6, 4], n_nodes=9)
    disk = stored(tmp_path / "g", graph)
    np.testing.assert_array_equal(disk.components, graph.search.component)
    meta = disk.meta
    assert (meta.n_components, meta.n_isolated, meta.largest_component) == (5, 3, 3)
    assert stored(tmp_path / "one", Graph.from_edges([0], [1])).components.tolist() == [0, 0]


def test_write_graph_and_read_graph(tmp_path, graphs):
    path = tmp_path / "graph.store"
    write_graph(path, graphs[False])
    write_graph(path, graphs[False])  # replaces it, as it replaces files
    assert (read_graph(path).matrix != graphs[False].matrix).nnz == 0
    empty = Graph.from_matrix(np.zeros((3, 3)))
    write_graph(tmp_path / "empty.store", empty)
    assert read_graph(tmp_path / "empty.store").n_nodes == 3


def test_extreme_weights_survive(tmp_path):
    for scale in (1e-300, 1e-30, 1e30, 1e300):
        graph = Graph.from_edges([0, 1, 2], [1, 2, 0], np.array([1.0, 2.0, 3.0]) * scale)
        loaded = stored(tmp_path / f"{scale}", graph).in_memory()
        np.testing.assert_allclose(loaded.matrix.data, graph.matrix.data, rtol=1e-6)


def test_a_stored_graph_is_pickled_by_its_path(tmp_path, graphs):
    disk = stored(tmp_path / "g", graphs[False])
    again = pickle.loads(pickle.dumps(disk))
    np.testing.assert_array_equal(again.degrees, disk.degrees)
    message = pickle.dumps(disk)
    stored(tmp_path / "g", graphs[True], force=True)
    with pytest.raises(GraphError, match="was replaced meanwhile"):
        pickle.loads(message)


@pytest.mark.parametrize("rule", ["sum", "max", "first"])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_are_merged_by_the_rule(tmp_path, rule, both_ways, weighted):
    rng = np.random.default_rng(4)
    source, target = rng.integers(0, 40, (2, 600))
    weight = rng.integers(0, 5, 600) / 4.0
    if both_ways:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = np.concatenate([weight, weight])
    listed = ListedEdges(source, target, weight if weighted else None, n_nodes=40)
    settings = IngestSettings(duplicates=rule, block_bytes=512)
    with pytest.warns(GraphWarning):
        ingest(tmp_path / "g", listed, settings)
    expected = reference.rows_of_list(source, target, weight if weighted else np.ones(len(weight)), 40, rule)
    entries = open_store(tmp_path / "g").in_memory().matrix.tocoo()
    found = {(int(i), int(j)): w for i, j, w in zip(*entries.coords, entries.data, strict=True)}
    assert found == expected


def test_buckets_and_memory_limits_change_nothing(tmp_path, graphs, monkeypatch):
    """The same bytes, whether all rows are sorted at once or a few at a time."""
    wide = stored(tmp_path / "wide", graphs[True], edges=False)
    monkeypatch.setattr("spectrograd.store.row_blocks.BUCKET_ENTRIES", 700)
    narrow = stored(tmp_path / "narrow", graphs[True], edges=False)
    assert len(narrow.meta.blocks) > len(wide.meta.blocks)  # blocks end where buckets end
    assert (wide.in_memory().matrix != narrow.in_memory().matrix).nnz == 0
    np.testing.assert_array_equal(wide.degrees, narrow.degrees)


def test_integer_ids_that_are_no_rows_keep_their_names(tmp_path):
    with pytest.warns(GraphWarning, match="1 self loops dropped"):
        ingest(tmp_path / "g", ListedEdges([10, 30, 10, 7], [30, 50, 50, 7]), IngestSettings())
    disk = open_store(tmp_path / "g")
    assert disk.node_names.tolist() == [7, 10, 30, 50]
    assert disk.n_edges == 3


def test_ids_far_apart_are_numbered_by_duckdb(tmp_path):
    pytest.importorskip("duckdb")
    far = np.array([-5, 2**62, 17, 2**40])
    ingest(tmp_path / "g", ListedEdges(far, np.roll(far, 1), np.array([1.0, 2, 3, 4])), IngestSettings())
    disk = open_store(tmp_path / "g")
    assert disk.node_names.tolist() == [-5, 17, 2**40, 2**62]
    loaded = disk.in_memory()
    assert loaded.matrix[0, 3] == 2
    assert loaded.matrix[0, 2] == 1


def test_bad_weights_and_too_little_memory_are_refused(tmp_path):
    with pytest.raises(GraphError, match=r"weight of edge \(1, 2\) is nan"):
        ingest(tmp_path / "g", ListedEdges([0, 1], [1, 2], np.array([1, np.nan])), IngestSettings())
    few = IngestSettings(memory_limit=1_000_000)
    with pytest.raises(GraphError, match=r"100,000 nodes need at least 4 MB .*--memory-limit"):
        ingest(tmp_path / "g", ListedEdges([0], [99_999], n_nodes=100_000), few)
    with pytest.raises(GraphError, match="the graph is empty"):
        ingest(tmp_path / "g", ListedEdges([], []), IngestSettings())
    assert list(tmp_path.iterdir()) == []
