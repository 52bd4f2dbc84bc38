"""A memory limit is planned with before the work, said, and kept while it goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from anonymous_memory import peak_of
from spectrograd import Graph, GraphError, SpectralClustering, datasets, open_store
from spectrograd.cli import main
from spectrograd.estimators.settings import make_settings
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.memory_estimate import (
    BASE_BYTES,
    _buffers,
    check_limit,
    resident_bytes,
    solver_bytes,
    streamed_bytes,
)
from spectrograd.pipeline.plan import plan
from spectrograd.solvers.base import Problem
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest
from spectrograd.store.reader import N_BUFFERS


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store whose vectors and edges both weigh more than what is not known of an interpreter."""
    path = tmp_path_factory.mktemp("large") / "graph.store"
    data = datasets.make_block_model(150_000, 12, mean_degree=16, random_state=0)
    ingest(path, GraphSource(data.graph), IngestSettings(edges=True, block_bytes=1 << 20))
    return path


def test_a_streamed_run_stays_within_its_limit(large, tmp_path):
    disk, summary = open_store(large), tmp_path / "run.json"
    limit = streamed_bytes(disk, 12)
    assert limit < resident_bytes(disk, 12)
    command = ("-m", "spectrograd", "cluster", large, "-k", 12, "--memory-limit", limit, "-q")
    peak, _ = peak_of(*command, "-o", tmp_path / "labels.csv", "--summary-json", summary)
    assert peak < 1.1 * limit
    assert json.loads(summary.read_text())["io"]["passes_over_disk"] > 5


def test_what_escalates_keeps_the_limit_too(large):
    disk = open_store(large)
    problem, least = Problem(laplacian(disk), 12), streamed_bytes(disk, 12)
    assert [choice.name for choice in plan(problem)] == ["lanczos", "chebyshev", "lanczos"]
    assert len(plan(problem, least)) == 1  # no room for a basis worth its name
    roomy, columns = least + 4 * 120 * disk.n_nodes, 4 * disk.n_nodes
    few, more = (
        dict(plan(problem, limit)[-1].params)["basis_size"] for limit in (roomy, roomy + 15 * columns)
    )
    assert 44 <= few == more - 15 < 92


def test_a_direct_solver_is_planned_where_its_factor_fits():
    side = 90
    nodes = np.arange(side * side).reshape(side, side)
    heads = np.concatenate([nodes[:, :-1].ravel(), nodes[:-1].ravel()])
    tails = np.concatenate([nodes[:, 1:].ravel(), nodes[1:].ravel()])
    grid = Graph.from_edges(heads, tails)
    problem, base = Problem(laplacian(grid), 4), resident_bytes(grid, 4)
    factor = solver_bytes(grid, "shift-invert")
    assert plan(problem, base + factor)[0].name == "shift-invert"
    assert plan(problem, base + factor - 1)[0].name != "shift-invert"


@pytest.mark.parametrize("command", ["cluster", "embed", "compare"])
def test_too_small_a_limit_is_told_the_least_that_would_do(large, command, capsys, tmp_path):
    given = [command, str(large), "-k", "12", "-o", str(tmp_path / "out.html")]
    if command != "compare":
        given[-1] = str(tmp_path / "out.csv")
    assert main([*given, "--memory-limit", "100MB", "--dry-run"]) == 2
    said = capsys.readouterr().err
    least = said.split("at least ")[1].split(" ")[0]
    assert main([*given, "--memory-limit", least, "--dry-run"]) == 0
    assert "memory   about" in capsys.readouterr().out


def test_info_tells_what_a_store_needs(large, capsys):
    disk = open_store(large)
    assert main(["info", str(large), "-k", "12"]) == 0
    said = capsys.readouterr().out
    assert f"memory   about {resident_bytes(disk, 12) / 1e6:,.0f} MB loaded" in said
    assert f"--memory-limit {streamed_bytes(disk, 12, memory_limit=0) // 1_000_000 + 1}MB on" in said


@pytest.mark.parametrize("extra", [0, 8])
def test_a_run_by_parts_stays_within_its_limit(large, tmp_path, extra):
    """The least, and with space for some more columns at once."""
    disk, summary = open_store(large), tmp_path / "run.json"
    limit = streamed_bytes(disk, 12, memory_limit=0) + 4 * extra * disk.n_nodes
    assert streamed_bytes(disk, 12, memory_limit=limit) <= limit < streamed_bytes(disk, 12)
    command = ("-m", "spectrograd", "cluster", large, "-k", 12, "--memory-limit", limit, "-q")
    peak, _ = peak_of(*command, "-o", tmp_path / "labels.csv", "--summary-json", summary)
    assert peak < 1.1 * limit
    report = json.loads(summary.read_text())
    assert "memory is short" in report["solver"]["reason"]
    assert report["certificate"]["converged"]


def test_thirty_two_vectors_of_twenty_million_nodes_fit_6_gb(large):
    """One billion edges: their blocks have 16 MB each, as smaller stores may have."""
    disk = open_store(large)
    per_node = streamed_bytes(disk, 32, memory_limit=0) - BASE_BYTES - _buffers(disk)
    usual = streamed_bytes(disk, 32) - BASE_BYTES - _buffers(disk)
    whole = BASE_BYTES + N_BUFFERS * (16 << 20)
    assert whole + 20_000_000 * per_node // disk.n_nodes < 6e9 < whole + 20_000_000 * usual // disk.n_nodes


def test_mixtures_of_many_vectors_take_the_memory_of_their_columns(large):
    """3 log2 400 columns and the null vector, not 400."""
    disk = open_store(large)
    graph = disk.in_memory()
    for estimate, of in ((resident_bytes, graph), (streamed_bytes, disk)):
        few = estimate(of, 400, "compressive") - estimate(of, 27, "compressive")
        assert 0 < few < 4 * 8 * 6 * 14 * graph.n_nodes
        assert estimate(of, 400, "compressive") < estimate(of, 400) / 3
    limit = resident_bytes(graph, 400) // 2
    with pytest.raises(GraphError, match="too little for 400 vectors"):
        check_limit(graph, 400, limit)
    check_limit(graph, 400, limit, "compressive")


def test_estimators_pass_their_limit_on(tmp_path):
    graph = datasets.make_block_model(700, 3, random_state=0).graph
    model = SpectralClustering(3, memory_limit="2GB", random_state=0).fit(graph)
    assert make_settings(model, 700).memory_limit == 2_000_000_000
