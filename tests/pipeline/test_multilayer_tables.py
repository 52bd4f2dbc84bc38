"""Long edge tables with a ``layer`` column, given to the estimators as they are."""

import numpy as np
import pandas as pd
import pytest

from spectrograd import MultilayerSpectralClustering, MultilayerSpectralEmbedding, datasets
from spectrograd.graph import GraphError
from spectrograd.io.interop.frames import from_frame as read_layers


@pytest.fixture(scope="module")
def data():
    return datasets.make_multilayer_gmm(120, 2, 3, separation=4.0, random_state=0)


@pytest.fixture(scope="module")
def frame(data):
    parts = []
    for name, layer in zip(("work", "home"), data.graph.layers, strict=True):
        coo = layer.matrix.tocoo()
        once = coo.row < coo.col
        ends = {"source": coo.row[once], "target": coo.col[once], "weight": coo.data[once]}
        parts.append(pd.DataFrame(ends | {"layer": name, "remark": "unread"}))
    return pd.concat(parts, ignore_index=True)


def test_a_table_gives_the_same_layers_as_matrices(data, frame):
    graph = read_layers(frame)
    assert graph.layer_names == ("home", "work")
    for name, layer in zip(("work", "home"), data.graph.layers, strict=True):
        found = graph.layers[graph.layer_names.index(name)]
        np.testing.assert_allclose(found.matrix.toarray(), layer.matrix.toarray())


def test_estimators_take_frames_and_structured_arrays(data, frame):
    model = MultilayerSpectralClustering(3, random_state=0).fit(frame)
    assert model.layer_names_ == ("home", "work")
    assert model.names_.tolist() == list(range(120))
    records = frame.drop(columns="remark").to_records(index=False)
    again = MultilayerSpectralClustering(3, random_state=0).fit(records)
    np.testing.assert_array_equal(model.labels_, again.labels_)
    assert MultilayerSpectralEmbedding(2, random_state=0).fit_transform(frame).shape == (120, 2)


def test_names_may_be_texts_and_differ_between_layers():
    rows = [("ann", "bob", "x"), ("bob", "cid", "x"), ("cid", "dan", 2), ("dan", "ann", 2)]
    graph = read_layers(pd.DataFrame(rows, columns=["From", "To", "Layer"]))
    assert graph.node_names.tolist() == ["ann", "bob", "cid", "dan"]
    assert graph.layer_names == ("2", "x")
    assert [layer.isolated.tolist() for layer in graph.layers] == [[1], [3]]


def test_ends_of_two_kinds_keep_their_kind():
    mixed = pd.DataFrame({"src": [0, 1], "dst": ["x", "y"], "layer": ["a", "b"]})
    assert read_layers(mixed).node_names.tolist() == [0, 1, "x", "y"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": [0], "dst": [1]}, "no column 'layer'"),
        ({"src": [0], "source": [0], "dst": [1], "layer": ["a"]}, "'src' and 'source' both name the src"),
        ({"src": [0], "dst": [1], "layer": [None]}, "row 0: the column 'layer' is empty"),
        ({"src": [0, np.nan], "dst": [1, 2], "layer": ["a", "a"]}, "row 1: the column 'src' is empty"),
        ({"src": [0, 1], "dst": [1, 2], "layer": ["a", "a"], "weight": [1, np.nan]}, "row 1: weight nan"),
        ({"src": [0], "dst": [1], "layer": ["a"], "weight": [-2]}, "row 0: weight -2.0"),
        ({"src": [0], "dst": [1], "layer": ["a"], "weight": ["much"]}, "does not hold numbers"),
        ({"src": [], "dst": [], "layer": []}, "empty, no edges in it"),
    ],
)
def test_bad_tables_say_what_and_where(columns, message):
    with pytest.raises(GraphError, match=message):
        MultilayerSpectralClustering(2).fit(pd.DataFrame(columns))


def test_one_graph_is_not_several_layers(data):
    with pytest.raises(ValueError, match="an edge table with columns src, dst, layer"):
        MultilayerSpectralClustering(2).fit(data.graph.layers[0])
