import gzip

import numpy as np
import pytest
from sklearn.base import clone

from spectrograd import GraphError, GraphWarning, MultilayerSpectralClustering, metrics, read_graph
from spectrograd.datasets import make_gaussian_mixture


def write(path, text):
    path.write_text(text)
    return path


def test_infomap_intra_with_names(tmp_path):
    text = (
        '*Vertices 3\n1 "ann"\n2 "bob b"\n3 "cid"\n*Layers\n1 "work"\n2 "lunch"\n*Intra\n1 1 2 0.5\n2 2 3\n'
    )
    graph = read_graph(write(tmp_path / "a.net", text))
    assert graph.layer_names == ("lunch", "work")
    assert graph.node_names.tolist() == ["ann", "bob b", "cid"]
    assert graph.layers[1].matrix.toarray()[0, 1] == 0.5
    assert [layer.n_edges for layer in graph.layers] == [1, 1]


def test_infomap_multilayer_leaves_out_edges_between_layers(tmp_path):
    text = "# a comment\n*Multilayer\n1 1 1 2 2\n1 1 2 1 1\n2 3 2 2\n*Inter\n1 1 2 1\n"
    with pytest.warns(GraphWarning, match="2 edges between layers left out"):
        graph = read_graph(write(tmp_path / "a.txt", text))
    assert graph.n_nodes == 3
    assert graph.layer_names == ("1", "2")
    assert graph.node_names.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("*Intra\n1 2\n", r"a\.net, line 2: 3 or 4 columns expected"),
        ("*Multilayer\n1 2 1\n", "line 2: 4 or 5 columns expected"),
        ("*Intra\n1 1 2 x\n", r"line 2: 'x' is not a number \(weight\)"),
        ("*Intra\n1 1 2 -1\n", "line 2: weight -1 must be finite"),
        ("*Intra\n1 1 2 nan\n", "line 2: weight nan must be finite"),
        ("*Nodes\n1\n", r"line 1: unknown section '\*nodes'"),
        ("1 1 2\n", "line 1: data before the first section"),
        ("*Intra\n", "no edges inside the layers"),
    ],
)
def test_broken_infomap(tmp_path, text, message):
    with pytest.raises(GraphError, match=message):
        read_graph(write(tmp_path / "a.net", text))


FULL_MPX = """-- departments
#VERSION
3.0
#TYPE
multiplex
#EDGE ATTRIBUTES
lunch,place,STRING
weight,NUMERIC
#LAYERS
lunch,UNDIRECTED
work,UNDIRECTED
#ACTORS
ann
bob
#EDGES
ann,bob,lunch,canteen,2.5
bob,cid,work,3
"""


def test_mpx_with_sections_and_weights(tmp_path):
    graph = read_graph(write(tmp_path / "a.mpx", FULL_MPX))
    assert graph.layer_names == ("lunch", "work")
    assert graph.node_names.tolist() == ["ann", "bob", "cid"]
    assert graph.layers[0].matrix.max() == 2.5
    assert graph.layers[1].matrix.max() == 3


def test_plain_mpx_gzipped(tmp_path):
    path = tmp_path / "a.mpx.gz"
    path.write_bytes(gzip.compress(b"U1,U2,l1\nU2,U3,l2\n"))
    assert read_graph(path).layer_names == ("l1", "l2")


def test_multilayer_mpx(tmp_path):
    text = "#TYPE multilayer\n#EDGES\nann,l1,bob,l1\nann,l1,bob,l2\nbob,l2,cid,l2\n"
    with pytest.warns(GraphWarning, match="1 edges between layers left out"):
        graph = read_graph(write(tmp_path / "a.mpx", text))
    assert graph.layer_names == ("l1", "l2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", r"line 1: an edge is actor,actor,layer\[,attributes\], found 'a,b'"),
        ("a,,l\n", "line 1: an edge is"),
        ("#EDGE ATTRIBUTES\nweight\n", "line 2: an edge attribute is"),
        ("#EDGE ATTRIBUTES\nweight,NUMERIC\n#EDGES\na,b,l\n", "line 4: the edge has no weight"),
        ("#EDGE ATTRIBUTES\nweight,NUMERIC\n#EDGES\na,b,l,x\n", "line 4: 'x' is not a number"),
        ("#ACTORS\na\n", "no edges inside the layers"),
    ],
)
def test_broken_mpx(tmp_path, text, message):
    with pytest.raises(GraphError, match=message):
        read_graph(write(tmp_path / "a.mpx", text))


def test_several_files_of_different_formats_share_their_nodes(tmp_path):
    write(tmp_path / "a.mpx", "x,y,l1\ny,z,l1\n")
    write(tmp_path / "b.csv", "src,dst\nx,z\nz,y\n")
    graph = read_graph(tmp_path / "a.mpx", tmp_path / "b.csv")
    assert graph.layer_names == ("a:l1", "b")
    assert graph.n_nodes == 3


def test_views_become_one_neighbour_layer_each():
    points, labels = make_gaussian_mixture(300, 3, n_features=4, separation=6.0, random_state=0)
    views = {"left": points[:, :2], "right": points[:, 2:]}
    model = MultilayerSpectralClustering(
        3, affinity="nearest_neighbors", aggregation="projection", random_state=0
    ).fit(views)
    assert model.layer_names_ == ("left", "right")
    assert metrics.nmi(labels, model.labels_) > 0.7
    listed = clone(model).fit(list(views.values()))
    np.testing.assert_array_equal(listed.labels_, model.labels_)


def test_views_of_different_length_or_with_nan_are_errors():
    model = MultilayerSpectralClustering(2, affinity="nearest_neighbors", n_neighbors=3)
    rng = np.random.default_rng(0)
    with pytest.raises(GraphError, match="layer '1' has 20 nodes, layer '0' has 30"):
        model.fit([rng.random((30, 2)), rng.random((20, 2))])
    bad = rng.random((30, 2))
    bad[3] = np.nan
    with pytest.raises(ValueError, match=r"view '1'.*NaN"):
        model.fit([rng.random((30, 2)), bad])


def test_a_layer_with_nan_is_named():
    good = np.ones((4, 4)) - np.eye(4)
    bad = good.copy()
    bad[0, 1] = np.nan
    with pytest.raises(GraphError, match=r"layer 'b': weight of edge \(0, 1\) is nan"):
        MultilayerSpectralClustering(2).fit({"a": good, "b": bad})
