"""Columns of edge tables: the same rule for text, Parquet and data frames."""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from spectrograd import MultilayerSpectralClustering, SpectralClustering, read_graph
from spectrograd.graph import GraphError, GraphWarning, MultilayerGraph
from spectrograd.io import from_frame
from spectrograd.io.columns import COLUMN_NAMES

ENDS = {"from": ["ann", "bob", "cid"], "to": ["bob", "cid", "ann"]}


def _csv(columns, tmp_path, **chosen):
    pandas.DataFrame(columns).to_csv(tmp_path / "e.csv", index=False)
    return read_graph(tmp_path / "e.csv", **chosen)


def _parquet(columns, tmp_path, **chosen):
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "e.parquet")
    return read_graph(tmp_path / "e.parquet", **chosen)


DOORS = {
    "csv": _csv,
    "parquet": _parquet,
    "pandas": lambda columns, _, **chosen: from_frame(pandas.DataFrame(columns), **chosen),
    "polars": lambda columns, _, **chosen: from_frame(polars.DataFrame(columns), **chosen),
    "arrow": lambda columns, _, **chosen: from_frame(pyarrow.table(columns), **chosen),
}


@pytest.fixture(params=DOORS)
def door(request, tmp_path):
    return lambda columns, **chosen: DOORS[request.param](columns, tmp_path, **chosen)


def weights(graph):
    return sorted(graph.matrix.data.tolist()[::1])[::2]


@pytest.mark.parametrize("name", [*COLUMN_NAMES["weight"], "Amount", "SCORE"])
def test_the_usual_names_of_weights(door, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert weights(door(ENDS | {name: [10, 20, 29]})) == [10, 20, 29]


def test_a_single_third_column_of_numbers_is_the_weight_and_it_is_said(door):
    with pytest.warns(
        GraphWarning, match=r"the column 'euros' is taken for the weight.*weight='none'"
    ) as told:
        assert weights(door(ENDS | {"euros": [10.5, 20, 29]})) == [10.5, 20, 29]
    assert len(told) == 1
    with pytest.warns(GraphWarning, match="the column 'euros' is not used"):
        assert not door(ENDS | {"euros": [10.5, 20, 29]}, weight="none").is_weighted


def test_columns_that_are_not_used_are_named(door):
    columns = {"id": [1, 2, 3]} | ENDS | {"weight": [1, 2, 3], "count": [5, 5, 5], "note": ["x", "y", "z"]}
    with pytest.warns(GraphWarning, match="the columns 'id', 'count', 'note' are not used") as told:
        assert weights(door(columns)) == [1, 2, 3]
    assert len(told) == 1
    with pytest.warns(GraphWarning, match="the columns 'euros', 'year' are not used"):
        assert not door(ENDS | {"euros": [1.5, 2, 3], "year": [1, 2, 3]}).is_weighted
    with pytest.raises(
        GraphError, match=r"'count' and 'score' both name the weight column; choose by weight="
    ):
        door(ENDS | {"count": [1, 2, 3], "score": [1, 2, 3]})


@pytest.mark.parametrize("name", ["relation", "Type", "edge_type"])
def test_a_column_that_may_tell_layers_apart_is_offered(door, name):
    columns = ENDS | {name: [1, 1, 2]}
    with pytest.warns(GraphWarning, match=rf"'{name}' is not used.*layer='{name}'"):
        assert not door(columns).is_weighted
    layers = door(columns, layer=name)
    assert isinstance(layers, MultilayerGraph)
    assert layers.layer_names == ("1", "2")


def test_columns_are_chosen_by_name(door):
    columns = {"caller": ENDS["from"], "callee": ENDS["to"], "minutes": [1, 2, 3]}
    graph = door(columns, source="caller", target="callee", weight="minutes")
    assert graph.node_names.tolist() == ["ann", "bob", "cid"]
    assert weights(graph) == [1, 2, 3]
    with pytest.raises(GraphError, match="no column 'hours' among 'caller', 'callee', 'minutes'"):
        door(columns, source="caller", target="callee", weight="hours")
    with pytest.raises(GraphError, match="'caller' cannot be both src and dst"):
        door(columns, source="caller", target="caller")


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ([1.0, -2.0, 3.0], r"weight -2(\.0)? "),
        ([1.0, None, 3.0], r"(weight nan|'' is not a number)"),
        (["much", "more", "most"], r"(does not hold numbers|'much' is not a number)"),
    ],
)
def test_bad_amounts_are_the_usual_errors(door, amounts, message):
    with pytest.raises(GraphError, match=message):
        door(ENDS | {"amount": amounts})


def test_points_are_refused_and_sent_to_the_right_door(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(0).standard_normal((50, 4))
    for header, width in (("x,y", 2), ("x,y,z", 3), ("", 2), ("", 4), ("from,to", 2)):
        np.savetxt("p.csv", points[:, :width], delimiter=",", header=header, comments="")
        with pytest.raises(GraphError, match=r"^p\.csv: these look like points.*knn_graph.*source=, target="):
            read_graph("p.csv")
    np.savetxt("p.csv", points[:, :2], delimiter=",", header="x,y", comments="")
    assert read_graph("p.csv", source="x", target="y").n_edges == 50


def test_ids_that_are_fractions_but_come_again_are_ids(tmp_path):
    rows = [f"1.{i} 1.{(i * 7 + 3) % 10 + 1}\n" for i in range(1, 10)] * 5
    (tmp_path / "e.txt").write_text("".join(rows))
    with pytest.warns(GraphWarning, match="repeated"):
        assert "1.5" in read_graph(tmp_path / "e.txt").node_names


def test_a_list_of_paths_is_layers_and_other_things_are_refused(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("1,2\n2,3\n")
    graph = read_graph([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert graph.layer_names == ("a", "b")
    with pytest.raises(GraphError, match="read_graph takes paths, not a ndarray"):
        read_graph(np.eye(3))
    (tmp_path / "a.mtx").write_text("")
    with pytest.raises(GraphError, match=r"\.mtx files have no columns to choose from"):
        read_graph(tmp_path / "a.mtx", weight="amount")


def test_estimators_name_columns_and_say_what_is_missing():
    rng = np.random.default_rng(0)
    calls = pandas.DataFrame({"caller": rng.integers(0, 20, 200), "callee": rng.integers(20, 40, 200)})
    calls = calls.astype(str)
    model = SpectralClustering(2, random_state=0)
    with pytest.raises(
        GraphError, match="no columns 'src' and 'dst' among 'when', 'caller', 'callee'; rename them, or say"
    ):
        model.fit(calls.assign(when="x")[["when", "caller", "callee"]])
    with pytest.warns(GraphWarning, match="repeated"):
        assert len(model.fit(calls, source="caller", target="callee").labels_) == 40
    with pytest.raises(GraphError, match="source= names a column of an edge table, but X is of type ndarray"):
        model.fit(np.eye(3), source="caller")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sauce'"):
        model.fit(calls, sauce="caller")
    calls["kind"] = np.where(np.arange(200) % 2, "work", "home")
    layered = MultilayerSpectralClustering(2, random_state=0)
    chosen = {"source": "caller", "target": "callee"}
    with pytest.warns(GraphWarning):
        assert layered.fit(calls, layer="kind", **chosen).layer_names_ == ("home", "work")
    with pytest.raises(GraphError, match=r"no column 'layer'.*layer='type'"), pytest.warns(GraphWarning):
        layered.fit(calls.rename(columns={"kind": "type"}), **chosen)
