"""Localised vectors are seen in the plan's look at the spectrum; others are solved for as before."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from spectrograd.datasets import make_block_model
from spectrograd.engines import LocalEngine, NumpyEngine
from spectrograd.graph import Graph
from spectrograd.operators.laplacian import TAU, Regularization, laplacian
from spectrograd.pipeline import embed
from spectrograd.pipeline import localization_look as looking
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed as solve_operator
from spectrograd.solvers.settings import RunContext


@pytest.fixture(scope="module")
def dangling():
    """A block model of 6,000 nodes from which thirty paths of twenty nodes hang."""
    blocks = make_block_model(6000, 3, random_state=0).graph.matrix.tocoo()
    once = blocks.row < blocks.col
    ends = np.arange(6000, 6000 + 30 * 20).reshape(30, 20)
    heads = np.column_stack([np.arange(30), ends[:, :-1]])
    return Graph.from_edges(np.append(blocks.row[once], heads), np.append(blocks.col[once], ends))


def test_localised_vectors_are_seen_before_anything_is_solved(dangling):
    engine = LocalEngine()
    result = embed(dangling, Settings(n_components=3, seed=0))
    assert result.regularization.tau >= TAU
    assert result.certificate.converged
    assert len(result.attempts) == 1  # no solve was given up for another problem
    look = looking.begin_look(laplacian(dangling), 3, engine)
    assert look is not None
    says = Regularization(TAU, "all of them", 1.0)
    assert look.decide(lambda vectors: says) is says
    assert engine.work.matvecs <= look.basis.limit


def test_rough_vectors_have_to_be_clear_and_settled(dangling, monkeypatch):
    operator = laplacian(dangling)
    doubt = Regularization(TAU, "some of them", 0.6)
    look = looking.begin_look(operator, 3, LocalEngine())
    assert look.decide(lambda vectors: doubt) is None
    assert look.basis.full  # it was worth more products
    none = Regularization(0.0, "none of them", 0.0)
    look = looking.begin_look(operator, 3, LocalEngine())
    assert look.decide(lambda vectors: none) is None
    assert look.basis.done == looking.SHAPE_STEPS  # no product but those of the plan
    monkeypatch.setattr(looking, "SETTLED", 1e-6)
    look = looking.begin_look(operator, 3, LocalEngine())
    assert look.decide(lambda vectors: Regularization(TAU, "all of them", 1.0)) is None


def test_a_graph_without_localised_vectors_is_solved_as_if_nobody_had_looked(monkeypatch):
    graph = make_block_model(6000, 4, random_state=0).graph
    first = embed(graph, Settings(n_components=4, seed=0))
    monkeypatch.setattr("spectrograd.pipeline.single.begin_look", lambda *_: None)
    second = embed(graph, Settings(n_components=4, seed=0))
    assert first.regularization.tau == 0
    assert np.array_equal(first.vectors, second.vectors)
    assert [a.matvecs for a in first.attempts] == [a.matvecs for a in second.attempts]


def test_no_look_where_the_plan_has_none(dangling):
    assert looking.begin_look(laplacian(dangling), 3, NumpyEngine()) is None
    assert looking.begin_look(laplacian(dangling), 1, LocalEngine()) is None
    assert looking.begin_look(laplacian(dangling), looking.SHAPE_STEPS, LocalEngine()) is None
    small = make_block_model(600, 3, random_state=0).graph
    assert looking.begin_look(laplacian(small), 3, LocalEngine()) is None


def test_nobody_keeps_the_basis_of_a_look(dangling):
    look = looking.begin_look(laplacian(dangling), 3, LocalEngine())
    basis = weakref.ref(look.basis)
    kept = []
    context = RunContext(hooks=[lambda progress: kept.append(basis() is not None)])
    found = solve_operator(laplacian(dangling), 3, Settings(seed=0, solver="chebyshev"), context, look=look)
    assert found.solver == "chebyshev"
    assert kept
    assert not any(kept)
