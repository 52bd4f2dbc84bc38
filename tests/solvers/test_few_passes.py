"""Where passes are expensive, solvers take few of them, and none only to measure."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest

from spectrograd import Graph, GraphWarning, datasets, open_store, write_graph
from spectrograd.certificate.block_probe import PROBE_COLUMNS, new_probe_block
from spectrograd.engines import LocalEngine, local
from spectrograd.kernels import SUM_BLOCK
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.linalg.chebyshev_filter import Filter, FilteredSingularValues, Filtering
from spectrograd.operators.laplacian import laplacian, masked_laplacian
from spectrograd.pipeline import Settings, embed
from spectrograd.solvers import Problem, solve
from spectrograd.solvers.chebyshev_few_passes import MAX_PASSES, FewPassChebyshev
from spectrograd.solvers.ritz import usual_width
from spectrograd.solvers.settings import RunContext
from spectrograd.store.edge_batches import GraphSource, IngestSettings
from spectrograd.store.ingest import ingest
from spectrograd.store.reader import N_BUFFERS

ENGINE = LocalEngine()


def planted(n_nodes=6_000):
    """Six clusters with half of the edges inside, and degrees with a tail."""
    made = datasets.make_block_model
    return made(n_nodes, 6, mean_degree=40, mixing=0.5, degree_exponent=2.5, random_state=0).graph


def with_trees():
    """The same with a chain of three nodes on every thirtieth: eigenvectors that live there come first."""
    graph = planted()
    matrix, n = graph.matrix.tocoo(), graph.n_nodes
    upper, roots = matrix.row < matrix.col, np.arange(0, n, 30)
    chain = n + np.arange(3 * len(roots)).reshape(-1, 3)
    ends = [(roots, chain[:, 0]), (chain[:, 0], chain[:, 1]), (chain[:, 1], chain[:, 2])]
    source = np.concatenate([matrix.row[upper], *(a for a, _ in ends)])
    target = np.concatenate([matrix.col[upper], *(b for _, b in ends)])
    return Graph.from_edges(source, target, n_nodes=n + chain.size)


def on_disk(path, graph):
    write_graph(path / "graph.store", graph)
    return open_store(path / "graph.store")


@pytest.mark.parametrize(
    ("solver", "params", "most"),
    [("auto", {}, 14), ("lanczos", {}, 13), ("sgd", {"epochs": 3, "polish": True}, 13)],
)
def test_a_certified_solve_takes_few_sweeps(tmp_path, solver, params, most):
    """All that were read from the disk are told, and those of the certificate are among them."""
    graph = on_disk(tmp_path, planted())
    result = embed(graph, Settings(n_components=6, solver=solver, params=params, seed=0))
    assert result.certificate.converged
    assert result.certificate.missed_probability <= 1e-3
    assert graph.passes <= most
    assert result.passes == pytest.approx(graph.passes)
    assert result.matvecs >= 6 * (result.passes - 3)


def test_localised_vectors_are_noticed_in_the_first_cycle(tmp_path):
    graph = on_disk(tmp_path, with_trees())
    result = embed(graph, Settings(n_components=6, seed=0))
    assert result.regularization.tau > 0
    assert result.certificate.converged
    assert graph.passes <= 20  # four of block Krylov, then the regularised problem
    assert "given up" in result.attempts[0].outcome


def test_a_cycle_that_ends_early_changes_nothing_where_nobody_watches(tmp_path):
    """Without a choice of tau the vectors are wanted as they are, localised or not."""
    graph = on_disk(tmp_path, with_trees())
    settings = Settings(n_components=6, seed=0, regularization=None, solver="lanczos", max_iter=40)
    result = embed(graph, settings)
    assert result.certificate.converged
    exact = embed(with_trees(), replace(settings, solver="shift-invert"))
    np.testing.assert_allclose(result.eigenvalues, exact.eigenvalues, atol=1e-4)


def test_a_filter_over_a_stream_has_two_multivectors_and_what_it_would_return(tmp_path, monkeypatch):
    """Turned in their place; the plan of a memory limit counts on it."""
    monkeypatch.setattr(local, "ROW_CHUNK", 4096)
    path, k = tmp_path / "graph.store", 6
    ingest(path, GraphSource(planted(60_000)), IngestSettings(block_bytes=1 << 18))
    graph = open_store(path)
    # blocks that numpy combines are copied in float64, 8 MB at most: here all count as large
    engine = LocalEngine(thresholds=Thresholds(small=0, block=0))
    problem = Problem(laplacian(graph), k, engine)
    solver = FewPassChebyshev(angle=0.01)
    solve(problem, solver, seed=0)  # compiled, and its buffers made
    tracemalloc.start()
    solve(problem, solver, seed=0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    columns = 2 * (usual_width(k) + PROBE_COLUMNS) + k
    buffers = N_BUFFERS * max(block.n_bytes for block in graph.meta.blocks)
    assert (
        most < 4 * graph.n_nodes * (columns + 8) + buffers
    )  # a few single vectors; a third multivector has 20


def test_a_filter_gives_in_where_there_is_no_gap(tmp_path):
    """Passes are expensive; ``max_iter`` asks for more of them."""
    graph = on_disk(
        tmp_path, datasets.make_block_model(6_000, 5, mean_degree=20, mixing=0.8, random_state=1).graph
    )
    problem = Problem(laplacian(graph), 5, ENGINE)
    given_in = solve(problem, FewPassChebyshev(angle=0.01), seed=0)
    assert graph.passes < MAX_PASSES + FewPassChebyshev.degree
    assert "max_iter asks for more" in given_in.last.events[-1]
    for more in (FewPassChebyshev(angle=0.01, max_iter=12), FewPassChebyshev(max_iter=12)):
        assert not any("asks for more" in event for event in solve(problem, more, seed=0).last.events)


def test_an_interrupted_filter_returns_what_was_kept(tmp_path):
    graph, k = on_disk(tmp_path, planted()), 6
    problem, solver = Problem(laplacian(graph), k, ENGINE), FewPassChebyshev(angle=1e-6, precision="single")
    state = solver.init(problem, np.random.default_rng(0))
    state = solver.step(problem, state)
    before = solver.finish(problem, state).copy()
    kept = solver.snapshot(problem, state)
    solver.step(problem, state)
    np.testing.assert_array_equal(solver.finish(problem, kept), before)
    assert solver.evidence(problem, kept).last is None
    assert solver.complement_bound(problem, kept) is None


def test_sweeps_are_counted_in_memory_too():
    engine = LocalEngine()
    settings = Settings(n_components=6, solver="chebyshev", seed=0)
    context = RunContext(engine)
    result = embed(planted(), settings, context)
    assert (result.passes, result.matvecs) == (engine.work.passes, engine.work.matvecs)
    assert 0 < result.passes < result.matvecs


def test_turning_columns_on_the_way_changes_neither_span_nor_estimate():
    """Columns of very different length are made even; what is measured of them is undone."""
    operator, rng = laplacian(planted(5_000)).random_walk_form(), np.random.default_rng(0)
    X = rng.standard_normal((5_000, 9), dtype=np.float32)
    plain, combine_inplace = (Filtering(Filter(6, 0.7, 1.3), ENGINE, operator, X) for _ in range(2))
    sizes, straight = FilteredSingularValues(9), FilteredSingularValues(9)
    for degree in range(6):
        for work, seen in ((plain, straight), (combine_inplace, sizes)):
            work.advance()
            seen.measure(ENGINE.gram(work.current, work.current, operator.metric))
        if degree in (2, 4):
            combine_inplace.rotate(sizes.even_out())
    assert sizes.error(6) == pytest.approx(straight.error(6), rel=1e-3)
    Q, _ = np.linalg.qr(plain.current)
    outside = combine_inplace.current - Q @ (Q.T @ combine_inplace.current)
    assert (
        np.linalg.norm(outside, axis=0).max() < 1e-3 * np.linalg.norm(combine_inplace.current, axis=0).min()
    )


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_the_null_vector_of_a_laplacian_is_known(kind, tau):
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        graph = Graph.from_edges(rng.integers(0, 40, 200), rng.integers(0, 40, 200), n_nodes=45)
    operator = masked_laplacian(graph, kind, tau, np.flatnonzero(graph.degrees == 0))
    for form in (operator, operator.random_walk_form(), operator.standard_form()):
        vector = form.null_vector
        assert vector is not None
        assert np.abs(form @ vector[:, None]).max() < 1e-12 * np.abs(vector).max() * form.upper
        assert np.all(vector[operator.excluded_rows] == 0)
    X = new_probe_block(ENGINE, operator.random_walk_form(), rng, np.float64).X
    assert np.all(X[operator.excluded_rows] == 0)


def test_a_null_vector_is_not_invented():
    operator = laplacian(planted(5_000))
    assert replace(operator, diagonal=operator.diagonal + 0.01).null_vector is None


def test_long_rows_keep_their_digits_in_single_precision():
    """A hub with 60,000 neighbours, whose numbers have one sign: the worst case of a sum in float32."""
    n = 60_000
    hub = Graph.from_edges(np.zeros(n, np.int64), np.arange(1, n + 1))
    operator = laplacian(hub, "unnormalized")
    X = np.full((n + 1, 12), 0.1, np.float32)
    X[0] = 0
    exact = -np.float64(np.float32(0.1)) * n
    found = ENGINE.apply(operator, X)[0].astype(np.float64)
    # Higham's bound on a sum in pieces, whatever the processor's vectors do; one by one: 5.8e-4
    bound = (SUM_BLOCK + n / SUM_BLOCK) * np.finfo(np.float32).eps / 2
    assert np.abs(found / exact - 1).max() < bound
    assert operator.rounding(np.float32, blocked=True) < operator.rounding(np.float32) / 50
