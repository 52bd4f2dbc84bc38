"""What ``fit`` was given: edges, points or matrices, told by what they are, with a word in doubt."""

from __future__ import annotations

import types
import warnings

import networkx as nx
import numpy as np
import pandas
import pytest
import scipy.sparse as sp

from spectrograd import (
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    metrics,
)
from spectrograd.graph import GraphError, GraphWarning

CAVES = nx.connected_caveman_graph(3, 10)
TRUTH = np.arange(30) // 10
PAIRS = np.array(CAVES.edges())


def clusters(**params):
    return SpectralClustering(3, random_state=0, **params)


def right(model):
    order = np.argsort([int(str(name).lstrip("n")) for name in model.names_])
    return metrics.nmi(TRUTH, model.labels_[order]) == pytest.approx(1)


@pytest.mark.parametrize(
    "columns",
    [["id_1", "id_2"], ["pre", "post"], [0, 1], ["userId", "itemId"], ["from_node", "to_node"]],
)
def test_tables_of_whole_numbers_are_edges(columns):
    frame = pandas.DataFrame(PAIRS, columns=columns)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert right(clusters().fit(frame))
    known = columns in (["id_1", "id_2"], ["from_node", "to_node"])
    said = [str(one.message) for one in told if "taken for edges" in str(one.message)]
    assert len(said) == (not known)
    assert known or f"fit(table, source={columns[0]!r}, target={columns[1]!r})" in said[0]


def test_a_third_column_is_the_weight():
    frame = pandas.DataFrame({"pre": PAIRS[:, 0], "post": PAIRS[:, 1], "synapses": 3})
    with pytest.warns(GraphWarning, match="taken for"):
        model = clusters().fit(frame)
    assert right(model)
    assert set(model.graph_.matrix.data) == {3.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert right(clusters().fit(frame, source="pre", target="post", weight="synapses"))


def test_tables_that_may_be_either_are_refused_with_both_calls():
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": rng.integers(20, 70, 90), "income": rng.integers(1000, 9000, 90)})
    with pytest.raises(
        GraphError, match=r"fit\(table, source='age', target='income'\).*fit\(table\.to_numpy\(\)\)"
    ):
        clusters().fit(frame)
    assert len(clusters().fit(frame.to_numpy()).labels_) == 90


@pytest.mark.parametrize("names", [["x", "y"], ["a", "b", "c", "d"]])
def test_other_tables_of_whole_numbers_are_points(names):
    values = np.random.default_rng(0).integers(0, 50, (90, len(names)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(clusters().fit(pandas.DataFrame(values, columns=names)).labels_) == 90


def test_lists_of_edges():
    texts = [(f"n{a}", f"n{b}") for a, b in PAIRS]
    for given in (texts, [list(pair) for pair in texts], [(*pair, 2.0) for pair in texts], np.array(texts)):
        assert right(clusters().fit(given))
    with pytest.warns(GraphWarning, match="a list of tuples of whole numbers is taken for edges; for points"):
        assert right(clusters().fit([(int(a), int(b)) for a, b in PAIRS]))
    assert len(clusters().fit([[int(a), int(b)] for a, b in PAIRS]).labels_) == len(
        PAIRS
    )  # as in scikit-learn
    with pytest.raises(GraphError, match="entry 1: the weight 'x' is not a number"):
        clusters().fit([("a", "b", 1.0), ("b", "c", "x")])
    with pytest.raises(GraphError, match="edges are two columns of ids"):
        clusters().fit(np.array([["a", "b", "c", "d"]]))
    layers = MultilayerSpectralClustering(3, random_state=0)
    assert right(layers.fit([texts, texts]))
    with pytest.raises(GraphError, match="these are the edges of one graph; several layers are a list"):
        layers.fit(texts)


def test_paths_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("er.csv", PAIRS, fmt="%d", delimiter=",", header="one,other", comments="")
    assert right(clusters().fit("er.csv"))
    assert right(clusters().fit(tmp_path / "er.csv", source="one", target="other"))
    layers = MultilayerSpectralClustering(3, random_state=0)
    assert right(layers.fit(["er.csv", "er.csv"]))
    assert right(layers.fit({"a": "er.csv", "b": "er.csv"}))
    with pytest.raises(GraphError, match=r"no\.csv: no such file"):
        clusters().fit("no.csv")
    with pytest.raises(ValueError, match="multilayer graph: use the Multilayer estimators"):
        clusters().fit(["er.csv", "er.csv"])


def test_annotated_cells():
    matrix = nx.to_scipy_sparse_array(CAVES).astype(float)
    names = [f"n{i}" for i in range(30)]
    adata = types.SimpleNamespace(
        obsp={"connectivities": matrix}, obsm={}, obs_names=names, X=np.ones((30, 5))
    )
    model = clusters().fit(adata)
    assert right(model)
    assert model.names_.tolist() == names
    adata.obsp = {"distances": matrix}
    with pytest.raises(
        GraphError, match=r"no neighbours yet \(obsp holds distances\): call scanpy\.pp\.neighbors"
    ):
        clusters().fit(adata)


SINGLE = (SpectralEmbedding, SpectralClustering)
SEVERAL = (MultilayerSpectralEmbedding, MultilayerSpectralClustering)


def both(matrix):
    """The same array given to estimators of one graph and of several layers."""
    for cls in (*SINGLE, *SEVERAL):
        yield cls(3, random_state=0), matrix if cls in SINGLE else [matrix, matrix]


def test_a_square_matrix_that_holds_a_graph_is_one_in_every_estimator():
    matrix = nx.to_numpy_array(CAVES)
    for given in (matrix, matrix.astype(int), matrix.astype(np.uint8), matrix.astype(np.float32)):
        for model, X in both(given):
            with pytest.warns(
                GraphWarning, match=r"taken for the weights of a graph \(affinity='precomputed'\)"
            ):
                model.fit(X)
            assert model.affinity_ == "precomputed"
    for model, X in both(sp.csr_array(matrix)):
        with warnings.catch_warnings():  # nobody has points in a sparse symmetric matrix
            warnings.simplefilter("error", GraphWarning)
            assert model.fit(X).affinity_ == "precomputed"
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        assert right(clusters(affinity="precomputed").fit(matrix))
        clusters(affinity="nearest_neighbors").fit(matrix)


def test_other_square_arrays_are_points_in_every_estimator_and_it_is_said():
    points = np.random.default_rng(0).standard_normal((30, 30))
    covariance = points @ points.T
    for given in (points, np.abs(points), covariance, np.abs(covariance)):
        for model, X in both(given):
            with pytest.warns(
                GraphWarning, match=r"taken for points \(affinity='nearest_neighbors'\); for a matrix"
            ):
                model.fit(X)
            assert model.affinity_ == "nearest_neighbors"


def test_views_of_features_need_no_affinity():
    rng = np.random.default_rng(0)
    views = [
        np.repeat(rng.standard_normal((3, p)) * 9, 10, axis=0) + rng.standard_normal((30, p)) for p in (4, 7)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MultilayerSpectralClustering(3, n_neighbors=5, random_state=0).fit(views)
    assert right(model)
    with pytest.raises(GraphError, match=r"layer '1': 29 rows of features, but the graph has 30 nodes"):
        MultilayerSpectralClustering(3).fit([nx.to_scipy_sparse_array(CAVES), views[0][:29]])


def test_a_model_of_a_graph_is_asked_by_edges_of_whole_numbers():
    model = clusters().fit(pandas.DataFrame(PAIRS, columns=["id_1", "id_2"]))
    asked = pandas.DataFrame({"a": [100, 100], "b": [0, 1]})
    assert model.predict(asked)[0] == model.labels_[0]


@pytest.mark.parametrize("dense", [False, True])
def test_zeros_beside_a_graph_are_a_layer_without_edges(dense):
    graph = sp.csr_array(nx.to_scipy_sparse_array(CAVES, dtype=float))
    empty = sp.csr_array(graph.shape)
    layers = {"ties": graph.toarray(), "none": empty.toarray()} if dense else {"ties": graph, "none": empty}
    with pytest.warns(GraphWarning, match="layers without any edge are left out: 'none'"):
        model = MultilayerSpectralClustering(3, random_state=0).fit(layers)
    assert model.layer_weights_.tolist() == [2, 0]
    assert metrics.nmi(TRUTH, model.labels_) == pytest.approx(1)
