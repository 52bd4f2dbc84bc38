"""Operators as a protocol: what they offer, and sums and low rank beside the sparse ones."""

from __future__ import annotations

import numpy as np
import pytest
from refusing import RefusingEngine, cut

from spectrograd.certificate.certificate import MAX_MISS_ODDS
from spectrograd.datasets import make_block_model
from spectrograd.operators.base import ALL, EDGES, PRODUCTS, CapabilityError, DenseOperator
from spectrograd.operators.composite import LowRankOperator, SumOperator
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import LowRank
from spectrograd.pipeline.plan import plan
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import REGISTRY, Problem, make_solver, solve
from spectrograd.solvers.settings import RunContext

N, K = 700, 3


@pytest.fixture(scope="module")
def layers():
    return [make_block_model(N, K, mean_degree=12, random_state=s).graph for s in (0, 1)]


def summed(layers, cut_into=None):
    graphs = layers if cut_into is None else [cut(graph, cut_into, streamed=True) for graph in layers]
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((N, 2)))[0]
    low_rank = LowRankOperator(LowRank(Z, np.array([0.3, 0.1])), -0.3, 0.0)
    return SumOperator((*(laplacian(graph, "symmetric") for graph in graphs), low_rank), (0.5, 1.5, 1.0))


def test_a_sum_is_the_sum_of_its_parts(layers):
    operator = summed(layers)
    parts = sum(c * part.to_dense() for c, part in zip(operator.weights, operator.operators, strict=True))
    np.testing.assert_allclose(operator.to_dense(), parts, atol=1e-12)
    values = np.linalg.eigvalsh(parts)
    assert operator.lower <= values[0] <= values[-1] <= operator.upper
    assert operator.n_nodes == N
    assert operator.names is None
    assert 0 < operator.rounding(np.float64) < 1e-11
    with pytest.raises(ValueError, match="cannot be added"):
        SumOperator((laplacian(layers[0]),), (1.0,))


@pytest.mark.parametrize("name", ["lanczos", "chebyshev"])
def test_a_sum_of_streams_is_embedded_on_any_engine(layers, name):
    """Means of layers that are never added as matrices, and never looked into."""
    engine = RefusingEngine()
    result = embed(summed(layers, 3), K, Settings(solver=name, seed=0), RunContext(engine))
    expected = np.linalg.eigvalsh(summed(layers).to_dense())[:K]
    low, high = result.certificate.intervals.T
    assert ((low <= expected) & (expected <= high)).all()
    assert (high - low).max() < 0.02
    assert result.certificate.missed_probability <= MAX_MISS_ODDS
    assert engine.gathers == 1


def test_what_operators_offer(layers):
    whole, streamed = laplacian(layers[0]), laplacian(cut(layers[0], 3, streamed=True))
    assert whole.capabilities == EDGES
    assert (
        streamed.capabilities
        == summed(layers).capabilities
        == DenseOperator(np.eye(4), 1.0, 1.0).capabilities
        == PRODUCTS
    )
    assert Problem(whole, K).capabilities == ALL
    assert "resident" not in Problem(whole, K, RefusingEngine()).capabilities


@pytest.mark.parametrize("name", REGISTRY)
def test_a_solver_refuses_what_it_cannot_take_before_any_work(layers, name):
    solver, engine = make_solver(name), RefusingEngine()
    problem = Problem(summed(layers), K, engine)
    if solver.requires <= PRODUCTS:
        solver.check(problem)
        return
    with pytest.raises(
        CapabilityError, match=f"solver '{name}' needs .*, but SumOperator on this engine offers only"
    ):
        solve(problem, solver)
    assert engine.work.passes == 0


def test_auto_plans_among_what_fits(layers):
    resident = laplacian(layers[0])
    assert plan(Problem(resident, K))[0].name in ("eigen", "lanczos", "shift-invert")
    for operator, engine in (
        (laplacian(cut(layers[0], 3, streamed=True)), None),
        (resident, RefusingEngine(per_round=0.1)),
    ):
        problem = Problem(operator, K) if engine is None else Problem(operator, K, engine)
        names = [choice.name for choice in plan(problem)]
        assert names[0] == "lanczos"  # block Krylov takes the fewest passes, where each one is expensive
        assert dict(plan(problem)[0].params)["basis_size"] > 1
        assert "chebyshev" in names
        assert all(make_solver(name).requires <= problem.capabilities for name in names)
    assert plan(Problem(resident, K, RefusingEngine()))[0].name == "lanczos"
