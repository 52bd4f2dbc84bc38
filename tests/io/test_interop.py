"""Graphs of other libraries: in with any ids, out with the same ones."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import igraph
import networkx
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse as sp

import spectrograd
from spectrograd import (
    Graph,
    GraphError,
    GraphWarning,
    MultilayerGraph,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
)
from spectrograd.graph.node_names import as_names, as_plain
from spectrograd.io import graph_of
from spectrograd.system import MissingExtra

IDS = {
    "texts": ["b", "a", "né", "x y", "007", "0"],
    "integers": [5, -3, 10**12, 7, 0, 2],
    "tuples": [(0, 1), (0, 2), ("a", 3), (), (1,), (2,)],
    "mixture": ["a", 1, (2, 3), frozenset({4}), 2.5, "1"],
}
ENDS = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]
WEIGHTS = [1.0, 0.5, 2.0, 0.25, 1.0, 3.0, 1.0]


def edges_of(graph):
    coo = graph.matrix.tocoo()
    names = graph.node_names.tolist()
    entries = zip(coo.row, coo.col, coo.data, strict=True)
    return {frozenset([names[i], names[j]]): weight for i, j, weight in entries if i < j}


def expected(ids):
    return {frozenset([ids[i], ids[j]]): w for (i, j), w in zip(ENDS, WEIGHTS, strict=True)}


def as_networkx(ids, kind=networkx.Graph):
    graph = kind()
    graph.add_nodes_from(ids)
    graph.add_weighted_edges_from((ids[i], ids[j], w) for (i, j), w in zip(ENDS, WEIGHTS, strict=True))
    return graph


@pytest.mark.parametrize("kind", IDS)
def test_any_ids_go_through_from_edges(kind):
    ids = IDS[kind]
    source, target = ([ids[edge[side]] for edge in ENDS] for side in (0, 1))
    graph = Graph.from_edges(source, target, WEIGHTS)
    assert edges_of(graph) == expected(ids)
    assert set(map(type, graph.node_names.tolist())) == set(map(type, ids))


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("make", [networkx.Graph, networkx.DiGraph, networkx.MultiGraph])
def test_networkx_there_and_back(kind, make):
    ids = IDS[kind]
    graph = spectrograd.from_networkx(as_networkx(ids, make))
    assert graph.node_names.tolist() == ids  # in the order of the nodes
    assert edges_of(graph) == expected(ids)
    back = spectrograd.to_networkx(graph, label=np.arange(6), place=np.eye(6, 2))
    assert networkx.utils.graphs_equal(networkx.Graph(back), back)
    assert list(back) == ids
    assert {frozenset(e[:2]): e[2] for e in back.edges(data="weight")} == expected(ids)
    assert back.nodes[ids[1]] == {"label": 1, "place": [0.0, 1.0]}


def test_networkx_weights():
    graph = networkx.path_graph(3)
    graph[0][1]["weight"] = 4
    assert spectrograd.from_networkx(graph).matrix[0, 1] == 4
    assert spectrograd.from_networkx(graph).matrix[1, 2] == 1  # an edge without the attribute
    assert not spectrograd.from_networkx(graph, weight=None).is_weighted
    for bad, message in (("x", "'x': not a number"), (-1, r"-1\.0: negative")):
        graph[0][1]["weight"] = bad
        with pytest.raises(GraphError, match=rf"edge \(0, 1\) is {message}"):
            spectrograd.from_networkx(graph)
    with pytest.raises(GraphError, match="label: 2 values for 3 nodes"):
        spectrograd.to_networkx(spectrograd.from_networkx(networkx.path_graph(3)), label=[1, 2])


@pytest.mark.parametrize("kind", IDS)
def test_igraph_there_and_back(kind):
    ids = IDS[kind]
    made = igraph.Graph(n=6, edges=ENDS, vertex_attrs={"name": ids}, edge_attrs={"weight": WEIGHTS})
    graph = spectrograd.from_igraph(made)
    assert graph.node_names.tolist() == ids
    assert edges_of(graph) == expected(ids)
    back = spectrograd.to_igraph(graph, label=np.arange(6))
    assert back.vs["name"] == ids
    assert back.vs["label"] == list(range(6))
    assert edges_of(spectrograd.from_igraph(back)) == expected(ids)


def test_igraph_without_names_or_weights():
    graph = spectrograd.from_igraph(igraph.Graph(n=4, edges=[(0, 1), (1, 2)]))
    assert graph.names is None
    assert (graph.n_nodes, graph.n_edges, graph.is_weighted) == (4, 2, False)
    half = igraph.Graph(n=3, edges=[(0, 1), (1, 2)])
    half.es[0]["weight"] = 2
    with pytest.raises(GraphError, match="edge 1 has no 'weight'"):
        spectrograd.from_igraph(half)


class Tensor:
    """As much of a torch.Tensor as a reader needs: it must be detached and fetched before use."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def detach(self):
        return SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: self.values))


def pyg_data(**more):
    return SimpleNamespace(edge_index=Tensor(np.array(ENDS).T), num_nodes=7, **more)


def test_pyg_data():
    graph = spectrograd.from_pyg(pyg_data())
    assert (graph.n_nodes, graph.n_edges, graph.names) == (7, 7, None)  # the seventh has no edge
    for name in ("edge_weight", "edge_attr"):
        weighted = spectrograd.from_pyg(pyg_data(**{name: Tensor(np.array(WEIGHTS)[:, None])}))
        assert edges_of(weighted) == expected(range(6))
    features = spectrograd.from_pyg(pyg_data(edge_attr=Tensor(np.ones((7, 3)))))
    assert not features.is_weighted
    both_ways = SimpleNamespace(edge_index=Tensor(np.array(ENDS + [(j, i) for i, j in ENDS]).T), num_nodes=6)
    assert not spectrograd.from_pyg(both_ways).is_weighted
    with pytest.raises(GraphError, match=r"edge_index has shape \(7, 2\)"):
        spectrograd.from_pyg(SimpleNamespace(edge_index=Tensor(ENDS)))


def test_edge_index_out():
    index, weight = spectrograd.to_edge_index(spectrograd.from_pyg(pyg_data(edge_weight=Tensor(WEIGHTS))))
    assert (index.shape, index.dtype) == ((2, 14), np.int64)
    again = spectrograd.from_pyg(SimpleNamespace(edge_index=index, edge_weight=weight, num_nodes=7))
    assert edges_of(again) == expected(range(6))


class HeteroData(dict):
    """The parts of torch_geometric's class that tell its edges."""

    @property
    def node_types(self):
        return [key for key in self if isinstance(key, str)]

    @property
    def edge_types(self):
        return [key for key in self if isinstance(key, tuple)]


def test_pyg_heterodata():
    data = HeteroData(
        {
            "author": SimpleNamespace(num_nodes=2),
            "paper": SimpleNamespace(num_nodes=3),
            ("author", "writes", "paper"): SimpleNamespace(edge_index=Tensor([[0, 1, 1], [0, 1, 2]])),
            ("paper", "cites", "paper"): SimpleNamespace(
                edge_index=Tensor([[0, 1], [1, 2]]), edge_weight=Tensor([2.0, 3.0])
            ),
        }
    )
    graph = spectrograd.from_pyg(data)
    assert isinstance(graph, MultilayerGraph)
    assert graph.layer_names == ("author-writes-paper", "paper-cites-paper")
    assert graph.node_names.tolist() == [("author", 0), ("author", 1), *(("paper", i) for i in range(3))]
    assert edges_of(graph.layers[1]) == {
        frozenset([("paper", 0), ("paper", 1)]): 2.0,
        frozenset([("paper", 1), ("paper", 2)]): 3.0,
    }
    assert frozenset([("author", 1), ("paper", 2)]) in edges_of(graph.layers[0])
    single = HeteroData(
        {"p": SimpleNamespace(num_nodes=3), ("p", "to", "p"): SimpleNamespace(edge_index=[[0, 1], [1, 2]])}
    )
    assert spectrograd.from_pyg(single).names is None
    with pytest.raises(GraphError, match="no edge types"):
        spectrograd.from_pyg(HeteroData({"p": SimpleNamespace(num_nodes=3)}))
    with pytest.raises(GraphError, match="no num_nodes"):
        spectrograd.from_pyg(HeteroData({"p": SimpleNamespace(), ("p", "to", "p"): None}))


FRAMES = {
    "pandas": pandas.DataFrame,
    "pandas nullable": lambda columns: pandas.DataFrame(columns).convert_dtypes(),
    "polars": polars.DataFrame,
    "polars lazy": polars.LazyFrame,
    "pyarrow": pyarrow.table,
}


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("kind", ["texts", "integers"])
def test_edge_tables(make, kind):
    ids = IDS[kind]
    columns = {
        "note": ["x"] * 7,
        "Target": [ids[j] for _, j in ENDS],
        "Source": [ids[i] for i, _ in ENDS],
        "weight": WEIGHTS,
    }
    graph = spectrograd.from_frame(FRAMES[make](columns))
    assert edges_of(graph) == expected(ids)
    assert graph.node_names.tolist() == sorted(ids)
    layered = spectrograd.from_frame(FRAMES[make](columns | {"layer": [1, 1, 1, 2, 2, 2, 2]}))
    assert layered.layer_names == ("1", "2")
    assert [layer.n_edges for layer in layered.layers] == [3, 4]


@pytest.mark.parametrize("out", ["to_pandas", "to_polars", "to_arrow"])
def test_edge_tables_out(out):
    graph = spectrograd.from_networkx(as_networkx(IDS["texts"]))
    frame = getattr(spectrograd, out)(graph)
    assert edges_of(spectrograd.from_frame(frame)) == expected(IDS["texts"])
    layers = MultilayerGraph((graph, graph), ("a", "b"))
    again = spectrograd.from_frame(getattr(spectrograd, out)(layers))
    assert again.layer_names == ("a", "b")
    assert edges_of(again.layers[1]) == expected(IDS["texts"])


def test_pandas_keeps_ids_of_any_kind():
    ids = IDS["mixture"]
    frame = spectrograd.to_pandas(spectrograd.from_networkx(as_networkx(ids)))
    assert edges_of(spectrograd.from_frame(frame)) == expected(ids)


def test_columns_can_be_named():
    frame = pandas.DataFrame({"who": ["a", "b"], "whom": ["b", "c"], "times": [2, 3], "weight": [9, 9]})
    graph = spectrograd.from_frame(frame, source="who", target="whom", weight="times")
    assert edges_of(graph) == {frozenset("ab"): 2, frozenset("bc"): 3}
    with pytest.raises(GraphError, match=r"edge table: no columns 'src' and 'dst' among 'who', .*source="):
        spectrograd.from_frame(frame)
    with pytest.raises(GraphError, match="no column 'by' among 'who', 'whom'"):
        spectrograd.from_frame(frame, source="by", target="whom")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": ["a", None], "dst": ["b", "c"]}, "edge table, row 1: the column 'src' is empty"),
        ({"src": [1, None], "dst": [2, 3]}, "edge table, row 1: the column 'src' is empty"),
        ({"src": [1, 2], "dst": [2, 3], "w": [1, -2]}, r"row 1: weight -2\.0 must be finite"),
        ({"src": [1, 2], "dst": [2, 3], "w": [1, np.nan]}, "row 1: weight nan must be finite"),
        ({"src": [1, 2], "dst": [2, 3], "w": ["1", "x"]}, "the column 'w' does not hold numbers"),
        ({"src": [1], "from": [1], "dst": [2]}, "'src' and 'from' both name the src column"),
        ({"src": [], "dst": []}, "edge table: empty"),
    ],
)
def test_bad_edge_tables(columns, message):
    with pytest.raises(GraphError, match=message):
        spectrograd.from_frame(pandas.DataFrame(columns))


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.coo_array, np.asarray])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_matrices_of_both_kinds_and_both_index_types(container, index):
    rows, cols = np.array(ENDS).T
    matrix = sp.coo_array((WEIGHTS, (rows, cols)), shape=(6, 6))
    matrix = sp.csr_array(matrix + matrix.T)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    given = matrix.toarray() if container is np.asarray else container(matrix)
    graph = Graph.from_matrix(given, names=IDS["tuples"])
    assert edges_of(graph) == expected(IDS["tuples"])
    model = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(given)
    assert model.converged_


def test_estimators_take_foreign_graphs_and_keep_their_ids():
    ids = IDS["mixture"]
    nx_graph = as_networkx(ids)
    model = SpectralClustering(2, random_state=0).fit(nx_graph)
    assert model.names_.tolist() == ids
    assert len(set(model.labels_[:3])) == len(set(model.labels_[3:])) == 1
    vectors = SpectralEmbedding(2, random_state=0).fit_transform(spectrograd.from_networkx(nx_graph))
    for foreign in (spectrograd.to_igraph(graph_of(nx_graph)), spectrograd.to_pandas(graph_of(nx_graph))):
        other = SpectralEmbedding(2, random_state=0).fit(foreign)
        order = [other.names_.tolist().index(name) for name in ids]
        np.testing.assert_allclose(np.abs(other.embedding_[order]), np.abs(vectors), atol=1e-8)
    networkx.set_node_attributes(nx_graph, dict(zip(model.names_, model.labels_, strict=True)), "label")
    assert nx_graph.nodes[(2, 3)]["label"] == model.labels_[2]


def test_a_frame_of_coordinates_stays_points():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.standard_normal((30, 2)), columns=["u", "v"])  # velocities, not ends
    model = SpectralEmbedding(2, n_neighbors=4, random_state=0).fit(frame)
    assert model.embedding_.shape == (30, 2)
    assert graph_of(frame) is None
    assert graph_of(np.eye(3)) is None


def test_layers_of_foreign_graphs_are_united_by_name():
    first, second = as_networkx(IDS["texts"]), as_networkx(IDS["texts"][::-1])
    model = MultilayerSpectralEmbedding(2, random_state=0).fit({"one": first, "two": second})
    assert model.layer_names_ == ("one", "two")
    assert model.names_.tolist() == sorted(IDS["texts"])
    frame = pandas.DataFrame({"src": list("abcab"), "dst": list("bcacd"), "layer": list("xxxyy")})
    assert MultilayerSpectralEmbedding(2, random_state=0).fit(frame).layer_names_ == ("x", "y")
    with pytest.raises(ValueError, match="use the Multilayer estimators"):
        SpectralEmbedding(2).fit(frame)


HIDDEN = {
    "networkx": lambda graph: spectrograd.to_networkx(graph),
    "igraph": lambda graph: spectrograd.to_igraph(graph),
    "pandas": lambda graph: spectrograd.to_pandas(graph),
    "polars": lambda graph: spectrograd.to_polars(graph),
    "pyarrow": lambda graph: spectrograd.to_arrow(graph),
}


@pytest.mark.parametrize("package", HIDDEN)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch, package):
    graph = Graph.from_edges([0, 1], [1, 2])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs the package '{package}': pip .*\[interop\]"):
        HIDDEN[package](graph)


def test_names_in_arrays():
    assert as_names(["a\0", "b"]).tolist() == ["a\0", "b"]  # numpy's own texts would lose the NUL
    assert as_names(np.array([(0, 1), (1, 2)], dtype=object)[:, 0]).tolist() == [0, 1]
    assert as_names([2**70, 1]).tolist() == [2**70, 1]
    assert as_plain([(0, 1), "x"]).tolist() == ["(0, 1)", "x"]


def test_repeats_are_told():
    multi = networkx.MultiGraph([("a", "b"), ("a", "b")])
    with pytest.warns(GraphWarning, match="1 repeated edges were summed"):
        assert spectrograd.from_networkx(multi).matrix[0, 1] == 2


# --- AnnData


def cells(matrix):
    """What is read of an AnnData of three cells."""
    return SimpleNamespace(obsp={"connectivities": matrix}, obsm={}, uns={}, obs_names=["a", "b", "c"])


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("index", [3, -1, 2**24])
def test_neighbours_that_are_no_cells_are_refused(form, index):
    """Compiled code of scipy, which transposes them, would read and write elsewhere."""
    good = form(np.ones((3, 3)) - np.eye(3))
    assert graph_of(cells(good)).names.tolist() == ["a", "b", "c"]
    good.indices[2] = index
    with pytest.raises(GraphError, match=f"broken sparse matrix: .* index {index}"):
        graph_of(cells(good))


@pytest.mark.parametrize("matrix", [np.ones((3, 2)), "text", np.array(["a"] * 9).reshape(3, 3)])
def test_neighbours_that_are_no_square_matrix_are_refused(matrix):
    with pytest.raises(GraphError):
        graph_of(cells(matrix))
