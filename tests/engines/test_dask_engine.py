"""The Dask engine on real worker processes over TCP: the contract of engines, and results as on ``local``."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp

distributed = pytest.importorskip("distributed")

import test_engines as contract

from spectrograd import (
    MultilayerGraph,
    datasets,
    metrics,
    write_graph,
)
from spectrograd.engines import make_engine
from spectrograd.engines.dask import engine as dask_engine
from spectrograd.engines.dask import partition as cutting
from spectrograd.engines.dask import session as connect
from spectrograd.engines.dask import tasks
from spectrograd.engines.dask.engine import DaskEngine
from spectrograd.engines.dask.multivector import distribute_graph
from spectrograd.engines.dask.session import (
    EngineError,
    Step,
    reassign_blocks,
)
from spectrograd.graph import (
    Graph,
    GraphError,
)
from spectrograd.graph.features import feature_graph
from spectrograd.operators.base import CapabilityError
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import (
    Settings,
    cluster,
    embed,
)
from spectrograd.solvers import (
    Problem,
    make_solver,
    solve,
)
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import (
    GraphSource,
    IngestSettings,
)
from spectrograd.store.ingest import ingest
from spectrograd.store.stored_graph import (
    StoredGraph,
    open_store,
)

graphs = contract.graphs


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        distributed.Client(workers, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def engine(client):
    return make_engine(client)


# --- the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize(
    ("kind", "where"), [("random_walk", "whole"), ("symmetric", "seven"), ("unnormalized", "stream")]
)
def test_products(engine, graphs, kind, where, tau):
    contract.test_products(engine, graphs, kind, where, tau)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_recurrence_and_residuals(engine, graphs, dtype):
    contract.test_a_recurrence_and_residuals(engine, graphs, dtype)


def test_the_other_verbs(engine, graphs):
    contract.test_algebra_and_rows(engine)
    contract.test_statistics(engine, True)
    contract.test_multivectors_that_share_a_pass_are_of_one_type(engine, graphs)
    contract.test_localised_vectors_are_judged_on_every_engine(engine, graphs)
    drawn = engine.to_numpy(engine.random(9000, 2, 5, np.float32))
    np.testing.assert_array_equal(drawn, contract.gaussian_rows(0, 9000, 2, 5, np.float32))


@pytest.mark.parametrize("name", contract.ANYWHERE)
def test_a_solver_for_every_engine(engine, graphs, name):
    contract.test_a_solver_for_every_engine(engine, graphs, name, "whole", "symmetric")


# --- the same results as on local -----------------------------------------------------------------------


def sine(found, expected):
    """Of the largest angle between two subspaces, both orthonormal after this."""
    Q, P = (np.linalg.qr(vectors)[0] for vectors in (found, expected))
    return np.linalg.norm(Q - P @ (P.T @ Q), 2)


def three_layers():
    """Of the same clusters: where layers contradict each other, so do runs of k-means."""
    layers = []
    for seed in (0, 1, 2):
        data = datasets.make_block_model(1500, 3, random_state=seed)
        order = np.argsort(data.labels, kind="stable")
        layers.append(Graph.from_matrix(data.graph.matrix[order][:, order]))
    return MultilayerGraph(tuple(layers), ("a", "b", "c"))


def neighbours():
    from spectrograd.points.knn_graph import knn_graph

    rng = np.random.default_rng(0)
    points = np.repeat(3.5 * np.eye(4, 8), 300, axis=0) + rng.standard_normal((1200, 8))
    return knn_graph(points, 15)


def blocks():
    return datasets.make_block_model(10_000, 4, random_state=0).graph  # large enough for compiled kernels


CASES = {"blocks": blocks, "neighbours": neighbours, "layers": three_layers}


@pytest.mark.parametrize("case", CASES)
def test_the_same_subspace_and_labels_as_local(client, case):
    graph = CASES[case]()
    k = 3 if case == "layers" else 4
    how = {"n_components": k, "n_clusters": k, "tol": 1e-8, "seed": 0, "solver": "chebyshev"}
    how["aggregation"] = "projection"  # "auto" compares merges on this machine only
    far, near = (cluster(graph, Settings(**how), RunContext(make_engine(name))) for name in (client, "local"))
    assert sine(far.vectors, near.vectors) < 1e-3
    assert metrics.score(near.labels, far.labels)["ari"] >= 0.99
    assert far.certificate.converged
    assert far.passes > 0  # there was something to solve


def test_many_clusters_from_few_columns(client):
    """``compressive`` needs the verbs of an engine alone."""
    data = datasets.make_block_model(3000, 60, random_state=0)
    settings = Settings(n_components=60, solver="compressive", seed=0, regularization=None)
    result = cluster(data.graph, settings, RunContext(make_engine(client)))
    assert metrics.score(data.labels, result.labels)["ari"] > 0.95
    assert result.certificate.mixed.is_good


@pytest.mark.parametrize("n_blocks", [1, 3, 7])
def test_any_number_of_blocks_gives_the_same_product(client, n_blocks):
    graph = datasets.make_block_model(500, 3, random_state=0).graph
    engine = DaskEngine(client)
    engine.session.n_blocks = n_blocks
    engine.session.owners = []
    engine.session.map_owners()
    rows = np.random.default_rng(0).standard_normal((500, 3))
    product = engine.to_numpy(engine.apply(engine.load_operator(laplacian(graph)), engine.from_numpy(rows)))
    np.testing.assert_allclose(product, laplacian(graph).to_dense() @ rows, atol=1e-12)


def test_a_sweep_of_one_task_has_the_bits_of_one_of_many(client, monkeypatch):
    graph, found = datasets.make_block_model(5000, 3, random_state=0).graph, []
    for most in (dask_engine.MAX_FUSED_BYTES, 0):
        monkeypatch.setattr(dask_engine, "MAX_FUSED_BYTES", most)
        engine = make_engine(client)
        placed, X = (
            engine.load_operator(laplacian(graph).random_walk_form()),
            engine.random(5000, 4, 0, np.float32),
        )
        moved = engine.recurrence(placed, X, X, (1.0, 0.5, 0.25))
        found.append((engine.to_numpy(engine.apply(placed, moved)), engine.session.tasks))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] <= found[1][1] - 8  # two sweeps, two blocks: neighbours and sum


def test_what_nobody_can_change_is_put_once(engine):
    vector = np.arange(10.0)
    assert engine.from_numpy(vector[:, None]) is not engine.from_numpy(vector[:, None])
    vector.flags.writeable = False
    first = engine.from_numpy(vector[:, None])
    assert engine.from_numpy(vector[:, None]) is first
    assert engine.from_numpy(vector[:5, None]) is not first


# --- what travels -----------------------------------------------------------------------------------------


def ring(n_nodes):
    return Graph.from_edges(np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes, n_nodes=n_nodes)


@pytest.mark.parametrize(
    ("graph", "share"),
    [(lambda: datasets.make_block_model(4000, 3, random_state=0).graph, 1.0), (lambda: ring(4000), 0.001)],
)
def test_bytes_that_move_are_those_of_the_model(client, graph, share):
    """(workers - 1) N k bytes per number, times the share of rows that are touched where it is small."""
    engine = make_engine(client)
    placed, X = engine.load_operator(laplacian(graph())), engine.random(4000, 12, 0, np.float32)
    engine.gram(X, X)
    before = engine.bytes_moved()
    for _ in range(6):
        X = engine.apply(placed, X)
    engine.gram(X, X)
    measured = (engine.bytes_moved() - before) / 6
    expected = placed.graph.bytes_per_pass(12, np.float32)
    assert expected == pytest.approx((2 - 1) * 4000 * 12 * 4 * share, rel=0.02)
    assert measured == pytest.approx(expected, rel=0.2, abs=3000)  # Gram matrices and headers
    summary = engine.summary()
    assert summary["rounds"] == 3  # what has to travel, and two Gram matrices
    assert summary["tasks"] <= 12 + 8 * 6  # with halos; else one for each block and sweep
    assert summary["bytes_moved"] >= 6 * measured
    assert summary["workers"] == 2


def test_no_idle_worker_takes_a_task_away_from_its_rows(client):
    """Rows of other blocks, and the block itself, would be sent after it."""
    session = make_engine(client).session

    def slow_address(number):
        time.sleep(0.05)
        return tasks.address()

    steps = [Step("slow", slow_address, (number,), 0) for number in range(40)]
    assert set(session.results(steps)) == {session.owners[0]}


def at_once(steps):
    """What steps give, without a cluster."""
    return [
        step.function(*(at_once([a])[0] if isinstance(a, Step) else a for a in step.arguments))
        for step in steps
    ]


def test_only_touched_rows_travel_from_a_cut_of_a_graph():
    graph = ring(100)
    placed = distribute_graph(graph, cutting.balanced_bounds(graph, 4), at_once)
    assert placed.n_sent.tolist() == [[25, 1, 0, 1], [1, 25, 1, 0], [0, 1, 25, 1], [1, 0, 1, 25]]
    assert len(at_once(placed.rows[:1])[0].parts) == 3
    assert at_once([placed.touched[0, 3]])[0].tolist() == [24]


def test_streams_are_cut_like_graphs_in_memory(graphs):
    bounds = cutting.even_bounds(contract.N, 3)
    for at in range(3):
        rows = (graphs[name].rows_between(bounds[at], bounds[at + 1]) for name in ("whole", "stream"))
        one, other = (cutting.cut(blocks, bounds, at) for blocks in rows)
        for j, part in one.parts.items():
            np.testing.assert_array_equal(part.indices, other.parts[j].indices)
            np.testing.assert_array_equal(part.weights, other.parts[j].weights)


# --- stores -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_features_lie_in_blocks_on_the_workers(client, form):
    rng = np.random.default_rng(0)
    Z = rng.random((300, 40)) * (rng.random((300, 40)) < 0.2)
    graph = feature_graph(sp.csr_array(Z) if form == "sparse" else Z)
    here, there = (
        embed(graph, Settings(n_components=3, seed=0), RunContext(engine=make_engine(name)))
        for name in ("local", client)
    )
    assert there.converged
    assert np.allclose(here.eigenvalues, there.eigenvalues, atol=1e-8)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A graph of several blocks on disk, with weights and nodes without edges."""
    graph = datasets.make_block_model(6000, 3, random_state=0).graph
    entries = graph.matrix.tocoo()
    weights = 1 + (entries.row + entries.col) % 3 / 4
    path = tmp_path_factory.mktemp("stores") / "graph.store"
    graph = Graph.from_edges(entries.row, entries.col, weights, n_nodes=6010)
    ingest(path, GraphSource(graph), IngestSettings(block_bytes=50_000))
    return open_store(path)


@pytest.mark.parametrize("kind", ["path", "url"])
def test_workers_read_their_rows_from_a_store(client, stored, kind):
    stored = stored if kind == "path" else open_store(f"file://{stored.store.path}")
    before, rows = stored.bytes_read, np.random.default_rng(0).standard_normal((6010, 3))
    engine = make_engine(client)
    operator = laplacian(stored, allow_isolated=True)
    product = engine.to_numpy(engine.apply(engine.load_operator(operator), engine.from_numpy(rows)))
    read_here = stored.bytes_read - before
    assert read_here <= 8 * 6010  # degrees: no block was read by the client
    expected = make_engine("local").apply(operator, rows)
    np.testing.assert_allclose(product, expected, atol=1e-12)


def test_rows_that_workers_cannot_keep_are_streamed(client, stored, monkeypatch):
    engine = make_engine(client)
    info = {"workers": {"tcp://small": {"memory_limit": 4000}}}
    monkeypatch.setattr(engine.client, "scheduler_info", lambda n_workers: info)
    operator = laplacian(stored, allow_isolated=True)
    placed, rows = engine.load_operator(operator), np.random.default_rng(0).standard_normal((6010, 3))
    assert placed.graph.streamed
    product = engine.to_numpy(engine.apply(placed, engine.from_numpy(rows)))
    np.testing.assert_allclose(product, make_engine("local").apply(operator, rows), atol=1e-12)
    how = {"n_components": 3, "n_clusters": 3, "seed": 0, "solver": "chebyshev"}
    found = cluster(stored, Settings(**how), RunContext(engine))
    assert found.certificate.converged
    here = cluster(stored, Settings(**how), RunContext(make_engine("local")))
    assert metrics.score(here.labels, found.labels)["ari"] > 0.99


def test_a_dask_dataframe_becomes_a_store(client, tmp_path):
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    graph = datasets.make_block_model(500, 3, random_state=0).graph
    entries = graph.matrix.tocoo()
    once = entries.row < entries.col
    table = pandas.DataFrame({"src": entries.row[once], "dst": entries.col[once]})
    with client.as_current():
        write_graph(tmp_path / "g.store", frames.from_pandas(table, npartitions=4))
    found = open_store(tmp_path / "g.store").in_memory()
    assert (found.matrix != graph.matrix).nnz == 0
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["g.store"]


def test_a_store_that_a_worker_does_not_see_is_named_with_the_worker(client, stored, tmp_path):
    lost = StoredGraph(stored.store, 0)
    lost.store.path, before = tmp_path / "elsewhere", stored.store.path
    try:
        with pytest.raises(GraphError, match=r"worker tcp://.*elsewhere.*same path on all of them"):
            make_engine(client).load_operator(laplacian(lost, allow_isolated=True))
    finally:
        stored.store.path = before


def test_futures_are_released_at_once_and_history_is_cut(client):
    engine = DaskEngine(client, settle_after=4)
    placed, X = engine.load_operator(laplacian(ring(50))), engine.random(50, 2, 0, np.float64)
    for _ in range(11):
        X = engine.apply(placed, X)
    engine.gram(X, X)
    live = [
        step
        for multivector in engine.session.multivectors
        for step in multivector.steps
        if step.future is not None
    ]
    assert len(engine.session.multivectors) <= 5
    assert len(live) <= 10
    depth, steps = 0, list(X.steps)
    while steps:
        depth, steps = depth + 1, [other for step in steps for other in step.inputs]
        assert depth < 40


# --- refusals ---------------------------------------------------------------------------------------------


def test_owners_stay_and_share():
    assert reassign_blocks(["a", "b", "c"], ["a", "c"], 3) == ["a", "a", "c"]
    assert reassign_blocks(["a", "a", "c"], ["a", "b", "c"], 3) == ["b", "a", "c"]
    assert sorted(reassign_blocks(["a"] * 6, ["a", "b", "c"], 6)) == ["a", "a", "b", "b", "c", "c"]


def test_another_version_of_the_package_is_refused(client, monkeypatch):
    monkeypatch.setattr("spectrograd.__version__", "0.0.1")
    with pytest.raises(EngineError, match=r"has spectrograd .*, the client 0\.0\.1: install the same"):
        make_engine(client)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("dask:0", ValueError, "expected 'dask', 'dask:4' or"),
        ("dask:host", ValueError, "expected 'dask', 'dask:4' or"),
        (4, ValueError, "expected a name or a dask.distributed.Client"),
        ("dask:tcp://127.0.0.1:9", EngineError, "no Dask scheduler answers at tcp://127.0.0.1:9"),
        ("dask", EngineError, "needs a client"),
    ],
)
def test_engines_that_are_not_there(name, error, said, monkeypatch):
    if name == "dask":
        monkeypatch.setattr(distributed, "get_client", lambda: (_ for _ in ()).throw(ValueError("none")))
    with pytest.raises(error, match=said):
        DaskEngine(name, timeout=0.5)


def test_a_local_cluster_has_as_many_workers_as_were_asked_for():
    engine = DaskEngine("dask:3")
    assert engine.session.n_blocks == len(engine.client.nthreads()) == 3
    connect._clients.pop("3").cluster.close()


def test_solvers_that_need_edges_at_hand_are_refused(engine, graphs):
    with pytest.raises(CapabilityError, match="'sgd' needs resident"):
        solve(Problem(laplacian(graphs["whole"]), 3, engine), make_solver("sgd"))


def test_blocks_that_workers_cannot_hold_are_refused(engine, graphs, monkeypatch):
    info = {"workers": {"tcp://small": {"memory_limit": 4000}}}
    monkeypatch.setattr(engine.client, "scheduler_info", lambda n_workers: info)
    with pytest.raises(EngineError, match=r"tcp://small may use .* a row block takes"):
        engine.load_operator(laplacian(graphs["whole"]))


@pytest.mark.parametrize("answer", [{}, OSError("Timed out")])
def test_a_scheduler_that_is_killed_is_named(client, graphs, monkeypatch, answer):
    """Dask's client then has nothing to say of workers, or does not reach the scheduler."""

    def scheduler_info(n_workers):
        if isinstance(answer, OSError):
            raise answer
        return answer

    engine = make_engine(client)
    monkeypatch.setattr(engine.client, "scheduler_info", scheduler_info)
    with pytest.raises(EngineError, match=r"^the scheduler tcp://\S+ is gone: start it and its workers"):
        engine.load_operator(laplacian(graphs["whole"]))


def test_auto_takes_few_wide_passes(client):
    graph = datasets.make_block_model(5000, 4, random_state=0).graph
    assert embed(graph, Settings(n_components=4, seed=0), RunContext(make_engine(client))).solver == "lanczos"


# --- doors ------------------------------------------------------------------------------------------------


def test_the_current_client_serves_the_estimators(client):
    from sklearn.base import clone

    from spectrograd import SpectralClustering

    data = datasets.make_block_model(600, 3, random_state=0)
    model = SpectralClustering(3, affinity="precomputed", engine="dask", random_state=0)
    with client.as_current():
        labels = clone(model).fit(data.graph.matrix).labels_
    assert metrics.score(data.labels, labels)["ari"] > 0.99


def test_commands_take_an_engine_and_tell_what_moved(client, tmp_path):
    import json

    from spectrograd.cli import main

    graph = datasets.make_block_model(300, 2, random_state=0).graph
    rows, columns = graph.matrix.nonzero()
    edges, told = tmp_path / "edges.csv", tmp_path / "told.json"
    pairs = [f"{a},{b}" for a, b in zip(rows, columns, strict=True) if a < b]
    edges.write_text("src,dst\n" + "\n".join(pairs))
    where = f"dask:{client.scheduler.address}"
    given = ["cluster", str(edges), "-k", "2", "-o", str(tmp_path / "l.csv"), "--summary-json", str(told)]
    assert main([*given, "--engine", where, "-q"]) == 0
    connect._clients.pop(where.partition(":")[2]).close()
    engine = json.loads(told.read_text())["engine"]
    assert engine["name"] == "dask"
    assert engine["bytes_per_pass"] > 0
    assert main([*given, "--engine", "quantum", "-q"]) == 2


def test_a_basis_is_orthogonalised_in_three_rounds(engine):
    """Two of Gram matrices with all its multivectors at once, and one of what is left."""
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((3000, 14)))[0].T
    basis = engine.basis(3000, 16, np.float64)
    for first, last in ((0, 8), (8, 12), (12, 14)):  # widths fall by half: none are joined
        basis.append(engine.from_numpy(rows[first:last].T))
    new = rng.standard_normal((3000, 2))
    basis.append(engine.from_numpy(new))
    before = engine.summary()
    coefficients, inner = basis.orthogonalize(8, 14)
    after = engine.summary()
    rest = new - rows.T @ (rows @ new)
    np.testing.assert_allclose(coefficients, rows @ new, atol=1e-12)
    np.testing.assert_allclose(inner, rest.T @ rest, rtol=1e-12)
    np.testing.assert_allclose(engine.to_numpy(basis.columns(14, 16)), rest, atol=1e-12)
    assert after["rounds"] - before["rounds"] == 3
    assert after["tasks"] - before["tasks"] <= 2 * (5 + 4)
