"""The block probe: its odds are a bound, and it costs no pass of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusing import RefusingEngine, cut

from spectrograd.certificate.block_probe import (
    PROBE_COLUMNS,
    BlockProbeEvidence,
    ProbeBlock,
    evidence_from_block,
    evidence_from_gram,
    extend_block_probe,
    new_probe_block,
)
from spectrograd.certificate.certificate import MAX_MISS_ODDS
from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine
from spectrograd.graph import Graph
from spectrograd.linalg.chebyshev_filter import Filter
from spectrograd.linalg.subspace import Ritz
from spectrograd.operators.laplacian import laplacian
from spectrograd.operators.sparse import SparseOperator
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.solvers import Problem, make_solver, solve
from spectrograd.solvers.settings import RunContext

ENGINE = LocalEngine()


def diagonal_operator(values):
    """An operator with these eigenvalues and unit vectors, and hardly any edges."""
    n = len(values)
    return SparseOperator(Graph.from_edges([0], [1], [1e-9], n_nodes=n), np.asarray(values), upper=2.0)


def ridden(values, found, filters, rng, dtype=np.float64):
    """What a probe_block tells when the unit vectors ``found`` were found."""
    operator = diagonal_operator(values)
    probe_block = swept(operator, new_probe_block(ENGINE, operator, rng, dtype), filters)
    return evidence_from_block(ENGINE, operator, probe_block, np.eye(len(values), dtype=dtype)[:, found], 1.0)


def swept(operator, probe_block, filters):
    """The probe_block after all degrees of the filters."""
    for smooth in filters:
        probe_block = probe_block.begin_filter(smooth.cut, smooth.upper)
        for _ in range(smooth.degree):
            product = ENGINE.recurrence(operator, probe_block.X, probe_block.X, (1.0, 0.0, 0.0))
            probe_block = probe_block.advance(ENGINE, operator, product)
    return probe_block


def test_degree_by_degree_is_the_filter():
    """What a probe_block does one product at a time, with the norms of what went in."""
    operator, smooth = diagonal_operator(np.linspace(0, 2, 50)), Filter(5, 0.8, 2.0)
    probe_block = new_probe_block(ENGINE, operator, np.random.default_rng(0), np.float64)
    after = swept(operator, probe_block, (smooth,))
    np.testing.assert_allclose(after.X, smooth.apply(ENGINE, operator, probe_block.X), atol=1e-12)
    assert after.filters == (smooth,)
    assert after.lengths[0] == pytest.approx(np.linalg.norm(probe_block.X, 2))
    assert len(after.lengths) == 5


def test_a_known_null_vector_is_taken_out_and_counts_as_found():
    """Its rounding errors would cover the rest; what the probe_block tells of the others stays a bound."""
    graph = make_block_model(1500, 4, mean_degree=16, random_state=0).graph
    operator = laplacian(graph)
    exact = solve(Problem(operator, 4), make_solver("eigen"), seed=0).Q
    probe_block = new_probe_block(ENGINE, operator, np.random.default_rng(0), np.float32)
    assert np.abs(ENGINE.gram(probe_block.null, probe_block.X, operator.metric)).max() < 1e-5
    probe_block = swept(operator, probe_block, (Filter(12, 0.5, 1.6),))
    assert (
        evidence_from_block(ENGINE, operator, probe_block, exact.astype(np.float32), 0.5).odds_below(0.45)
        < MAX_MISS_ODDS
    )
    without = np.ascontiguousarray(exact[:, [0, 2, 3]], dtype=np.float32)
    assert evidence_from_block(ENGINE, operator, probe_block, without, 0.5).odds_below(0.45) > 0.05


ONE, TWO = (Filter(6, 1.0, 2.0),), (Filter(3, 0.9, 2.0), Filter(4, 1.0, 2.0))


@pytest.mark.parametrize(("filters", "tau"), [(ONE, 0.4), (TWO, 0.7)])
def test_the_odds_are_a_bound(filters, tau):
    """Where an eigenvector was missed, small odds must be as rare as they say; so where two were."""
    values = np.concatenate([[0.0, 0.2, 0.3], np.linspace(1.0, 2.0, 200)])
    rng = np.random.default_rng(0)
    for found in ([0, 1], [0]):
        odds = np.array([ridden(values, found, filters, rng).odds_below(tau) for _ in range(400)])
        for small in (0.3, 0.1, 0.03, 0.01):
            share = (odds <= small).mean()
            assert share <= small + 3 * np.sqrt(small / len(odds))


def test_the_odds_of_the_worst_eigenvector_are_nearly_reached():
    """A bound that is not idle: an eigenvalue just below tau, and a strong filter."""
    values = np.concatenate([[0.0, 0.4999], np.linspace(1.0, 2.0, 100)])
    rng, filters = np.random.default_rng(1), (Filter(20, 1.0, 2.0),)
    odds = np.array([ridden(values, [0], filters, rng).odds_below(0.5) for _ in range(400)])
    assert (odds <= 0.1).mean() == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_missed_is_told_with_odds_that_fall_with_the_degree(dtype):
    values = np.concatenate([[0.0, 0.2, 0.3], np.linspace(1.0, 2.0, 2000)])
    seen = [
        ridden(values, [0, 1, 2], (Filter(m, 1.0, 2.0),), np.random.default_rng(0), dtype).odds_below(0.5)
        for m in (1, 4, 8)
    ]
    assert seen[0] > 0.9
    assert seen[2] < MAX_MISS_ODDS / 100
    assert seen == sorted(seen, reverse=True)


def test_evidence_reaches_as_far_as_the_filters_prove_and_no_eigenvalue_beyond_is_passed():
    """Where nothing was missed, half of what a rough guess allows is little; where something was, nothing."""
    values = np.concatenate([[0.0, 0.2, 0.3], np.linspace(1.0, 2.0, 2000)])
    strong = (Filter(12, 1.0, 2.0),)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        seen = replace(ridden(values, [0, 1, 2], strong, rng), lowest=0.4)
        tau = seen.farthest(0.3)
        assert 0.6 < tau < 1.0
        assert seen.odds_below(tau) <= MAX_MISS_ODDS
        missed = replace(ridden(values, [0, 1], strong, rng), lowest=0.2)
        assert missed.farthest(0.2) < 0.3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_tells_by_its_gram_matrix_what_its_rows_tell(dtype):
    values = np.concatenate([[0.0, 0.2, 0.3], np.linspace(1.0, 2.0, 500)])
    operator, rng = diagonal_operator(values), np.random.default_rng(3)
    probe_block = swept(operator, new_probe_block(ENGINE, operator, rng, dtype), (Filter(5, 1.0, 2.0),))
    block = np.hstack([np.eye(503, 5, dtype=dtype), probe_block.X])
    rows = evidence_from_block(ENGINE, operator, probe_block, block[:, :3], 1.0)
    told = evidence_from_gram(
        operator, probe_block, ENGINE.gram(block, block), 3, 1.0, float(np.finfo(dtype).eps)
    )
    assert told.rho == pytest.approx(rows.rho, rel=1e-4)
    assert told.odds_below(0.5) == pytest.approx(rows.odds_below(0.5), rel=1e-2)


def test_beyond_a_cut_nothing_is_known():
    seen = BlockProbeEvidence(1.0, 0, None, 1e-9, (Filter(9, 0.6, 2.0), Filter(9, 0.8, 2.0)))
    assert seen.odds_below(0.5) < 1e-6
    assert seen.odds_below(0.7) == 1.0
    assert seen.odds_below(1.0) == 1.0


def test_rounding_is_never_mistaken_for_evidence():
    """A single-precision probe_block that was damped below its rounding errors says so."""
    values = np.concatenate([[0.0], np.full(500, 0.999), [2.0]])
    probe_block = ProbeBlock(
        np.zeros((502, PROBE_COLUMNS), np.float32), (22.0,) * 60, (Filter(60, 1.0, 2.0),)
    )
    seen = evidence_from_block(
        ENGINE, diagonal_operator(values), probe_block, np.eye(502, dtype=np.float32)[:, :1], 1.0
    )
    assert seen.rho == 0
    assert seen.odds_below(0.9) == seen.best_odds(0.9) == 1.0


def test_the_gain_of_a_filter_is_that_of_its_polynomial():
    smooth, values = Filter(7, 0.8, 2.0), np.array([0.0, 0.3, 0.79])
    operator = diagonal_operator(values)
    applied = np.diag(smooth.apply(ENGINE, operator, np.eye(3)))
    expected = np.exp([smooth.log_gain(value, 0.0) for value in values])
    np.testing.assert_allclose(np.abs(applied), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["random_walk", "symmetric"])
def test_where_sweeps_are_dear_the_certificate_takes_hardly_any(kind):
    """The same verdict as the probe of graphs in memory, in the sweeps of the solver."""
    graph = make_block_model(3000, 4, mean_degree=16, random_state=0).graph
    engine = RefusingEngine(per_round=0.1)
    operator = laplacian(cut(graph, 3, streamed=True), kind)
    solution = solve(Problem(operator, 4, engine), make_solver("chebyshev", angle=0.01), seed=0)
    assert isinstance(solution.evidence.complement_bound, BlockProbeEvidence)
    before = engine.work.passes
    result = embed(operator, 4, Settings(solver="chebyshev", seed=0), RunContext(engine))
    assert result.certificate.converged
    assert result.certificate.missed_probability <= MAX_MISS_ODDS
    assert engine.work.passes - before <= before + 2  # the solve itself, and Rayleigh-Ritz for its residuals


def test_a_skipped_eigenvector_is_seen():
    graph = make_block_model(1500, 4, mean_degree=16, random_state=0).graph
    operator = laplacian(graph)
    exact = solve(Problem(operator, 4), make_solver("eigen"), seed=0).Q
    probe_block = new_probe_block(ENGINE, operator, np.random.default_rng(0), np.float64)
    probe_block = swept(operator, probe_block, (Filter(12, 0.5, 2.0),))
    assert evidence_from_block(ENGINE, operator, probe_block, exact, 0.5).odds_below(0.45) < MAX_MISS_ODDS
    assert (
        evidence_from_block(ENGINE, operator, probe_block, exact[:, :3].copy(), 0.5).odds_below(0.45) > 0.05
    )


def test_a_cut_at_the_end_of_the_spectrum_is_moved_inside():
    """Where a block is the whole space, its last Ritz value is the upper bound."""
    values = np.concatenate([[0.0, 0.1], np.linspace(1.0, 2.0, 200)])
    operator, rng = diagonal_operator(values), np.random.default_rng(0)
    found = Ritz(values[:2], np.eye(202)[:, :2].copy(), None)
    probe_block = new_probe_block(ENGINE, operator, rng, np.float64)
    seen = extend_block_probe(ENGINE, operator, probe_block, found, 1.0, operator.upper, 1e-6)
    assert seen.odds_below(0.2) < MAX_MISS_ODDS
