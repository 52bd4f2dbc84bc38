"""What ``auto`` picks, and how it goes on where the certificate is not met."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from spectrograd import SpectralClustering
from spectrograd.datasets import make_block_model, make_gaussian_mixture, make_multilayer_gmm
from spectrograd.graph import Graph, GraphWarning
from spectrograd.linalg import ldl as fill
from spectrograd.linalg.ldl import factor_bytes
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import embed as embed_graph
from spectrograd.pipeline import plan as planning
from spectrograd.pipeline import solve as solving
from spectrograd.pipeline.plan import PlannedSolver, candidates, choose, plan, plan_by_cost
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import SolveError, embed
from spectrograd.points.knn_graph import knn_graph
from spectrograd.solvers import Problem
from spectrograd.solvers.lanczos import Lanczos
from spectrograd.solvers.settings import RunContext

KINDS = ["random_walk", "symmetric", "unnormalized"]


def test_auto_tells_geometric_graphs_from_expanders():
    points, _ = make_gaussian_mixture(3000, 3, random_state=0)
    flat, tangled = knn_graph(points), make_block_model(3000, 3, random_state=0).graph
    assert choose(Problem(laplacian(flat), 3)).name == "shift-invert"
    (choice,) = plan(Problem(laplacian(tangled), 3))
    assert choice.by_size  # and nothing was multiplied for it
    choices = plan_by_cost(Problem(laplacian(tangled), 3))
    assert [choice.name for choice in choices] == ["lanczos", "chebyshev", "lanczos"]
    assert dict(choices[0].params) == {"block_size": 1}
    larger = make_block_model(5000, 3, random_state=0).graph
    assert choose(Problem(laplacian(larger), 16)).name == "lanczos"  # not a block already from nine on
    path = Graph.from_edges(np.arange(199), np.arange(1, 200))
    assert "dense" in choose(Problem(laplacian(path), 3)).reason


def test_a_choice_tells_the_seconds_it_was_made_by():
    problem = Problem(laplacian(make_block_model(5000, 3, random_state=0).graph), 3)
    found = candidates(problem)
    assert [c.seconds for c in found] == sorted(c.seconds for c in found)
    assert found[0][:5] == plan(problem)[0][:5] == choose(problem)[:5]  # the same each time


def test_a_small_graph_is_planned_by_size_and_then_by_cost(monkeypatch):
    problem = Problem(laplacian(make_block_model(600, 3, random_state=0).graph), 3)
    before = problem.engine.work.matvecs
    (choice,) = plan(problem)
    assert (choice.name, choice.by_size, problem.engine.work.matvecs) == ("lanczos", True, before)
    monkeypatch.setattr(Lanczos, "step", refuse)
    found = embed(problem.operator, 3, Settings(seed=0))
    assert found.certificate.converged
    assert [attempt.solver for attempt in found.attempts] == ["lanczos", "chebyshev"]
    assert found.attempts[0].reason.startswith("600 nodes within")


def refuse(*_):
    raise FloatingPointError("refused")


def test_localised_vectors_of_a_finished_solve_are_not_certified():
    rng = np.random.default_rng(0)
    core = make_block_model(300, 1, mean_degree=20, random_state=0).graph.matrix.tocoo()
    tails = 300 + np.arange(24).reshape(8, 3)  # paths that hang by one edge each
    ends = np.column_stack([rng.integers(300, size=8), tails[:, :1]])
    pairs = np.concatenate([ends, tails[:, :2], tails[:, 1:]])
    upper = core.row < core.col
    graph = Graph.from_edges(
        np.concatenate([core.row[upper], pairs[:, 0]]), np.concatenate([core.col[upper], pairs[:, 1]])
    )
    found = embed_graph(graph, Settings(n_components=4, seed=0))
    assert found.regularization.tau > 0
    assert found.converged
    assert "given up" in found.attempts[0].outcome


def test_cliques_are_no_geometry():
    """A union of small cliques shrinks under a matching like a plane does, and is no job for a hierarchy."""
    rng = np.random.default_rng(0)
    cliques = [rng.integers(6000, size=rng.integers(3, 7)) for _ in range(9000)]
    pairs = np.concatenate([np.stack(np.meshgrid(c, c), -1).reshape(-1, 2) for c in cliques])
    heads, tails = pairs[pairs[:, 0] < pairs[:, 1]].T
    graph = Graph.from_edges(heads, tails)
    assert choose(Problem(laplacian(graph), 16)).name in ("lanczos", "chebyshev")


def test_k_beyond_the_clusters_is_said_and_does_not_cost_much():
    operator = laplacian(make_block_model(6000, 10, mean_degree=30, random_state=0).graph)
    right, beyond = (embed(operator, k, Settings(seed=0)) for k in (10, 16))
    assert right.certificate.converged
    assert not beyond.certificate.converged
    assert beyond.certificate.determined == 10
    assert "K cuts through a bulk: vectors after the tenth are not determined" in beyond.certificate.sentence
    assert beyond.certificate.leading_angle <= 0.03
    assert beyond.last.matvecs < 6 * right.last.matvecs
    assert len(beyond.attempts) == 1


def test_a_factor_that_does_not_fit_into_memory_is_not_tried(monkeypatch):
    points, _ = make_gaussian_mixture(6000, 3, random_state=0)
    problem = Problem(laplacian(knn_graph(points)), 3)
    needed = factor_bytes(fill.estimate_fill(problem.operator.graph))
    monkeypatch.setattr(fill, "machine_memory", lambda: 1.4 * needed)
    assert choose(problem).name == "shift-invert"
    monkeypatch.setattr(fill, "machine_memory", lambda: 1.3 * needed)
    assert [choice.name for choice in plan(problem)] == ["multilevel", "lanczos"]
    with pytest.raises(ValueError, match=r"shift-invert: the factor would take about .* GB, the limit is"):
        embed(problem.operator, 3, Settings(solver="shift-invert"))


@pytest.mark.parametrize("copy_size", [300, 1000])
def test_repeated_eigenvalues_of_an_expander(copy_size):
    """A ring of five copies: 0 and two pairs, of which one vector alone sees one each."""
    copy = make_block_model(copy_size, 1, mean_degree=20, random_state=0).graph.matrix
    ring = sp.csr_array(np.roll(np.eye(5), 1, axis=1) + np.roll(np.eye(5), -1, axis=1))
    W = sp.kron(sp.eye_array(5), copy) + sp.kron(ring, sp.eye_array(copy_size))
    operator = laplacian(Graph.from_matrix(W))
    root = np.sqrt(copy.sum(axis=1) + 2)
    exact = [  # wave by wave around the ring
        np.linalg.eigvalsh(
            np.eye(copy_size) - (copy.toarray() + 2 * np.cos(wave) * np.eye(copy_size)) / np.outer(root, root)
        )[:2]
        for wave in 2 * np.pi / 5 * np.arange(5)
    ]
    exact = np.sort(np.ravel(exact))
    assert exact[2] - exact[1] < 1e-9 < 0.02 < exact[5] - exact[4]
    found = embed(operator, 5, Settings(seed=0))
    assert found.attempts[0].solver == "lanczos"
    assert found.certificate.converged
    np.testing.assert_allclose(found.embedding.eigenvalues, exact[:5], atol=1e-4)


def test_escalations_and_their_reasons_are_kept(monkeypatch):
    """Every attempt is told, and the history runs on through all of them."""
    plan = (
        PlannedSolver("gradient-descent", "too slow on purpose"),
        PlannedSolver("lanczos", "escalated: to finish"),
    )
    monkeypatch.setattr(planning, "plan", lambda problem, memory_limit=None: plan)
    graph = make_block_model(600, 3, random_state=0).graph
    result = solving.embed(laplacian(graph), 3, Settings(seed=0, max_iter=5))
    assert [(a.solver, a.reason) for a in result.attempts] == [(c.name, c.reason) for c in plan]
    assert "NOT converged" in result.attempts[0].outcome
    assert result.attempts[1].outcome == result.certificate.sentence
    assert result.solver == "lanczos"
    events = [event for progress in result.history for event in progress.events]
    assert "auto picked gradient-descent: too slow on purpose" in events
    assert "auto picked lanczos: escalated: to finish" in events
    for count in ("iteration", "matvecs", "seconds"):
        values = [getattr(progress, count) for progress in result.history]
        assert values == sorted(values)
    assert result.last.iteration == sum(a.iterations for a in result.attempts)
    asked = solving.embed(laplacian(graph), 3, Settings(solver="lanczos", seed=0))
    assert [(a.solver, a.reason) for a in asked.attempts] == [("lanczos", "asked for")]
    assert asked.history[0].events == ()


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_the_paper_are_certified_by_a_factorisation(kind):
    """Their first eigenvalues are far apart from the K-th: filters must not drown it."""
    for layer in make_multilayer_gmm(6_000, random_state=0).graph.layers:
        result = embed(laplacian(layer, kind), 5, Settings(seed=0))
        assert [attempt.solver for attempt in result.attempts] == ["shift-invert"]
        assert result.certificate.converged
        assert not result.last.events


BREAKDOWNS = [ValueError("the factorisation broke down"), MemoryError(), np.linalg.LinAlgError("singular")]


@pytest.mark.parametrize("error", [*BREAKDOWNS, FloatingPointError("overflow"), RecursionError()])
def test_a_solver_that_fails_is_an_attempt_and_the_next_one_follows(monkeypatch, error):
    graph = make_block_model(700, 3, random_state=0).graph
    plan = (PlannedSolver("shift-invert", "direct"), PlannedSolver("lanczos", "escalated"))
    monkeypatch.setattr(planning, "plan", lambda problem, memory_limit=None: plan)
    _fails(monkeypatch, {"shift-invert": error})
    result = embed(laplacian(graph), 3, Settings(seed=0))
    assert result.certificate.converged
    assert [attempt.solver for attempt in result.attempts] == ["shift-invert", "lanczos"]
    assert result.attempts[0].outcome == f"failed ({type(error).__name__}: {error})"
    with pytest.raises(type(error)):  # who asks for a solver by name is told
        embed(laplacian(graph), 3, Settings(solver="shift-invert", seed=0))


def test_where_the_whole_plan_fails_there_is_a_last_resort_and_then_an_error_that_lists_them(monkeypatch):
    operator = laplacian(make_block_model(700, 3, random_state=0).graph)
    broken = dict.fromkeys(["lanczos", "chebyshev"], MemoryError("too large"))
    _fails(monkeypatch, broken)
    result = embed(operator, 3, Settings(seed=0))
    assert result.solver == "eigen"
    assert result.certificate.converged
    assert [attempt.solver for attempt in result.attempts] == ["lanczos", "chebyshev", "lanczos", "eigen"]
    _fails(monkeypatch, broken | {"eigen": FloatingPointError("nan")})
    listed = (
        r"lanczos failed \(MemoryError: too large\); chebyshev .*; eigen failed \(FloatingPointError: nan\)"
    )
    with pytest.raises(SolveError, match=listed):
        embed(operator, 3, Settings(seed=0))


def test_a_certificate_that_fails_leaves_good_vectors_without_a_word_for_them(monkeypatch):
    operator = laplacian(make_block_model(700, 3, random_state=0).graph)
    monkeypatch.setattr(solving, "run_lanczos_probe", lambda *_, **__: np.linalg.cholesky(-np.eye(2)))
    result = embed(operator, 3, Settings(solver="power", seed=0))
    assert not result.certificate.converged
    assert "the certificate failed (LinAlgError" in result.certificate.sentence


def test_weights_of_many_orders_of_magnitude_are_embedded():
    """An rbf kernel of points far apart: degrees from 1e-200 to 1, which no single precision holds."""
    points = load_digits().data[:900]
    with pytest.warns(GraphWarning, match="excluded"):
        model = SpectralClustering(10, affinity="rbf", random_state=0).fit(points)
    assert np.isfinite(model.embedding_).all()
    assert not model.converged_  # hundreds of eigenvalues are zero to sixteen digits


def test_past_the_time_budget_no_other_solver_begins_and_nobody_probes(monkeypatch):
    operator = laplacian(make_block_model(700, 3, random_state=0).graph)
    plan = (PlannedSolver("gradient-descent", "too slow on purpose"), PlannedSolver("lanczos", "escalated"))
    monkeypatch.setattr(planning, "plan", lambda problem, memory_limit=None: plan)
    monkeypatch.setattr(solving, "run_lanczos_probe", None)
    result = embed(operator, 3, Settings(seed=0, tol=0.0, max_iter=10**9, time_budget=0.2))
    assert [attempt.solver for attempt in result.attempts] == ["gradient-descent"]
    assert result.stop_reason == "time_budget"
    assert "not certified, out of time" in result.certificate.sentence
    assert result.total_seconds < 100  # of a budget of 0.2, on a machine that has much else to do


def test_the_time_spent_measuring_counts_for_the_budget():
    """A hook that dawdles is on the user's clock as well."""
    operator = laplacian(make_block_model(700, 3, random_state=0).graph)
    slow = Settings(solver="gradient-descent", tol=0.0, max_iter=10**9, time_budget=0.2, seed=0)
    context = RunContext(hooks=(lambda progress: time.sleep(0.15),))
    result = embed(operator, 3, slow, context)
    assert len(result.history) <= 3


def _fails(monkeypatch, errors):
    """Let the first step of some solvers fail."""
    real = solving.run_loop

    def solve(problem, solver, **how):
        if solver.name in errors:
            raise errors[solver.name]
        return real(problem, solver, **how)

    monkeypatch.setattr(solving, "run_loop", solve)
