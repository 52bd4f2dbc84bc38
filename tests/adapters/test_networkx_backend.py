"""The networkx backend: networkx's own tests of these functions, and its results on graphs of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

nx = pytest.importorskip("networkx", minversion="3.4")

from spectrograd import GraphError  # noqa: E402
from spectrograd import networkx_backend as backend  # noqa: E402
from spectrograd.networkx_info import FUNCTIONS, get_info  # noqa: E402

REGISTERED = any(point.name == "spectrograd" for point in entry_points(group="networkx.backends"))
needs_entry_point = pytest.mark.skipif(not REGISTERED, reason="install the package again: its entry points")


def convert(graph, weight="weight"):
    return backend.convert_from_nx(graph, edge_attrs={weight: 1} if weight else None)


@needs_entry_point
def test_networkx_own_tests_pass_against_the_backend(tmp_path):
    environment = os.environ | {"NETWORKX_TEST_BACKEND": "spectrograd", "NETWORKX_FALLBACK_TO_NX": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"]
    result = subprocess.run(
        [*command, "networkx.linalg.tests.test_algebraic_connectivity"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert " passed" in result.stdout


@needs_entry_point
def test_dispatch_by_keyword_and_cached_conversion():
    graph = nx.barbell_graph(6, 2)
    ours = nx.algebraic_connectivity(graph, backend="spectrograd")
    assert ours == pytest.approx(nx.algebraic_connectivity(graph, tol=1e-12))
    assert "spectrograd" in str(graph.__networkx_cache__)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("n", [40, 400])  # LAPACK; the certified pipeline
def test_fiedler_pairs_are_those_of_networkx(n, normalized):
    graph = nx.connected_watts_strogatz_graph(n, 6, 0.3, seed=1)
    rng = np.random.default_rng(0)
    nx.set_edge_attributes(graph, {edge: rng.uniform(0.5, 2) for edge in graph.edges}, "weight")
    matrix = (nx.normalized_laplacian_matrix if normalized else nx.laplacian_matrix)(graph).toarray()
    values, vectors = np.linalg.eigh(matrix)
    found = backend.fiedler_vector(convert(graph), normalized=normalized)
    assert abs(found @ vectors[:, 1]) == pytest.approx(1, abs=1e-6)
    assert backend.algebraic_connectivity(convert(graph), normalized=normalized) == pytest.approx(values[1])


def test_weights_loops_and_parallel_edges_count_as_in_networkx():
    graph = nx.MultiGraph(
        [(0, 1, {"weight": -2}), (0, 1), (1, 2, {"weight": 3}), (2, 2), (2, 3, {"weight": 0})]
    )
    converted = convert(graph)
    assert converted.weights.toarray()[0, 1] == 3
    assert converted.weights.toarray()[1, 2] == 3
    assert converted.weights.nnz == 4
    assert convert(graph, weight=None).weights.toarray()[2, 3] == 1
    assert converted.is_multigraph()


def test_ordering_keeps_components_together_and_takes_directed_graphs():
    graph = nx.DiGraph([(3, 1), (1, 2), (2, 0), ("a", "b"), ("b", "c")])
    order = backend.spectral_ordering(convert(graph))
    assert {frozenset(order[:4]), frozenset(order[4:])} == {frozenset({0, 1, 2, 3}), frozenset("abc")}
    path = [node for node in order if not isinstance(node, str)]
    assert path in ([3, 1, 2, 0], [0, 2, 1, 3])


def test_bisection_cuts_the_bridge():
    sides = backend.spectral_bisection(convert(nx.barbell_graph(5, 0)))
    assert sorted(map(sorted, sides)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize(
    ("graph", "call", "words"),
    [
        (nx.empty_graph(0), backend.fiedler_vector, "less than two nodes"),
        (nx.empty_graph(3), backend.fiedler_vector, "not connected"),
        (nx.empty_graph(0), backend.spectral_ordering, "graph is empty"),
        (
            nx.path_graph(5),
            lambda graph: backend.fiedler_vector(graph, method="magic"),
            "unknown method 'magic'",
        ),
    ],
)
def test_errors_are_networkx_errors(graph, call, words):
    with pytest.raises(nx.NetworkXError, match=words):
        call(convert(graph))


@needs_entry_point
@pytest.mark.parametrize("function", [nx.fiedler_vector, nx.algebraic_connectivity, nx.spectral_bisection])
def test_directed_graphs_are_refused_as_networkx_does(function):
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    with pytest.raises(nx.NetworkXNotImplemented, match="not implemented for directed"):
        function(graph, backend="spectrograd")


@needs_entry_point
def test_weights_that_are_nan_are_named():
    graph = nx.path_graph(4)
    graph.edges[1, 2]["weight"] = float("nan")
    with pytest.raises(GraphError, match="is nan: not finite"):
        nx.fiedler_vector(graph, backend="spectrograd")


def test_disconnected_graphs_have_no_algebraic_connectivity():
    assert backend.algebraic_connectivity(convert(nx.empty_graph(3))) == 0


def test_what_networkx_is_told_names_functions_that_exist():
    assert set(get_info()["functions"]) == set(FUNCTIONS)
    assert all(callable(getattr(backend, name)) for name in FUNCTIONS)


def test_importing_networkx_does_not_load_the_pipeline():
    code = (
        "import sys, networkx; sys.exit(any(name.startswith('spectrograd.pipeline') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
