"""One protocol for every solver: the suite runs over the registry, so a new line there is tested here."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import reference
from spectrograd import datasets
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers import REGISTRY, Problem, Solver, Stopping, make_solver, solve

K = 3
DIRECT = {name for name in REGISTRY if make_solver(name).direct}
ITERATIVE = [name for name in REGISTRY if name not in DIRECT]
# The paper's method and its relatives, whose state is U itself.
PLAIN = ["sgd", "sgd-paper", "gradient-descent", "forward-backward", "stochastic-fb"]
KINDS = ["random_walk", "symmetric", "unnormalized"]
OPERATORS = [*(f"{graph} {kind}" for graph in ("blocks", "knn") for kind in KINDS), "merged"]

# Settings under which a solver is measured here: small graphs want small batches, tests want few steps.
PARAMS = {
    "sgd": {"epochs": 8},
    "sgd-paper": {"batch_size": 500, "gram_update": "unique"},
    "stochastic-fb": {"batch_size": 500, "step_size": 0.02},
}
ITERATIONS = {"lanczos": 25, "chebyshev": 50, "multilevel": 50, "lobpcg": 150, "sgd-paper": 500}
# What a solver must reach with them: the sine of the largest angle to the true subspace (None: the gap of
# that graph is too small for it), and the share of the objective's possible decrease. Solvers that are not
# named here must be exact.
EXACT = {"blocks": 1e-6, "knn": 1e-6, "merged": 1e-6}
ANGLES = {
    "sgd": {"blocks": 0.2, "knn": None, "merged": 0.2},
    "sgd-paper": {"blocks": 0.15, "knn": None, "merged": 0.15},
    "stochastic-fb": {"blocks": 0.3, "knn": None, "merged": 0.15},
    "gradient-descent": EXACT | {"knn": 0.05},
    "forward-backward": EXACT | {"knn": 0.15},
    "power": EXACT | {"knn": 1e-4},
    "coordinate-power": {"blocks": 1e-3, "knn": 2e-2, "merged": 2e-3},
    "nystrom": {"blocks": 0.6, "knn": 0.8, "merged": 0.4},
    "variational-nystrom": {"blocks": 0.5, "knn": 0.6, "merged": 0.3},
    "compressive": {"blocks": None, "knn": None, "merged": None},  # mixtures of eigenvectors
}
GAINS = {"sgd": 0.85, "sgd-paper": 0.95, "stochastic-fb": 0.95, "coordinate-power": 0.999}
APPROXIMATE = {"sgd", "sgd-paper", "stochastic-fb", "nystrom", "variational-nystrom", "compressive"}


@pytest.fixture(autouse=True, scope="module")
def _one_blas_thread():
    """Tiny matrices: threads of BLAS would only wait for one another on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def operators():
    """A block model (expander-like), a k-NN graph (small gaps) and a sparse + low-rank operator."""
    points, _ = datasets.make_gaussian_mixture(300, K, separation=4.0, random_state=0)
    graphs = {
        "blocks": datasets.make_block_model(300, K, random_state=0).graph,
        "knn": knn_graph(points, 10),
    }
    found = {name: laplacian(graphs[name.split()[0]], name.split()[1]) for name in OPERATORS[:-1]}
    layers = datasets.make_multilayer_gmm(300, 2, K, random_state=0).graph
    found["merged"] = merge(layers, K, Settings(seed=0)).operator
    assert found["merged"].low_rank is not None
    return found


@pytest.fixture(scope="module")
def truth(operators):
    """The K smallest eigenpairs, dense."""
    return {name: reference.smallest(operator, K) for name, operator in operators.items()}


@pytest.fixture(scope="module")
def solutions(operators):
    """One full run per solver and operator, shared by the tests that only look at results."""
    cache = {}

    def run(name, case):
        if (name, case) not in cache:
            cache[name, case] = quick(name, operators[case], max_iter=ITERATIONS.get(name, 300))
        return cache[name, case]

    return run


def quick(name, operator, *, max_iter=20, seed=0, start=None, params=None, **options):
    """A run with the suite's settings, short unless told."""
    params = PARAMS.get(name, {}) | (params or {})
    problem = Problem(operator, K, start=start)
    return solve(problem, make_solver(name, **params), stopping=Stopping(max_iter), seed=seed, **options)


def gram_error(Q, operator):
    b = np.ones(len(Q)) if operator.metric is None else operator.metric
    return np.abs(Q.T @ (b[:, None] * Q) - np.eye(Q.shape[1])).max()


def objective(Q, operator):
    return np.trace(Q.T @ reference.dense_pencil(operator)[0] @ Q)


# --- results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", OPERATORS)
@pytest.mark.parametrize("name", REGISTRY)
class TestResults:
    def test_basis_is_orthonormal_in_the_metric(self, solutions, operators, name, case):
        solution = solutions(name, case)
        assert solution.Q.shape == (300, K)
        assert solution.Q.dtype == np.float64
        assert gram_error(solution.Q, operators[case]) < 1e-8
        assert solution.last.orthogonality_error < 1e-6  # of the state, which may be float32

    def test_objective_is_no_smaller_than_possible(self, solutions, operators, truth, name, case):
        solution = solutions(name, case)
        best = truth[case][0].sum()
        found = objective(solution.Q, operators[case])
        assert found >= best - 1e-10 * operators[case].upper
        assert solution.last.objective == pytest.approx(found, abs=1e-6 * operators[case].upper)

    def test_subspace_is_close_to_the_eigenvectors(self, solutions, operators, truth, name, case):
        solution, (values, vectors) = solutions(name, case), truth[case]
        first, last = solution.history[0].objective, solution.last.objective
        if name not in DIRECT and first - values.sum() > 1e-6 * operators[case].upper:
            assert (first - last) / (first - values.sum()) >= GAINS.get(name, 0.9999)
        level = ANGLES.get(name, EXACT)[case.split()[0]]
        if level is not None:
            assert reference.largest_sine(solution.Q, vectors, operators[case].metric) <= level

    def test_residual_is_that_of_the_result(self, solutions, operators, name, case):
        solution, operator = solutions(name, case), operators[case]
        A, B = reference.dense_pencil(operator)
        Q = solution.Q
        R = A @ Q - B @ Q @ (Q.T @ A @ Q)
        b = B.diagonal()
        worst = np.sqrt(np.linalg.norm(R.T @ (R / b[:, None]), 2))
        rounding = 1e-6 * operator.upper  # float32 in some
        assert worst / np.sqrt(K) - rounding <= solution.last.residual <= worst + rounding

    def test_history_is_monotone(self, solutions, name, case):
        solution = solutions(name, case)
        history = solution.history
        for field in ("iteration", "seconds", "matvecs", "edges_seen"):
            values = [getattr(progress, field) for progress in history]
            assert values == sorted(values)
        assert len({progress.iteration for progress in history}) == len(history)
        assert solution.solver == name
        assert solution.seconds >= history[-1].seconds
        assert np.isfinite([(p.objective, p.residual, p.orthogonality_error) for p in history]).all()
        assert history[-1].objective <= history[0].objective + 1e-9


# --- the loop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
class TestProtocol:
    CASE = "blocks random_walk"

    def test_same_seed_same_bits(self, operators, name):
        runs = [quick(name, operators[self.CASE], seed=seed) for seed in (7, 7, 8)]
        np.testing.assert_array_equal(runs[0].Q, runs[1].Q)
        if name in PLAIN:
            assert not np.array_equal(runs[0].Q, runs[2].Q)

    def test_hooks_see_every_measurement(self, operators, name):
        seen, again = [], []
        solution = quick(name, operators[self.CASE], on_progress=[seen.append, again.append])
        assert tuple(seen) == tuple(again) == solution.history
        assert len(seen) >= 1 if name in DIRECT else len(seen) >= 2

    def test_max_iter_is_honoured(self, operators, name):
        solution = quick(name, operators[self.CASE], max_iter=7)
        if solution.stop_reason == "done":  # by itself
            assert name not in PLAIN
            assert solution.last.iteration <= 7
        else:
            assert (solution.stop_reason, solution.last.iteration) == ("max_iter", 7)

    def test_an_empty_time_budget_still_gives_a_result(self, operators, name):
        solution = quick(name, operators[self.CASE], max_iter=10**9, time_budget=0.05)  # else: months
        assert solution.stop_reason == "time_budget" or (
            solution.stop_reason == "done" and (name not in PLAIN or name == "sgd")  # which has its epochs
        )
        assert gram_error(solution.Q, operators[self.CASE]) < 1e-8

    def test_interruption_returns_the_best_so_far(self, operators, name):
        def interrupt(progress):
            if name in DIRECT or progress.iteration > 0:
                raise KeyboardInterrupt

        solution = quick(name, operators[self.CASE], max_iter=10**6, on_progress=[interrupt])
        assert solution.stop_reason == "interrupted"
        assert gram_error(solution.Q, operators[self.CASE]) < 1e-8
        assert solution.last.objective == pytest.approx(objective(solution.Q, operators[self.CASE]))

    def test_interruption_before_there_is_a_result_goes_on(self, operators, name, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(type(make_solver(name)), "init", interrupt)
        with pytest.raises(KeyboardInterrupt):
            quick(name, operators[self.CASE])

    def test_tolerance_stops_early(self, operators, truth, name):
        problem = Problem(operators[self.CASE], K, start=truth[self.CASE][1])
        solver = make_solver(name, **PARAMS.get(name, {}))
        solution = solve(problem, solver, stopping=Stopping(5000, tol=2.0), seed=0)
        assert solution.stop_reason == "converged" or (
            solution.stop_reason == "done" and (name not in PLAIN or name == "sgd")  # which has its epochs
        )
        assert solution.last.iteration <= solver.report_every

    def test_solvers_never_print(self, operators, name, capsys, recwarn):
        quick(name, operators[self.CASE])
        printed = capsys.readouterr()
        assert printed.out == printed.err == ""
        assert not recwarn.list

    def test_warm_start_is_used_and_not_changed(self, operators, truth, name):
        start = truth[self.CASE][1].copy()
        solution = quick(name, operators[self.CASE], max_iter=1, start=start)
        np.testing.assert_array_equal(start, truth[self.CASE][1])
        cold = quick(name, operators[self.CASE], max_iter=1)
        best = truth[self.CASE][0].sum()
        if name not in DIRECT:
            assert solution.last.objective - best < max(0.5 * (cold.last.objective - best), 1e-6)

    def test_dependent_columns_of_a_start_are_repaired_and_told(self, operators, name):
        start = np.random.default_rng(0).standard_normal((300, K))
        start[:, 1] = start[:, 0]
        solution = quick(name, operators[self.CASE], start=start)
        assert gram_error(solution.Q, operators[self.CASE]) < 1e-8
        if name not in DIRECT:
            assert any("1 dependent columns" in event for event in solution.last.events)

    def test_solvers_are_frozen_values(self, name):
        solver = make_solver(name)
        assert isinstance(solver, Solver)
        assert solver.name == name
        assert solver == make_solver(name)
        with pytest.raises(FrozenInstanceError):
            solver.max_iter = 3

    def test_unknown_parameters_are_refused(self, name):
        known = ", ".join(sorted(field.name for field in fields(make_solver(name))))
        with pytest.raises(ValueError, match=f"solver '{name}' has no parameter 'stepsize'; it has {known}"):
            make_solver(name, stepsize=1)


def test_hooks_cost_no_solver_time(operators, monkeypatch):
    """Each takes a day, by a clock that hooks set forward."""
    days, clock = [], time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 86_400 * len(days))
    slow = quick("forward-backward", operators["blocks random_walk"], max_iter=2, on_progress=[days.append])
    assert len(days) == len(slow.history) > 0
    assert slow.seconds < 86_400


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("case", ["blocks random_walk", "blocks symmetric", "merged"])
@pytest.mark.parametrize("damage", ["equal", "zero"])
def test_columns_that_collapse_on_the_way_are_repaired(operators, name, case, damage):
    problem = Problem(operators[case], K)
    solver = make_solver(name, **PARAMS.get(name, {}))
    state = solver.init(problem, np.random.default_rng(0))
    state.U = state.U.copy()
    state.U[:, 1] = state.U[:, 0] if damage == "equal" else 0
    state = solver.step(problem, state)
    assert gram_error(solver.finish(problem, state), operators[case]) < 1e-8
    if name != "stochastic-fb":  # its QR at every step replaces lost directions without noticing
        assert any("replaced" in event or "ill-conditioned" in event for event in state.events)


@pytest.mark.parametrize("name", ITERATIVE)
def test_going_on_after_convergence_does_no_harm(name):
    """Without a tolerance only rounding errors are left to work on; LOBPCG once made vectors of them."""
    rng = np.random.default_rng(65)
    operator = laplacian(reference.random_graph(23, np.random.default_rng(748), mean_degree=3))
    (*values, following), vectors = reference.smallest(operator, 5)
    start = vectors = vectors[:, :4]
    if name in ("lobpcg", "multilevel"):
        start = rng.standard_normal((23, 4))
        start = start @ (np.linalg.qr(rng.standard_normal((4, 4)))[0] * rng.uniform(0.5, 2, 4))
    problem = Problem(operator, 4, start=start)
    solution = solve(problem, make_solver(name), stopping=Stopping(100), seed=0)
    assert min(progress.objective for progress in solution.history) > sum(values) - 1e-6
    if name not in APPROXIMATE:
        level = 1e-5
        if name == "power":
            # The other end of the spectrum creeps in, from rounding errors that differ between processors.
            # The run ends where the objective has climbed by a thousandth of the spectrum, and gives back a
            # state before: (lambda_5 - lambda_4) sin^2 is at most what it climbed.
            climbed = 1e-3 * (operator.upper - operator.lower)
            level = np.sqrt(climbed / (following - values[-1]))
            assert solution.last.objective < sum(values) + climbed
        assert reference.largest_sine(solution.Q, vectors, operator.metric) < level


# --- steps that are too long ------------------------------------------------------------------------

STEPPING = [name for name in ITERATIVE if "step_size" in {field.name for field in fields(make_solver(name))}]


@pytest.mark.parametrize("name", STEPPING)
@pytest.mark.parametrize("step_size", [1e2, 1e6, 1e200])
def test_a_step_far_too_long_never_gives_nan(operators, name, step_size):
    operator = operators["blocks random_walk"]
    solution = quick(name, operator, max_iter=100, params={"step_size": step_size})
    assert np.isfinite(solution.Q).all()
    assert gram_error(solution.Q, operator) < 1e-8
    if step_size == 1e200:
        assert solution.stop_reason == "diverged"
        assert sum("diverged" in event for event in solution.last.events) == 30
        assert "step halved" in solution.last.events[-1]


@pytest.mark.parametrize("name", ["gradient-descent", "forward-backward"])
def test_a_step_far_too_long_is_shortened_until_it_works(operators, truth, name):
    """Every retry halves again; a retry from the same step would never get there."""
    operator, (values, _) = operators["blocks random_walk"], truth["blocks random_walk"]
    solution = quick(name, operator, max_iter=300, params={"step_size": 1e6})
    assert solution.stop_reason == "max_iter"
    assert len(solution.last.events) > 10
    assert solution.last.objective == pytest.approx(values.sum(), abs=1e-6)


# --- names and sizes --------------------------------------------------------------------------------


def test_unknown_solvers_are_refused():
    with pytest.raises(ValueError, match="solver='magic': expected one of auto, sgd, sgd-paper"):
        make_solver("magic")


def test_problems_check_their_sizes(operators):
    operator = operators["blocks random_walk"]
    with pytest.raises(ValueError, match="n_components=0: at least one"):
        Problem(operator, 0)
    with pytest.raises(ValueError, match="n_components=300 but the graph has only 300 nodes"):
        Problem(operator, 300)
    with pytest.raises(ValueError, match=r"start has shape \(300, 2\), expected \(300, 3\)"):
        Problem(operator, 3, start=np.ones((300, 2)))
    with pytest.raises(ValueError, match="max_iter=0"):
        quick("forward-backward", operator, max_iter=0)


@pytest.mark.parametrize("name", REGISTRY)
def test_embed_is_certified(operators, truth, name):
    settings = Settings(solver=name, params=PARAMS.get(name, {}), seed=0, max_iter=ITERATIONS.get(name, 300))
    result = embed(operators["blocks random_walk"], K, settings)
    assert result.solver == name
    values, vectors = truth["blocks random_walk"]
    certificate = result.certificate
    exact = name not in APPROXIMATE
    assert certificate.converged or not exact
    for (low, high), value in zip(certificate.intervals, values, strict=True):
        assert low - 1e-12 <= value <= high + 1e-12 or not exact
    metric = operators["blocks random_walk"].metric
    angle = reference.largest_sine(result.embedding.vectors, vectors, metric)
    assert angle <= certificate.angle_bound + 1e-12
    assert "onverged" in certificate.sentence


# --- the solvers one by one -------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["blocks random_walk", "blocks unnormalized", "merged"])
@pytest.mark.parametrize("batch", ["edges", "nodes", "blocks"])
@pytest.mark.parametrize(("optimizer", "step_size"), [("amsgrad", 2e-3), ("sgd", 0.5)])
def test_paper_solver_with_each_batch_and_optimizer(operators, truth, case, batch, optimizer, step_size):
    operator = operators[case]
    if optimizer == "sgd":
        step_size /= operator.upper - operator.lower
    params = {"batch": batch, "optimizer": optimizer, "step_size": step_size}
    params["batch_size"] = 150 if batch == "nodes" else 500
    solution = quick("sgd-paper", operator, max_iter=180, params=params)
    best = truth[case][0].sum()
    first, last = solution.history[0].objective, solution.last.objective
    assert (first - last) / (first - best) > 0.5
    assert gram_error(solution.Q, operator) < 1e-8


def test_paper_solver_survives_batches_without_an_edge(operators):
    solution = quick("sgd-paper", operators["knn random_walk"], params={"batch": "nodes", "batch_size": 2})
    assert solution.last.iteration == 20
    assert np.isfinite(solution.Q).all()


def test_unknown_batches_and_optimizers_are_refused(operators):
    operator = operators["blocks random_walk"]
    for name in ("sgd-paper", "stochastic-fb"):
        with pytest.raises(ValueError, match="batch='stars': expected one of edges, blocks, nodes"):
            quick(name, operator, params={"batch": "stars"})
    with pytest.raises(ValueError, match="optimizer='adam': expected 'amsgrad' or 'sgd'"):
        quick("sgd-paper", operator, params={"optimizer": "adam"})
    with pytest.raises(ValueError, match="method='magic'"):
        quick("eigen", operator, params={"method": "magic"})


@pytest.mark.parametrize("method", ["dense", "arpack"])
@pytest.mark.parametrize("case", ["blocks random_walk", "blocks unnormalized", "merged"])
def test_both_eigensolvers_are_exact(operators, truth, case, method):
    solution = quick("eigen", operators[case], params={"method": method})
    assert reference.largest_sine(solution.Q, truth[case][1], operators[case].metric) < EXACT["blocks"]
    assert (solution.last.matvecs > 0) == (method == "arpack")
