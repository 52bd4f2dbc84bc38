"""The page of a run: what is gathered, saved, said and escaped; the browser's part is tested beside it."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_moons

from spectrograd import datasets
from spectrograd.graph import Graph, MultilayerGraph
from spectrograd.pipeline import Settings, cluster, embed, prepare
from spectrograd.points.knn_graph import knn_graph
from spectrograd.report.collect import draw_graph, gather_run
from spectrograd.report.document import (
    certificate_words,
    convergence_words,
    run_document,
    share_words,
    small,
    spectrum_words,
)
from spectrograd.report.page import plotly_source, render_run
from spectrograd.report.run import Nodes, Run, load_run, save_run
from spectrograd.report.scatter import DrawnAtMost, group, points_document, sample

NASTY = "</script><script>alert('&amp;')</script>"
SCORES = {"purity": 0.9, "nmi": 0.8, "ri": 0.7, "ari": 0.6}


def summary_of(result, graph, **changes):
    several = isinstance(graph, MultilayerGraph)
    return {
        "command": "cluster",
        "command_line": "spectrograd cluster 'a&b.csv' -k 3",
        "version": "1.2.3",
        "seed": 4,
        "input": {"files": ["a&b.csv"], "sha256": "0" * 64},
        "graph": {
            "n_nodes": graph.n_nodes,
            "n_edges": graph.n_edges,
            "n_layers": graph.n_layers if several else 1,
        },
        "seconds": {"read": 0.0, "solve": 1.5, "total": 2.0},
        "solver": {"name": "eigen", "reason": "small", "iterations": 1, "passes": 1.0, "stopped": "done"},
        "certificate": result.certificate.summary(),
        "scores": None,
        "versions": {"numpy": "9.9", "numba": None},
    } | changes


@pytest.fixture(scope="module")
def single():
    """A clustered graph with known classes and a name that would like to be a script."""
    data = datasets.make_block_model(120, 3, random_state=0)
    names = np.array([NASTY, *(f"node {i}" for i in range(1, 120))])
    graph = Graph.from_matrix(data.graph.matrix, names=names)
    result = embed(graph, Settings(n_components=3, solver="eigen", seed=0))
    result = replace(result, labels=data.labels, n_clusters=3)
    classes = np.where(np.arange(120) < 5, -1, data.labels)
    told = summary_of(result, graph, scores=SCORES)
    return gather_run(graph, result, told, truth=(NASTY, classes))


@pytest.fixture(scope="module")
def layered():
    data = datasets.make_multilayer_gmm(150, 2, 3, random_state=0)
    how = {"laplacian": "symmetric", "aggregation": "projection", "seed": 0}
    rough = Settings(n_components=3, solver="gradient-descent", max_iter=20, **how)
    result = prepare(data.graph, rough).solve(replace(rough, solver="eigen", max_iter=None))
    result = replace(result, labels=data.labels, n_clusters=3)
    return gather_run(data.graph, result, summary_of(result, data.graph))


@pytest.fixture(scope="module")
def embedded():
    graph = datasets.make_block_model(120, 3, random_state=0).graph
    result = embed(graph, Settings(n_components=4, solver="eigen", seed=0))
    return gather_run(graph, result, summary_of(result, graph, command="embed"), drop_first=True)


def decoded(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def page_of(run, *shown):
    return render_run(run_document(run, *shown), "/* plotly */")


def test_coordinates_come_back_bit_for_bit(single):
    points = points_document(single)
    assert [column["name"] for column in points["columns"]] == [
        "view 1",
        "view 2",
        *(f"eigenvector {i}" for i in (1, 2, 3)),
        "layout 1",
        "layout 2",
    ]
    for i in range(3):
        values = decoded(points["columns"][2 + i]["data"], "<f4")
        assert np.array_equal(values, single.nodes.vectors[:, i])
    assert points["names"][0] == NASTY
    cluster, kind = points["groups"]
    assert np.array_equal(decoded(cluster["codes"], "u1"), single.nodes.labels)
    assert kind["names"] == ["0", "1", "2", "unknown"]  # which is no class: last, and grey
    assert kind["missing"] == 3
    assert cluster["missing"] is None
    assert points["axes"] == {"plane": [0, 1], "space": [2, 3, 4]}


def test_an_embedding_starts_at_the_second_eigenvector(embedded):
    points = points_document(embedded)
    assert [column["name"] for column in points["columns"][:3]] == [f"eigenvector {i}" for i in (2, 3, 4)]
    assert points["axes"] == {"plane": [0, 1], "space": [0, 1, 2]}
    assert points["groups"] == []
    assert embedded.spectrum["values"][0] == pytest.approx(0, abs=1e-9)
    assert len(embedded.spectrum["values"]) == 4


def test_one_column_serves_as_all_axes():
    run = Run({}, Nodes(np.arange(5), np.ones((5, 1), np.float32)), {"first": 2}, ())
    assert points_document(run)["axes"] == {"plane": [0, 0], "space": [0, 0, 0]}


def test_many_points_are_sampled_with_a_note(single):
    points = points_document(single, DrawnAtMost(points=50))
    rows = sample(120, 50)
    assert len(np.unique(rows)) == 50
    assert np.array_equal(rows, sample(120, 50))
    assert "50 of 120 nodes" in points["note"]
    names = single.nodes.names[rows].tolist()
    assert points["names"] == names
    assert np.array_equal(decoded(points["columns"][2]["data"], "<f4"), single.nodes.vectors[rows, 0])
    assert "50 of 120 nodes" in page_of(single, DrawnAtMost(points=50))
    assert run_document(single)["clusters"]["rows"][0]["size"] == 40  # tables count all


def test_many_columns_are_cut_with_a_note(single):
    assert points_document(single)["note"] == ""
    points = points_document(single, DrawnAtMost(columns=2))
    assert len(points["columns"]) == 2 + 2 + 2  # view, eigenvectors, layout
    assert "first 2 of 3 eigenvectors" in points["note"]


def test_of_many_groups_the_largest_keep_their_names():
    groups = group(np.array([9, 9, 9, 1, 5, 5, 7]), most=3)
    assert groups.names == ["5", "9", "the other 2"]
    assert groups.codes.tolist() == [1, 1, 1, 2, 0, 0, 2]
    assert groups.shown == [5, 9]


def test_clusters_are_counted_and_measured(single):
    clusters = run_document(single)["clusters"]
    assert [row["size"] for row in clusters["rows"]] == [40, 40, 40]
    assert all(0 < row["conductance"][0] < 0.5 for row in clusters["rows"])
    first = clusters["rows"][single.nodes.labels[0]]
    assert first["members"].startswith(NASTY)
    assert first["members"].endswith(", …")
    assert clusters["n_hidden"] == 0


def test_classes_are_crossed_with_clusters_where_known(single):
    confusion = run_document(single)["confusion"]
    assert np.trace(confusion["values"]) == np.sum(confusion["values"]) == 115
    assert confusion["clusters"] == confusion["classes"] == ["0", "1", "2"]
    assert run_document(single)["scores"]["rows"] == [["0.900", "0.800", "0.700", "0.600"]]
    assert "115 labelled nodes" in page_of(single)


def test_layers_agree_with_themselves_and_are_told_when_they_fell_short(layered):
    document = run_document(layered)
    agreement = np.array(document["agreement"]["values"])
    assert document["agreement"]["names"] == ["0", "1", "merged"]
    assert np.diag(agreement) == pytest.approx(np.ones(3))
    assert [curve["name"] for curve in document["curves"]] == ["0", "1", "merged"]
    assert [score["name"] for score in document["points"]["scores"]] == ["layer 0", "layer 1"]
    score = decoded(document["points"]["scores"][0]["data"], "u1") / 255
    assert score == pytest.approx(layered.nodes.scores[:, 0], abs=0.003)
    assert [layer["converged"] for layer in layered.layers] == [False, False]
    assert not document["certificate"]["converged"]
    assert "not these layers it is made of: 0, 1." in document["certificate"]["words"][0]
    assert document["clusters"]["layers"] == ["0", "1"]


def test_a_run_comes_back_from_its_folder(layered, tmp_path):
    save_run(tmp_path / "deep" / "run", layered)
    again = load_run(tmp_path / "deep" / "run")
    assert page_of(again) == page_of(layered)
    assert np.array_equal(again.nodes.vectors, layered.nodes.vectors)


@pytest.mark.parametrize("text", ["{", "{}", '{"format": 99}', '{"format": 1, "more": 2}'])
def test_a_folder_that_holds_no_run(single, tmp_path, text):
    with pytest.raises(ValueError, match=r"run\.json is missing"):
        load_run(tmp_path)
    save_run(tmp_path, single)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"cannot be read .*; run the command again"):
        load_run(tmp_path)


def test_every_text_of_the_page_is_escaped(single):
    page = page_of(single)
    assert NASTY not in page
    assert page.count("</script>") == 3  # plotly, data, ours
    start = page.index('id="report-data">') + len('id="report-data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["points"]["names"][0] == NASTY
    assert "&lt;/script&gt;&lt;script&gt;alert(&#x27;&amp;amp;&#x27;)" in page
    assert "spectrograd cluster &#x27;a&amp;b.csv&#x27; -k 3" in page
    assert "<dt>seed</dt><dd>4</dd>" in page
    assert "<dt>numpy</dt><dd>9.9</dd>" in page
    assert "numba" not in page


def test_a_hundred_thousand_nodes_make_a_page_below_15_mb(single):
    rng = np.random.default_rng(0)
    n_nodes = 100_000
    vectors = rng.standard_normal((n_nodes, 32)).astype(np.float32)
    names = np.array([f"customer {i:06d} of shop" for i in range(n_nodes)])
    labels = rng.integers(0, 12, n_nodes)
    scores = rng.random((n_nodes, 3)).astype(np.float32)
    run = Run(
        single.summary,
        Nodes(names, vectors, labels, labels, scores),
        {"first": 1, "values": [0.0, 0.1, 0.2], "residuals": [0.0] * 3, "beyond": None},
        [{"name": "embedding", "solver": "eigen", "seconds": [1.0], "objective": [1.0], "residual": [0.0]}],
        [{"name": "", "values": [0.5] * 12}],
        {"names": ["a", "b", "c", "merged"], "values": np.eye(4).tolist()},
    )
    page = render_run(run_document(run), plotly_source())
    assert len(page.encode()) < 15_000_000


GOOD = {
    "converged": True,
    "angle_bound": 0.01,
    "gap": 0.1,
    "missed_probability": 1e-9,
    "max_residual": 2e-5,
    "orthogonality": 1e-15,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "as accurate as was asked for"),
        ({}, "tilted by at most 0.57°"),
        ({}, "evidence this good would be 1.0 · 10⁻⁹"),
        ({}, "a remainder of 2.0 · 10⁻⁵; they are perpendicular up to less than 10⁻¹²"),
        ({"angle_bound": 1e-9}, "tilted by less than 0.001°"),
        ({"angle_bound": 1.0}, "cannot be bounded"),
        ({"gap": -0.1}, "another number of them (-k)"),
        ({"missed_probability": 0}, "all of them were counted"),
        ({"missed_probability": 1.0}, "is not known"),
        ({"converged": False}, "did not reach the accuracy"),
    ],
)
def test_certificates_in_words(change, expected):
    assert expected in " ".join(certificate_words(GOOD | change))


def test_small_numbers():
    assert [small(x) for x in (None, 0, 0.25, 1.234e-7)] == [
        "an unknown size",
        "less than 10⁻¹²",
        "0.25",
        "1.2 · 10⁻⁷",
    ]


def test_the_eigengap_in_words():
    words = spectrum_words([0, 0.1, 0.6, 0.7], 0.8)
    assert "The largest jump for its height, 0.5, comes after 2 eigenvalues of 4" in words
    assert "comes after 3 eigenvalues: a hint at 3 clusters. The next" in spectrum_words([0, 0.1, 0.2], 0.9)
    # after a trivial zero alone a gap means nothing but that the graph is connected
    assert "comes after 2" in spectrum_words([0, 0.9, 1.0], None)
    assert "Too few" in spectrum_words([0, 0.1], None)


def test_convergence_in_words():
    assert "done after 0.50 s" in convergence_words({"solver": "eigen", "seconds": [0.5]})
    assert "3 measurements in 2.00 s" in convergence_words({"solver": "sgd", "seconds": [0, 1, 2.0]})


def moons(n):
    points, labels = make_moons(n, noise=0.02, random_state=0)
    graph = knn_graph(points, 10)
    result = cluster(graph, Settings(n_components=2, seed=0))
    return graph, result, labels


def test_clusters_that_are_dots_are_drawn_as_a_graph():
    graph, result, labels = moons(300)
    run = gather_run(
        graph, result, summary_of(result, graph), truth=("t", labels), class_names=("up", "down")
    )
    points = points_document(run)
    shown = [points["columns"][i]["name"] for i in points["axes"]["plane"]]
    assert shown == ["layout 1", "layout 2"]
    assert "hardly more than a dot" in points["view"]
    assert decoded(points["edges"], "<i4").size == 2 * graph.n_edges
    assert points["groups"][1]["names"] == ["up", "down"]
    assert set(run_document(run)["confusion"]["classes"]) == {"up", "down"}
    large = replace(run, nodes=replace(run.nodes, layout=None), edges=())
    points = points_document(large)
    assert points["columns"][points["axes"]["plane"][0]]["name"].startswith("eigenvector")


def test_drawings_keep_neighbours_together():
    graph, result, _ = moons(300)
    places, edges = draw_graph(graph, result.vectors)
    assert np.abs(places).max() == pytest.approx(1)
    near = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    anywhere = np.linalg.norm(places - np.roll(places, 77, axis=0), axis=1)
    assert np.median(near) < 0.3 * np.median(anywhere)
    assert np.array_equal(draw_graph(graph, result.vectors)[0], places)
    assert draw_graph(knn_graph(np.random.default_rng(0).random((2001, 1)), 2), np.ones((2001, 1))) is None


def test_the_least_certain_nodes_are_listed():
    graph, result, _ = moons(300)
    run = gather_run(graph, result, summary_of(result, graph))
    listed = [node["confidence"] for node in run_document(run)["uncertain"]]
    assert listed == sorted(listed)
    assert listed[0] == pytest.approx(float(result.membership.min()))
    assert len(listed) == 25
    assert "The least certain nodes" in page_of(run)
    assert points_document(run)["scores"][0]["name"] == "confidence"


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (4e-4, "4.0 · 10⁻⁴"), (0.25, "0.250"), (None, "–")])
def test_small_shares_are_not_zero(value, text):
    assert share_words(value) == text


def test_negative_eigenvalues_of_a_merge_are_explained():
    assert "may be negative" in spectrum_words([-1.2, -0.5, 0.1], 0.3, merged=True)
    assert "negative" not in spectrum_words([0.0, 0.5, 0.6], 0.7, merged=True)
