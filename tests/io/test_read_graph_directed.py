"""Directed inputs: one warning that says how many edges had no reverse and how they were combined."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import igraph
import networkx
import numpy as np
import pytest

from spectrograd import read_graph
from spectrograd.graph import GraphWarning
from spectrograd.io import from_igraph, from_networkx, from_pyg

ONE_WAY, BOTH_WAYS = [(0, 1), (1, 0), (1, 2), (2, 3)], [(0, 1), (1, 0), (1, 2), (2, 1)]


def _igraph(edges):
    return from_igraph(igraph.Graph(n=4, edges=edges, directed=True))


def _pyg(edges):
    return from_pyg(SimpleNamespace(edge_index=np.array(edges).T, num_nodes=4))


DOORS = {"networkx": lambda edges: from_networkx(networkx.DiGraph(edges)), "igraph": _igraph, "pyg": _pyg}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_lost_is_said_once(door):
    with pytest.warns(GraphWarning, match=r"W \+ W': 2 of 4 edges had no reverse, 1 pairs") as told:
        graph = DOORS[door](ONE_WAY)
    assert len(told) == 1
    assert sorted(graph.matrix.data.tolist()) == [1, 1, 1, 1, 2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DOORS[door](BOTH_WAYS).n_edges == 2


def test_graphml_too(tmp_path):
    networkx.write_graphml(networkx.DiGraph(ONE_WAY), tmp_path / "g.graphml")
    with pytest.warns(GraphWarning, match=r"g\.graphml: directed edges .* 2 of 4 edges had no reverse"):
        read_graph(tmp_path / "g.graphml")
    networkx.write_graphml(networkx.Graph(ONE_WAY), tmp_path / "g.graphml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_graph(tmp_path / "g.graphml")
