"""Predicted seconds of plans over a disk and on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from spectrograd import datasets, open_store
from spectrograd.cli import main
from spectrograd.engines import LocalEngine
from spectrograd.engines.base import Cost
from spectrograd.operators.composite import SumOperator
from spectrograd.operators.laplacian import laplacian, masked_laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.few_pass_cost import COSTS, DISK_BANDWIDTH, NETWORK_BANDWIDTH, predicted_seconds
from spectrograd.pipeline.plan import plan
from spectrograd.solvers import Problem
from spectrograd.store import StoredGraph
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest


@dataclass(frozen=True)
class Remote(LocalEngine):
    """An engine with rounds of a hundredth of a second."""

    cost: ClassVar[Cost] = Cost(per_round=0.01)
    is_distributed: ClassVar[bool] = True


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    graph = datasets.make_block_model(6000, 4, mean_degree=20, random_state=0).graph
    path = tmp_path_factory.mktemp("few") / "graph.store"
    ingest(path, GraphSource(graph), IngestSettings(block_bytes=1 << 17))
    return path


def over(graph, engine=None):
    return Problem(masked_laplacian(graph, "random_walk", 0.0, graph.isolated), 4, engine or LocalEngine())


def test_a_plan_over_a_disk_has_predicted_seconds_and_the_quickest_first(path):
    graph = open_store(path)
    choices = plan(over(graph))
    assert [choice.name for choice in choices[:2]] == ["lanczos", "chebyshev"]
    assert 0 < choices[0].seconds < choices[1].seconds
    result = embed(graph, Settings(n_components=4, seed=0))
    assert result.attempts[0].predicted_seconds == choices[0].seconds


def test_blocks_that_stay_in_memory_are_not_read(path, monkeypatch):
    whole = open_store(path)
    n_bytes = sum(block.n_bytes for block in whole.meta.blocks)
    assert whole.bytes_from_disk == n_bytes
    largest = max(block.n_bytes for block in whole.meta.blocks)
    half = open_store(path, memory_limit=3 * largest + n_bytes // 2)
    assert 0 < half.bytes_from_disk < n_bytes
    read = []
    for _ in range(2):  # the second pass is one like all after it
        before = half.bytes_read
        assert sum(len(block.indices) for block in half.blocks) == half.n_entries
        read.append(half.bytes_read - before)
    assert read == [n_bytes, half.bytes_from_disk]
    # a disk so slow that reading is all there is
    monkeypatch.setattr("spectrograd.pipeline.few_pass_cost.DISK_BANDWIDTH", DISK_BANDWIDTH / 1e6)
    seconds = [predicted_seconds("lanczos", over(graph), 10) for graph in (whole, half)]
    assert seconds[1] / seconds[0] == pytest.approx(half.bytes_from_disk / n_bytes)


def test_rounds_and_bytes_of_a_cluster_are_counted():
    operator = laplacian(datasets.make_block_model(3000, 4, random_state=0).graph)
    here, there = (
        predicted_seconds("chebyshev", Problem(operator, 4, engine), 10)
        for engine in (LocalEngine(), Remote())
    )
    cost = COSTS["chebyshev"]
    messages = cost.passes * (cost.rounds * 0.01 + 4 * 3000 * 18 / NETWORK_BANDWIDTH)
    assert there - here == pytest.approx(messages, rel=1e-9)


def test_what_has_no_edges_of_its_own_has_no_prediction():
    graphs = [datasets.make_block_model(300, 3, random_state=seed).graph for seed in (0, 1)]
    mean = SumOperator(tuple(laplacian(graph, "symmetric") for graph in graphs), (0.5, 0.5))
    problem = Problem(mean, 3, LocalEngine())
    assert predicted_seconds("lanczos", problem, 8) is None


def test_a_dry_run_of_a_store_says_how_long(path, capsys):
    graph = open_store(path)
    assert isinstance(graph, StoredGraph)
    least = "250MB"
    assert main(["cluster", str(path), "-k", "4", "--dry-run", "--memory-limit", least]) == 0
    assert "time     about" in capsys.readouterr().out
