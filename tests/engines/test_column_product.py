"""Products of one column after another: the same bits as products of multivectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import reference
from spectrograd.engines import LocalEngine, NumpyEngine
from spectrograd.graph import Graph
from spectrograd.kernels.thresholds import Thresholds
from spectrograd.operators.laplacian import laplacian, regularized_laplacian


def engines():
    """Scipy's loop, the compiled kernel, and an engine that has neither."""
    return LocalEngine(), LocalEngine(thresholds=Thresholds(small=10)), NumpyEngine()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", ["random_walk", "symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_products_of_columns_are_those_of_multivectors(dtype, weighted, kind, tau):
    rng = np.random.default_rng(0)
    graph = reference.random_graph(300, rng, weighted=weighted)
    operator = regularized_laplacian(graph, kind, tau) if tau else laplacian(graph, kind)
    x = rng.standard_normal(300).astype(dtype)
    for engine in engines():
        loaded = engine.load_operator(operator)
        multiply = engine.column_product(loaded, dtype)
        before = replace(engine.work)
        for _ in range(2):  # nothing of the first product is left in the second
            found = multiply(x)
            assert found.dtype == dtype
        assert engine.work.passes == before.passes + 2
        assert engine.work.matvecs == before.matvecs + 2
        expected = engine.apply(loaded, x[:, None])[:, 0]
        if engine.name == "local":
            assert np.array_equal(found, expected)
        np.testing.assert_allclose(found, operator.to_dense() @ x, rtol=1e-4, atol=1e-3)


def test_a_graph_without_edges_has_products():
    operator = laplacian(Graph.from_edges([], [], n_nodes=4), "unnormalized", allow_isolated=True)
    assert np.array_equal(LocalEngine().column_product(operator, np.float64)(np.ones(4)), np.zeros(4))
