"""A store that changes: what is read is the graph built at once, whoever reads it and whenever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import reference
import spectrograd
from spectrograd import Graph, GraphError, MultilayerGraph, open_store
from spectrograd.kernels.edge_lists import merge_rows
from spectrograd.pipeline.edge_changes import EdgeChanges, changed_graph, changed_store
from spectrograd.serialization.folders import only_writer
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.format import load_meta
from spectrograd.store.ingest import ingest


def stored(path, graph, order="none", **settings):
    ingest(path, GraphSource(graph), IngestSettings(edges=True, block_bytes=2048, order=order, **settings))
    return open_store(path)


def some_changes(graph, rng, n=6, weights=(1.0,)):
    """Edges that are there and are not, in new weights, between old and new nodes; some to remove."""
    names = graph.node_names
    ends = rng.choice(len(names), (n, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.sort(ends, axis=1), axis=0)
    edges = Graph.from_edges(names[ends[:, 0]], names[ends[:, 1]], rng.choice(weights, len(ends)))
    upper = sp.triu(graph.matrix, 1, format="coo")
    gone = rng.choice(upper.nnz, n, replace=False)
    removed = Graph.from_edges(names[upper.row[gone]], names[upper.col[gone]])
    return edges, removed


def same(disk, graph):
    """Bit for bit, and in every number that the store keeps beside its rows."""
    loaded = disk.in_memory()
    assert (loaded.matrix != graph.matrix).nnz == 0
    assert loaded.n_entries == disk.n_entries == graph.n_entries
    np.testing.assert_array_equal(loaded.node_names, graph.node_names)
    np.testing.assert_array_equal(disk.input_names, graph.node_names)
    order = np.arange(graph.n_nodes) if disk.input_order is None else disk.input_order
    np.testing.assert_array_equal(disk.degrees, graph.degrees[order])
    groups = np.unique(np.stack([disk.components, graph.search.component[order]]), axis=1)
    assert groups.shape[1] == disk.meta.n_components == graph.search.component.max() + 1
    assert disk.meta.n_isolated == (graph.degrees == 0).sum()
    chunks = list(disk.edge_chunks(0))
    source, target = (np.concatenate([chunk[end] for chunk in chunks]) for end in (0, 1))
    weight = np.concatenate([np.ones(len(c.source)) if c.weight is None else c.weight for c in chunks])
    rows = sp.coo_array((weight, (order[source], order[target])), shape=graph.matrix.shape).tocsr()
    assert (rows + rows.T != graph.matrix).nnz == 0


@pytest.mark.parametrize(
    ("mode", "weighted", "order", "names"),
    [
        ("add", False, "none", None),
        ("set", False, "bfs", "numbers"),
        ("add", True, "bfs", "texts"),
        ("set", True, "none", None),
    ],
)
def test_many_updates_are_the_graph_built_at_once(tmp_path, mode, weighted, order, names):
    rng = np.random.default_rng(3)
    graph = reference.random_graph(300, rng, weighted=weighted, mean_degree=5)
    graph = Graph.from_matrix(graph.matrix.astype(np.float32).astype(np.float64))
    given = {"texts": np.array([f"n{i}" for i in range(300)]), "numbers": np.arange(300) * 3 + 5}.get(names)
    graph = Graph(graph.blocks, 300, given)
    disk = stored(tmp_path / "g", graph, order)
    for _ in range(8):
        edges, removed = some_changes(graph, rng, weights=(0.5, 1.0, 2.0) if weighted else (1.0,))
        changes = EdgeChanges(edges, removed, mode)
        graph, disk = changed_graph(graph, changes), changed_store(disk, changes)
    assert disk.meta.delta
    same(disk, graph)


def test_new_nodes_come_last(tmp_path):
    graph = reference.random_graph(200, np.random.default_rng(0), weighted=False)
    disk = stored(tmp_path / "g", graph, "bfs")
    for new in ([200, 201], [202], [500]):
        changes = EdgeChanges(Graph.from_edges([7] * len(new) + [0], [*new, 9]))
        graph, disk = changed_graph(graph, changes), changed_store(disk, changes)
        same(disk, graph)
    assert disk.input_names[-1] == 500  # no row number any more: ids are kept
    with pytest.raises(GraphError, match=r"node 'ann'.*the ids of .* are integers"):
        changed_store(disk, EdgeChanges(Graph.from_edges(["7"], ["ann"])))
    with pytest.raises(GraphError, match="new_nodes='create'"):
        changed_store(disk, EdgeChanges(Graph.from_edges([7], [900]), new_nodes="refuse"))
    same(open_store(tmp_path / "g"), graph)


def test_changes_that_outgrow_a_tenth_are_merged(tmp_path):
    rng = np.random.default_rng(1)
    graph = reference.random_graph(400, rng, weighted=False, mean_degree=8)
    disk = stored(tmp_path / "g", graph)
    edges, removed = some_changes(graph, rng, 200)
    changes = EdgeChanges(edges, removed)
    graph, disk = changed_graph(graph, changes), changed_store(disk, changes)
    assert not disk.meta.delta
    assert not list((tmp_path / "g").glob("delta*"))
    same(disk, graph)


def test_edges_that_come_and_go_leave_nothing_behind(tmp_path):
    graph = reference.random_graph(300, np.random.default_rng(1), weighted=False)
    disk = stored(tmp_path / "g", graph)
    absent = np.argwhere(np.triu(graph.matrix.toarray() == 0, 200))[:3]
    far = Graph.from_edges(*absent.T)
    there = disk.degrees.copy()
    disk = changed_store(disk, EdgeChanges(far))
    disk = changed_store(disk, EdgeChanges(removed=far))
    assert disk.meta.delta == ()
    np.testing.assert_array_equal(disk.degrees, there)
    assert sorted(file.name for file in (tmp_path / "g").iterdir()) == sorted(
        {"meta.json", *(segment.file for segment in disk.store.meta.segments)}
    )


def test_an_edge_that_is_not_there_changes_nothing(tmp_path):
    graph = Graph.from_edges(["a", "b", "c"], ["b", "c", "d"])
    disk = stored(tmp_path / "g", graph)
    before = sorted(os.listdir(tmp_path / "g"))
    with pytest.raises(GraphError, match=r"edge \(a, d\) to remove is not in the graph"):
        changed_store(disk, EdgeChanges(Graph.from_edges(["a"], ["c"]), Graph.from_edges(["a"], ["d"])))
    assert sorted(os.listdir(tmp_path / "g")) == before
    same(open_store(tmp_path / "g"), graph)


def test_layers_change_by_name(tmp_path):
    rng = np.random.default_rng(2)
    layers = MultilayerGraph(
        tuple(reference.random_graph(150, rng, weighted=w) for w in (False, False)), ("calls", "mails")
    )
    disk = stored(tmp_path / "g", layers)
    more = MultilayerGraph((Graph.from_edges([0], [150]),), ("mails",))
    disk = changed_store(disk, EdgeChanges(more))
    assert [layer.n_nodes for layer in disk.layers] == [151, 151]
    assert [layer.n_edges for layer in disk.layers] == [
        layers.layers[0].n_edges,
        layers.layers[1].n_edges + 1,
    ]
    assert disk.layers[1].in_memory().matrix[0, 150] == 1


def test_a_reader_keeps_its_version_and_a_late_writer_is_refused(tmp_path):
    graph = reference.random_graph(300, np.random.default_rng(1), weighted=False)
    early = stored(tmp_path / "g", graph)
    blocks = iter(early.blocks)
    next(blocks)
    for new in (300, 301, 302):
        changed_store(open_store(tmp_path / "g"), EdgeChanges(Graph.from_edges([5], [new])))
    list(blocks)
    same(early, graph)
    assert open_store(tmp_path / "g").n_nodes == 303
    with pytest.raises(GraphError, match="was changed by somebody else meanwhile"):
        changed_store(early, EdgeChanges(Graph.from_edges([5], [6])))


WRITER = """
import sys
from spectrograd import Graph, open_store
from spectrograd.pipeline.edge_changes import EdgeChanges, changed_store
for step in range(int(sys.argv[2])):
    disk = open_store(sys.argv[1])
    changed_store(disk, EdgeChanges(Graph.from_edges([step], [disk.n_nodes])))
"""


def test_two_processes_one_writes_one_reads(tmp_path):
    graph = reference.random_graph(300, np.random.default_rng(1), weighted=False)
    stored(tmp_path / "g", graph)
    environment = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "g"), "25"]
    writer = subprocess.Popen(command, env=environment)
    seen = set()
    while writer.poll() is None:
        disk = open_store(tmp_path / "g")
        assert sum(len(block.indices) for block in disk.blocks) == disk.n_entries
        assert disk.n_edges - graph.n_edges == disk.n_nodes - 300  # all of a change, or nothing of it
        seen.add(disk.n_nodes)
    assert writer.returncode == 0
    assert open_store(tmp_path / "g").n_nodes == 325
    assert len(seen) > 1


def test_a_second_writer_is_refused_by_name(tmp_path):
    graph = reference.random_graph(300, np.random.default_rng(1), weighted=False)
    stored(tmp_path / "g", graph)
    environment = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
    with only_writer(tmp_path / "g"):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "g"), "1"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"process {os.getpid()} is writing it" in done.stderr
    same(open_store(tmp_path / "g"), graph)


def test_a_damaged_change_is_named(tmp_path):
    graph = reference.random_graph(300, np.random.default_rng(1), weighted=False)
    disk = changed_store(stored(tmp_path / "g", graph), EdgeChanges(Graph.from_edges([0], [299])))
    segment = load_meta(tmp_path / "g").layers[0].delta[0]
    data = bytearray((tmp_path / "g" / segment.file).read_bytes())
    data[segment.offset + 3] ^= 1
    (tmp_path / "g" / segment.file).write_bytes(data)
    with pytest.raises(GraphError, match=rf"{segment.file}, block of row {segment.start} .*wrong checksum"):
        list(open_store(tmp_path / "g").blocks)
    del disk


@pytest.mark.parametrize("weighted", [True, False])
def test_merged_rows_are_those_of_the_reference(weighted):
    rng = np.random.default_rng(0)
    old, new = (
        sp.random_array((30, 40), density=d, rng=rng, format="csr", dtype=np.float32) for d in (0.2, 0.1)
    )
    new.data[::3] = 0
    parts = [
        (m.indptr.astype(np.int64), m.indices.astype(np.int32), m.data)
        for m in map(sp.csr_array.sorted_indices, (old, new))
    ]
    if not weighted:
        parts[0] = (*parts[0][:2], None)
    room = old.nnz + new.nnz
    found = np.empty(31, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
    n = merge_rows(parts[0][:2], parts[0][2], parts[1], np.float32(0.25), *found)
    expected = reference.merged_rows(*parts, 0.25)
    assert found[0].tolist() == expected[0]
    assert found[1][:n].tolist() == expected[1]
    assert found[2][:n].tolist() == expected[2]
