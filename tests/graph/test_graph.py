"""Graphs: what is accepted, what is repaired (with a warning) and what is refused (with a place)."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from spectrograd.graph import Graph, GraphError, GraphWarning, MultilayerGraph, RowBlock

PATH = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 0.5], [0.0, 0.5, 0.0]])  # 0 -2- 1 -.5- 2


@pytest.fixture(autouse=True)
def _unexpected_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def with_int64_indices(matrix):
    matrix = matrix.copy()
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


MATRICES = {
    "dense": PATH,
    "dense float32": PATH.astype(np.float32),
    "nested lists": PATH.tolist(),
    "fortran order": np.asfortranarray(PATH),
    "csr_matrix": sp.csr_matrix(PATH),
    "csr_array": sp.csr_array(PATH),
    "csc_array": sp.csc_array(PATH),
    "coo_matrix": sp.coo_matrix(PATH),
    "lil_array": sp.lil_array(PATH),
    "dok_array": sp.dok_array(PATH),
    "csr int64": with_int64_indices(sp.csr_array(PATH)),
    "float32 sparse": sp.csr_array(PATH.astype(np.float32)),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_every_form_of_a_matrix_is_the_same_graph(kind):
    graph = Graph.from_matrix(MATRICES[kind])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    assert (graph.n_nodes, graph.n_entries, graph.n_edges, graph.is_weighted) == (3, 4, 2, True)
    np.testing.assert_array_equal(graph.degrees, [2.0, 2.5, 0.5])
    assert graph.degrees.dtype == np.float64
    assert graph.node_names.tolist() == [0, 1, 2]
    assert graph.names is None
    (block,) = graph.blocks
    assert (block.start, block.stop, block.n_rows) == (0, 3, 3)
    assert block.indptr.dtype == np.int64
    assert block.indices.dtype == np.int32


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64, np.uint8])
def test_whole_numbers_become_floats(dtype):
    graph = Graph.from_matrix((PATH > 0).astype(dtype))
    assert not graph.is_weighted
    assert graph.blocks[0].weights is None
    assert graph.matrix.dtype == np.float64
    np.testing.assert_array_equal(graph.matrix.toarray(), (PATH > 0).astype(float))


def test_repr_says_what_is_inside():
    assert repr(Graph.from_matrix(PATH)) == "Graph(n_nodes=3, n_edges=2, weighted)"
    assert "unweighted" in repr(Graph.from_matrix(PATH > 0))
    assert "n_layers=2" in repr(MultilayerGraph.from_layers([PATH, PATH]))


# --- repairs ----------------------------------------------------------------------------------------


def test_an_asymmetric_matrix_becomes_its_mean():
    W = PATH.copy()
    W[0, 1] = 4.0
    W[2, 0] = 1.0
    with pytest.warns(GraphWarning, match=r"not symmetric.*row \d.*\(W \+ W'\) / 2") as caught:
        graph = Graph.from_matrix(W)
    np.testing.assert_array_equal(graph.matrix.toarray(), (W + W.T) / 2)
    assert caught[0].filename == __file__  # the warning points at the caller


def test_rounding_is_no_asymmetry():
    W = PATH.copy()
    W[0, 1] += 1e-13
    graph = Graph.from_matrix(W)
    np.testing.assert_array_equal(graph.matrix.toarray(), graph.matrix.toarray().T)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_self_loops_are_dropped(make):
    with pytest.warns(GraphWarning, match="1 self loops dropped .first at node 2") as caught:
        graph = Graph.from_matrix(make(PATH + np.diag([0, 0, 5.0])))
    assert len(caught) == 1
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    assert graph.n_entries == 4  # no stored zeros left


def test_duplicate_entries_are_summed():
    entries = sp.coo_array(([1.5, 0.5, 2.0, 0.5, 0.5], ([0, 0, 1, 1, 2], [1, 1, 0, 2, 1])), shape=(3, 3))
    assert Graph.from_matrix(entries).n_edges == 2  # scipy sums them on the way: nothing left to repair
    csr = sp.csr_array((np.array([1.5, 0.5, 2.0, 0.5, 0.5]), [1, 1, 0, 2, 1], [0, 2, 4, 5]), shape=(3, 3))
    with pytest.warns(GraphWarning, match="1 duplicate entries were summed"):
        graph = Graph.from_matrix(csr)
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)


def test_stored_zeros_are_no_edges():
    stored = sp.csr_array(PATH)
    stored.data[[0, 1]] = 0  # the edge 0-1, both ways
    graph = Graph.from_matrix(stored)
    assert graph.n_edges == 1
    assert graph.isolated.tolist() == [0]


def test_unsorted_columns_are_sorted():
    csr = sp.csr_array((np.array([2.0, 0.5, 2.0, 0.5]), [1, 2, 0, 1], [0, 1, 3, 4]), shape=(3, 3))
    assert np.array_equal(Graph.from_matrix(csr).matrix.toarray(), PATH)


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("value", "words"), [(-1.0, "-1.0: negative"), (np.nan, "nan: not finite"), (np.inf, "inf: not finite")]
)
def test_a_bad_weight_is_refused_with_its_place(make, value, words):
    W = PATH.copy()
    W[1, 2] = W[2, 1] = value
    with pytest.raises(GraphError, match=rf"edge \(1, 2\) is {words}"):
        Graph.from_matrix(make(W))
    with pytest.raises(GraphError, match=rf"edge \(1, 2\) is {words}"):
        Graph.from_edges([0, 1], [1, 2], [1.0, value])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_matrix_that_is_not_square_is_refused(make):
    with pytest.raises(GraphError, match=r"shape \(3, 2\); it must be square"):
        Graph.from_matrix(make(PATH[:, :2]))


@pytest.mark.parametrize("empty", [np.zeros((0, 0)), sp.csr_array((0, 0))])
def test_no_nodes_at_all(empty):
    with pytest.raises(GraphError, match="empty"):
        Graph.from_matrix(empty)


@pytest.mark.parametrize("bad", [np.array([["a", "b"], ["c", "d"]]), PATH * 1j, sp.csr_array(PATH * 1j)])
def test_only_real_numbers_make_a_matrix(bad):
    with pytest.raises(GraphError, match="real numbers are needed"):
        Graph.from_matrix(bad)


def test_one_dimension_is_no_matrix():
    with pytest.raises(GraphError, match="square"):
        Graph.from_matrix([1.0, 2.0])


def test_names_must_match_the_nodes():
    assert Graph.from_matrix(PATH, names=["a", "b", "c"]).node_names.tolist() == ["a", "b", "c"]
    with pytest.raises(GraphError, match="2 node names for 3 nodes"):
        Graph.from_matrix(PATH, names=["a", "b"])


# --- edge lists -------------------------------------------------------------------------------------


def test_edge_lists_keep_their_names():
    graph = Graph.from_edges(["ann", "bob"], ["bob", "cid"], [2.0, 0.5])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    assert graph.node_names.tolist() == ["ann", "bob", "cid"]


def test_edges_may_be_row_numbers():
    graph = Graph.from_edges([0, 1], [1, 2], n_nodes=4)
    assert graph.n_nodes == 4
    assert graph.isolated.tolist() == [3]
    named = Graph.from_edges([0, 1], [1, 2], names=["a", "b", "c"])
    assert named.node_names.tolist() == ["a", "b", "c"]
    assert Graph.from_edges([], [], n_nodes=3).n_edges == 0


def test_an_edge_list_may_hold_both_directions():
    graph = Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], [2.0, 2.0, 0.5, 0.5])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)


def test_edges_that_repeat_are_summed():
    with pytest.warns(GraphWarning, match="1 repeated edges were summed"):
        graph = Graph.from_edges([0, 0, 1], [1, 1, 2], [1.5, 0.5, 0.5])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    with pytest.warns(GraphWarning, match="edges listed in both directions were summed"):
        graph = Graph.from_edges([0, 1, 1], [1, 0, 2], [1.5, 0.5, 0.5])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)


def test_loops_of_an_edge_list_are_dropped():
    with pytest.warns(GraphWarning, match="1 self loops dropped .first at edge 1"):
        graph = Graph.from_edges([0, 1, 1], [1, 1, 2], [2.0, 9.0, 0.5])
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        (([0, 1], [1]), {}, "2 sources but 1 targets"),
        (([0, 1], [1, 2], [1.0]), {}, "2 edges but 1 weights"),
        (([], []), {}, "empty"),
        (([0, 5], [1, 2]), {"n_nodes": 3}, r"edge 1: node 5 is outside 0\.\.2"),
        (([0, -1], [1, 2]), {"n_nodes": 3}, r"edge 1: node -1 is outside 0\.\.2"),
        ((["a"], ["b"]), {"n_nodes": 3}, "must be row numbers"),
        (([0], [1]), {"n_nodes": 3, "names": ["a"]}, "1 node names for 3 nodes"),
    ],
)
def test_bad_edge_lists_are_refused(args, options, words):
    with pytest.raises(GraphError, match=words):
        Graph.from_edges(*args, **options)


# --- frozen values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.array, sp.csr_array, sp.csr_matrix, sp.coo_array, sp.csc_array])
def test_the_input_is_never_changed_nor_watched(make):
    W = PATH + np.diag([1.0, 0, 0])
    W[0, 1] = 3.0
    given, untouched = make(W), make(W)
    names = np.array(["a", "b", "c"])
    with pytest.warns(GraphWarning):
        graph = Graph.from_matrix(given, names=names)
    before = graph.matrix.toarray().copy()
    different = given != untouched
    assert not different.any() if isinstance(given, np.ndarray) else different.nnz == 0
    data = given if isinstance(given, np.ndarray) else given.data
    assert data.flags.writeable
    data[:] = 77.0  # the caller goes on working with its own arrays
    names[:] = "x"
    np.testing.assert_array_equal(graph.matrix.toarray(), before)
    assert graph.node_names.tolist() == ["a", "b", "c"]


def test_even_a_flawless_matrix_is_copied():
    given = sp.csr_array(PATH)
    graph = Graph.from_matrix(given)
    given.data[:] = 77.0
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    # columns out of order and one entry twice: scipy would put that right in place
    data, columns = np.array([1.5, 0.5, 0.5, 2.0, 0.5]), np.array([1, 1, 2, 0, 1])
    given = sp.csr_array((data, columns, np.array([0, 2, 4, 5])), shape=(3, 3))
    with pytest.warns(GraphWarning, match="duplicate"):
        graph = Graph.from_matrix(given)
    np.testing.assert_array_equal(graph.matrix.toarray(), PATH)
    assert given.indices.tolist() == [1, 1, 2, 0, 1]
    assert given.data.tolist() == [1.5, 0.5, 0.5, 2.0, 0.5]


def test_edge_lists_are_never_changed():
    source, target, weight = np.array([0, 1, 1]), np.array([1, 1, 2]), np.array([2.0, 9.0, 0.5])
    copies = source.copy(), target.copy(), weight.copy()
    with pytest.warns(GraphWarning):
        Graph.from_edges(source, target, weight)
    for array, copy in zip((source, target, weight), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_graph_is_frozen():
    graph = Graph.from_matrix(PATH, names=["a", "b", "c"])
    (block,) = graph.blocks
    for array in (block.indptr, block.indices, block.weights, graph.degrees, graph.names):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(AttributeError):
        graph.n_nodes = 7
    with pytest.raises(AttributeError):
        block.start = 7


def test_several_row_blocks_are_one_graph():
    whole = reference.random_graph(50, np.random.default_rng(0))
    parts = split(whole, [0, 13, 14, 50])
    assert [b.start for b in parts.blocks] == [0, 13, 14]
    assert [b.stop for b in parts.blocks] == [13, 14, 50]
    np.testing.assert_array_equal(parts.matrix.toarray(), whole.matrix.toarray())
    np.testing.assert_allclose(parts.degrees, whole.degrees)
    assert parts.n_edges == whole.n_edges


def split(graph, cuts):
    """The same graph in several row blocks."""
    (whole,) = graph.blocks
    blocks = []
    for first, last in pairwise(cuts):
        begin, end = whole.indptr[[first, last]]
        weights = None if whole.weights is None else whole.weights[begin:end]
        indptr = whole.indptr[first : last + 1] - begin
        indptr.flags.writeable = False  # as in every other block, so that nothing is compiled anew
        blocks.append(RowBlock(first, indptr, whole.indices[begin:end], weights))
    return Graph(tuple(blocks), graph.n_nodes, graph.names)


def test_degrees_where_rows_are_empty():
    W = np.zeros((5, 5))
    W[1, 3] = W[3, 1] = 0.25
    graph = Graph.from_matrix(W)
    assert graph.degrees.tolist() == [0, 0.25, 0, 0.25, 0]
    assert graph.isolated.tolist() == [0, 2, 4]


# --- several layers ---------------------------------------------------------------------------------


def test_layers_from_a_list_and_a_dict():
    listed = MultilayerGraph.from_layers([PATH, sp.csr_array(PATH)], names=["a", "b", "c"])
    assert listed.layer_names == ("0", "1")
    assert (listed.n_nodes, listed.n_layers, listed.n_edges) == (3, 2, 4)
    assert listed.node_names.tolist() == listed.names.tolist() == ["a", "b", "c"]
    named = MultilayerGraph.from_layers({"work": PATH, "home": Graph.from_matrix(PATH)})
    assert named.layer_names == ("work", "home")
    assert named.names is None


def test_layers_must_share_their_nodes():
    with pytest.raises(GraphError, match="layer 'b' has 2 nodes, layer 'a' has 3"):
        MultilayerGraph.from_layers({"a": PATH, "b": PATH[:2, :2]})
    first = Graph.from_matrix(PATH, names=["a", "b", "c"])
    with pytest.raises(GraphError, match="layer '1' names its nodes differently"):
        MultilayerGraph.from_layers([first, PATH])
    twice = Graph.from_matrix(PATH, names=["a", "b", "a"])
    with pytest.raises(GraphError, match="a node name occurs twice"):
        MultilayerGraph.from_layers([first, twice])


def test_named_layers_are_united_by_name():
    first = Graph.from_edges(["ann", "bob"], ["bob", "cid"], [2.0, 3.0])
    second = Graph.from_edges(["cid"], ["dan"])
    united = MultilayerGraph.from_layers({"work": first, "home": second})
    assert united.node_names.tolist() == ["ann", "bob", "cid", "dan"]
    assert united.layers[0].isolated.tolist() == [3]
    assert united.layers[1].isolated.tolist() == [0, 1]
    assert united.layers[0].matrix.toarray()[1].tolist() == [2, 0, 3, 0]
    combine_inplace = Graph.from_matrix(PATH[::-1, ::-1], names=["c", "b", "a"])
    same = MultilayerGraph.from_layers([Graph.from_matrix(PATH, names=["a", "b", "c"]), combine_inplace])
    np.testing.assert_array_equal(same.layers[0].matrix.toarray(), same.layers[1].matrix.toarray())


def test_bad_layers_are_refused_by_name():
    with pytest.raises(GraphError, match="at least one layer"):
        MultilayerGraph.from_layers([])
    with pytest.raises(GraphError, match="1 layer names for 2 layers"):
        MultilayerGraph((Graph.from_matrix(PATH),) * 2, ("a",))
    with pytest.raises(GraphError, match=r"layer 'b': weight of edge .*negative"):
        MultilayerGraph.from_layers({"a": PATH, "b": -PATH})
