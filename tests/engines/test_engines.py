"""The contract of engines: every verb on all of them, and every solver that claims to run anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import RefusingEngine, RefusingMultiVector, cut
from threadpoolctl import threadpool_limits

import reference
from spectrograd import datasets
from spectrograd.certificate.lanczos_probe import run_lanczos_probe
from spectrograd.certificate.localization import decide_regularization, participation
from spectrograd.engines import LocalEngine, NumpyEngine, make_engine
from spectrograd.engines.base import gaussian_rows
from spectrograd.linalg.subspace import orthonormalize, rayleigh_ritz
from spectrograd.operators.laplacian import laplacian, regularized_laplacian
from spectrograd.pipeline import cluster
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, Stopping, make_solver, solve
from spectrograd.solvers.settings import RunContext

N, K = 410, 3
ENGINES = {
    "numpy": NumpyEngine,
    "local": LocalEngine,
    "refusing": RefusingEngine,
    "torch": lambda: make_engine("torch:cpu"),
}
ANYWHERE = ["lanczos", "chebyshev", "power", "gradient-descent", "forward-backward"]
GRAPHS = ["whole", "seven", "stream"]


@pytest.fixture(scope="module")
def graphs():
    """A weighted block model as one block, as seven, and as a stream of seven."""
    graph = datasets.make_block_model(N, K, random_state=0).graph
    W = graph.matrix
    W = W.multiply(np.add.outer(np.arange(N) % 5 + 1.0, np.arange(N) % 5 + 1.0) / 4)
    graph = type(graph).from_matrix(W)
    return {"whole": graph, "seven": cut(graph, 7), "stream": cut(graph, 7, streamed=True)}


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "torch":
        pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
    return ENGINES[request.param]()


# --- verbs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("where", GRAPHS)
@pytest.mark.parametrize("tau", [0.0, 0.2])
def test_products(engine, graphs, kind, where, tau):
    operator = regularized_laplacian(graphs[where], kind, tau)
    dense = regularized_laplacian(graphs["whole"], kind, tau).to_dense()
    rows = np.random.default_rng(0).standard_normal((N, 5))
    placed, X = engine.load_operator(operator), engine.from_numpy(rows)
    np.testing.assert_allclose(engine.to_numpy(engine.apply(placed, X)), dense @ rows, atol=1e-9)
    single = engine.apply(placed, engine.astype(X, np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(engine.to_numpy(single), dense @ rows, rtol=1e-4, atol=2e-3)
    first, second = engine.apply(placed, X, engine.columns(X, slice(1, 3)))
    np.testing.assert_allclose(engine.to_numpy(second), engine.to_numpy(first)[:, 1:3], atol=1e-12)
    assert engine.work.passes == 3
    assert engine.work.matvecs == 5 + 5 + 7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_recurrence_and_residuals(engine, graphs, dtype):
    operator = regularized_laplacian(graphs["seven"], "random_walk", 0.1)
    A, b = operator.to_dense(), operator.metric[:, None]
    rows = np.random.default_rng(1).standard_normal((2, N, 4)).astype(dtype)
    placed, (X, Y) = engine.load_operator(operator), (engine.from_numpy(part) for part in rows)
    found = engine.recurrence(placed, X, Y, (0.5, -0.25, 2.0))
    expected = 0.5 * (A @ rows[0]) / b - 0.25 * rows[0] + 2 * rows[1]
    np.testing.assert_allclose(engine.to_numpy(found), expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert found.dtype == dtype
    values = np.array([0.1, 0.2, 0.3])
    norms = engine.residual(placed, X, engine.apply(placed, X), values)
    rest = A @ rows[0][:, :3] - b * rows[0][:, :3] * values
    np.testing.assert_allclose(norms, np.sqrt((rest**2 / b).sum(axis=0)), rtol=1e-5)


def test_algebra_and_rows(engine):
    rng = np.random.default_rng(2)
    rows, other, metric = rng.standard_normal((N, 4)), rng.standard_normal((N, 2)), rng.random((N, 1)) + 1
    X, Y, C, E = (
        engine.from_numpy(rows),
        engine.from_numpy(other),
        rng.standard_normal((4, 3)),
        rng.standard_normal((2, 3)),
    )
    np.testing.assert_allclose(engine.gram(X, Y), rows.T @ other, atol=1e-10)
    np.testing.assert_allclose(engine.to_numpy(engine.combine(X, C)), rows @ C, atol=1e-12)
    np.testing.assert_allclose(engine.to_numpy(engine.combine(X, C, Y, E)), rows @ C + other @ E, atol=1e-12)
    square, multivector = rng.standard_normal((4, 4)), engine.from_numpy(rows.copy())
    combine_inplace = engine.combine_inplace(multivector, square, Y, np.ones((2, 4)))
    np.testing.assert_allclose(
        engine.to_numpy(combine_inplace), rows @ square + other @ np.ones((2, 4)), atol=1e-12
    )
    np.testing.assert_allclose(engine.to_numpy(engine.hstack(X, Y, X)), np.hstack([rows, other, rows]))
    np.testing.assert_allclose(engine.to_numpy(engine.columns(X, slice(1, 3))), rows[:, 1:3])
    np.testing.assert_allclose(
        engine.to_numpy(engine.scale_rows(X, engine.from_numpy(metric))), rows * metric
    )
    chosen = np.array([7, 3, 400])
    np.testing.assert_array_equal(engine.to_numpy(X, chosen), rows[chosen])
    spread = engine.to_numpy(engine.scatter_rows(engine.from_numpy(rows[chosen]), chosen, N))
    np.testing.assert_array_equal(spread[chosen], rows[chosen])
    assert np.count_nonzero(spread) == 12
    assert engine.astype(X, np.float32).dtype == np.float32


@pytest.mark.parametrize("with_metric", [False, True])
def test_statistics(engine, with_metric):
    rng = np.random.default_rng(3)
    rows, weight = rng.standard_normal((N, 4)) * [1, 1e-100, 1e-3, 1e60], rng.random((N, 1)) + 1
    rows[5] = rows[77] = 9 * np.abs(rows).max(axis=0) * [1, -1, 1, -1]  # of several peaks the first
    mass = weight if with_metric else np.ones((N, 1))
    vector = (
        weight[:, 0] if isinstance(engine, LocalEngine) else engine.from_numpy(weight)
    )  # as it places metrics
    metric = vector if with_metric else None
    found = engine.column_statistics(engine.from_numpy(rows), metric)
    assert found.finite
    np.testing.assert_array_equal(found.peaks, rows[5])
    np.testing.assert_array_equal(found.peak_rows, 5)
    scaled = (rows / np.abs(rows[5])) ** 2
    np.testing.assert_allclose(found.second, (mass * scaled).sum(axis=0))
    np.testing.assert_allclose(found.fourth, (mass * scaled**2).sum(axis=0))
    assert found.mass == pytest.approx(mass.sum())
    rows[9, 2] = np.nan
    assert not engine.column_statistics(engine.from_numpy(rows)).finite


def test_random_numbers_are_the_same_everywhere(engine):
    drawn = engine.to_numpy(engine.random(9000, 2, 5, np.float32))
    np.testing.assert_array_equal(drawn, gaussian_rows(0, 9000, 2, 5, np.float32))
    np.testing.assert_array_equal(drawn[4000:5000], gaussian_rows(4000, 5000, 2, 5, np.float32))
    assert abs(float(drawn.mean())) < 0.03
    assert drawn.std() == pytest.approx(1, abs=0.03)


def test_multivectors_that_share_a_pass_are_of_one_type(engine, graphs):
    placed, X = engine.load_operator(laplacian(graphs["whole"])), engine.from_numpy(np.zeros((N, 1)))
    with pytest.raises(TypeError, match="one type"):
        engine.apply(placed, X, engine.astype(X, np.float32))


def test_the_refusing_engine_refuses():
    multivector = RefusingEngine().from_numpy(np.ones((N, 2)))
    for look in (np.asarray, np.sqrt, len, list, lambda X: X + 1, lambda X: X[0], lambda X: X @ np.eye(2)):
        with pytest.raises((AssertionError, TypeError)):
            look(multivector)
    assert isinstance(multivector, RefusingMultiVector)
    with pytest.raises(AssertionError, match="no sample"):
        RefusingEngine().to_numpy(RefusingEngine().from_numpy(np.ones((30_000, 1))), np.arange(25_000))


def test_engines_by_name():
    assert isinstance(make_engine("numpy"), NumpyEngine)
    with pytest.raises(ValueError, match="not available"):
        make_engine("quantum")


# --- solvers, the probe and the certificate -----------------------------------------------------------


@pytest.mark.parametrize("name", ANYWHERE)
@pytest.mark.parametrize(
    ("where", "kind"), [("whole", "random_walk"), ("seven", "symmetric"), ("stream", "random_walk")]
)
def test_a_solver_for_every_engine(engine, graphs, name, where, kind):
    """The same eigenvalues, and nobody has looked into a multivector or gathered one."""
    operator = laplacian(graphs[where], kind)
    expected = reference.smallest(laplacian(graphs["whole"], kind), K)[0]
    problem = Problem(operator, K, engine)
    solution = solve(problem, make_solver(name), stopping=Stopping(tol=1e-4), seed=0)
    assert getattr(engine, "gathers", 0) == 0
    assert solution.stop_reason == "converged"
    found = rayleigh_ritz(engine, problem.engine_operator, solution.Q).values
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "sgd-paper"])
def test_both_sgds_run_where_rows_can_be_moved(engine, graphs, name):
    """In memory and on devices (tests/solvers has their laws there); anywhere else they say so."""
    operator = laplacian(graphs["whole"])
    if isinstance(engine, RefusingEngine | NumpyEngine):
        with pytest.raises(ValueError, match=f"solver '{name}' needs resident.*use 'auto', 'lanczos'"):
            solve(Problem(operator, K, engine), make_solver(name), seed=0)
        return
    solution = solve(Problem(operator, K, engine), make_solver(name, batch_size=200), seed=0)
    first, best = solution.history[0].objective, reference.smallest(operator, K)[0].sum()
    assert solution.last.objective - best < 0.1 * (first - best)
    metric = engine.load_operator(operator).metric
    np.testing.assert_allclose(engine.gram(solution.Q, solution.Q, metric), np.eye(K), atol=1e-8)


@pytest.mark.parametrize("name", ["lanczos", "chebyshev"])
def test_a_certified_embedding_gathers_once(graphs, name):
    engine = RefusingEngine()
    operator = laplacian(graphs["stream"])
    result = embed(operator, K, Settings(solver=name, seed=0), RunContext(engine))
    assert result.certificate.converged
    assert engine.gathers == 1
    local = embed(laplacian(graphs["whole"]), K, Settings(solver=name, seed=0))
    # a stream is swept no more often than the angle asks for: each value is as good as its residual
    apart = np.abs(result.embedding.eigenvalues - local.embedding.eigenvalues).max()
    assert apart <= result.certificate.max_residual + local.certificate.max_residual
    np.testing.assert_allclose(result.embedding.vectors, local.embedding.vectors, atol=1e-3)


def test_the_number_of_clusters_can_be_found_on_any_engine(graphs):
    settings = Settings(n_components="auto", seed=0)
    context = RunContext(RefusingEngine())
    assert cluster(graphs["whole"], settings, context).n_clusters == K


@pytest.mark.parametrize("weight", [1e-30, 1e90])
def test_weights_of_any_size_on_any_engine(graphs, weight):
    heavy = type(graphs["whole"]).from_matrix(graphs["whole"].matrix * weight)
    found = embed(laplacian(heavy), K, Settings(solver="chebyshev", seed=0), RunContext(RefusingEngine()))
    assert found.certificate.converged


def test_the_probe_sees_what_was_skipped_on_every_engine(engine, graphs):
    operator = laplacian(graphs["seven"])
    values, vectors = reference.smallest(laplacian(graphs["whole"]), 4)
    for chosen, missed in (([0, 1, 2], False), ([0, 1, 3], True)):
        Q = orthonormalize(
            engine, engine.from_numpy(vectors[:, chosen]), engine.load_operator(operator).metric
        ).Q
        ritz = rayleigh_ritz(engine, engine.load_operator(operator), Q)
        outside = run_lanczos_probe(engine, operator, ritz, np.random.default_rng(0))
        assert (outside.lowest < float(values[3]) - 0.01) == missed


@pytest.mark.parametrize("start", [False, True])
def test_a_warm_start_on_every_engine(engine, graphs, start):
    operator = laplacian(graphs["whole"])
    guess = reference.smallest(operator, K)[1] if start else None
    if guess is not None:
        guess[:, 1] = guess[:, 0]  # a lost direction is replaced
        guess[3, 2] = np.nan
    solution = solve(
        Problem(operator, K, engine, guess), make_solver("chebyshev"), stopping=Stopping(tol=1e-4), seed=0
    )
    assert solution.last.residual < 1e-4


def test_localised_vectors_are_judged_on_every_engine(engine, graphs):
    operator = laplacian(graphs["whole"])
    vectors = np.column_stack([np.ones(N), np.eye(N)[3], np.eye(N)[5], np.linspace(-1, 1, N)])
    expected = participation(operator, vectors)
    X = engine.from_numpy(vectors)
    np.testing.assert_allclose(participation(operator, X, engine), expected)
    assert decide_regularization(operator, X, engine=engine).tau > 0
    assert getattr(engine, "gathers", 0) == 0


def test_blocks_of_few_numbers_wait_for_no_compiler(monkeypatch):
    for kernel in ("combine", "residual"):
        monkeypatch.setattr(f"spectrograd.kernels.multivector.{kernel}", None)
    X = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    assert LocalEngine().combine(X, np.eye(8, 3)).tobytes() == X[:, :3].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combinations_have_the_same_bits_for_any_number_of_threads(dtype):
    rng = np.random.default_rng(0)
    X, C = rng.standard_normal((20_000, 24)).astype(dtype), rng.standard_normal((24, 10))
    with threadpool_limits(1):
        alone = LocalEngine().combine(X, C)
    with threadpool_limits(4):
        assert LocalEngine().combine(X, C).tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_and_residuals_of_some_rows_at_a_time(dtype):
    """More rows than are taken at once by numpy, fewer than are worth a compiled kernel."""
    n, m = 9_001, 8
    rng = np.random.default_rng(3)
    engine = LocalEngine()
    X, AX = rng.standard_normal((2, n, m)).astype(dtype)
    operator = laplacian(
        datasets.make_block_model(n, 2, mean_degree=6, random_state=0).graph
    ).random_walk_form()
    b = operator.metric.astype(np.float64)[:, None]
    np.testing.assert_allclose(
        engine.gram(X, X, operator.metric), X.T.astype(float) @ (b * X), rtol=1e-5, atol=1e-3
    )
    values = np.array([0.1, 0.2, 0.3])
    rest = AX[:, :3] - b * X[:, :3] * values
    R, norms = engine.residual_rows(operator, X, AX, values)
    np.testing.assert_allclose(R, rest, atol=1e-4)
    np.testing.assert_allclose(norms, np.sqrt((rest.astype(float) ** 2 / b).sum(axis=0)), rtol=1e-5)
    np.testing.assert_array_equal(engine.residual(operator, X, AX, values), norms)
