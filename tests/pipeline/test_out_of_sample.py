"""Rows of the training graph give the rows of the embedding back, whatever the operator."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import Graph, MultilayerGraph, datasets
from spectrograd.pipeline import Settings, embed
from spectrograd.pipeline.out_of_sample import NewRows, extension_of

KINDS = ("random_walk", "symmetric", "unnormalized")


def fitted(graph, n_components=4, **options):
    settings = Settings(n_components=n_components, seed=0, solver="eigen", tol=1e-12, **options)
    result = embed(graph, settings)
    return result, extension_of(graph, result, settings)


def blocks(seed=0, n_nodes=200, weighted=True):
    graph = datasets.make_block_model(n_nodes, 3, random_state=seed).graph
    if not weighted:
        return graph
    upper = sp.triu(graph.matrix).tocsr()
    upper.data = np.random.default_rng(seed).uniform(0.5, 2, upper.nnz)
    return Graph.from_matrix(upper + upper.T)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [None, 0.3])
def test_rows_of_the_graph_are_their_own_extension(kind, tau):
    graph = blocks()
    result, extension = fitted(graph, laplacian=kind, regularization=tau)
    found = extension.extend(NewRows((graph.matrix,)))
    np.testing.assert_allclose(found.vectors, result.vectors, atol=1e-8)
    assert found.reached.all()


@pytest.mark.parametrize("policy", ["components", "largest", "regularize"])
def test_graphs_in_pieces(policy):
    apart = sp.block_diag([blocks(1).matrix, blocks(2, 120).matrix, [[0, 1], [1, 0]]]).tocsr()
    graph = Graph.from_matrix(apart)
    with pytest.warns(UserWarning, match="excluded") if policy != "regularize" else nullcontext():
        result, extension = fitted(graph, disconnected=policy)
    found = extension.extend(NewRows((graph.matrix,)))
    np.testing.assert_allclose(found.vectors, result.vectors, atol=1e-8)
    assert found.reached[-1] == (policy == "regularize")


@pytest.mark.parametrize("aggregation", ["projection", "mean", "sum", "grassmann"])
@pytest.mark.parametrize("kind", ["symmetric", "unnormalized"])
@pytest.mark.parametrize("tau", [None, 0.3])
def test_layers(aggregation, kind, tau):
    layers = [blocks(seed).matrix.tolil() for seed in range(3)]
    layers[1][5], layers[1][:, 5] = 0, 0  # a node that one layer does not know
    graph = MultilayerGraph.from_layers([layer.tocsr() for layer in layers])
    options = {"laplacian": kind, "regularization": tau, "layer_weights": (1.0, 2.0, 0.5)}
    result, extension = fitted(graph, aggregation=aggregation, **options)
    found = extension.extend(NewRows(tuple(layer.matrix for layer in graph.layers)))
    rows = np.arange(graph.n_nodes)
    if tau and kind == "unnormalized":  # an eigenvalue of the layer meets the degree of its lonely node
        rows = np.delete(rows, 5)
    np.testing.assert_allclose(found.vectors[rows], result.vectors[rows], atol=1e-6)


def test_functions_of_layers_have_no_rows():
    graph = MultilayerGraph.from_layers([blocks(seed) for seed in range(2)])
    assert fitted(graph, aggregation="power-mean")[1] is None


def test_each_row_by_itself_to_the_last_bit():
    graph = MultilayerGraph.from_layers([blocks(seed) for seed in range(2)])
    _, extension = fitted(graph)
    whole = extension.extend(NewRows(tuple(layer.matrix for layer in graph.layers))).vectors
    for row in (0, 17, 199):
        alone = extension.extend(NewRows(tuple(layer.matrix[[row]] for layer in graph.layers))).vectors
        np.testing.assert_array_equal(alone[0], whole[row])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_new_nodes_joined_to_new_nodes_only(kind):
    graph = blocks(weighted=False)
    kept, new = np.arange(180), np.arange(180, 200)
    _, extension = fitted(Graph.from_matrix(graph.matrix[kept][:, kept]), 3, laplacian=kind)
    known = graph.matrix[new][:, kept].tolil()
    between = graph.matrix[new][:, new].tolil()
    known[0] = 0  # node 180 knows node 181 only, a chain of two
    between[0], between[:, 0] = 0, 0
    between[0, 1] = between[1, 0] = 1
    found = extension.extend(NewRows((known.tocsr(),), (between.tocsr(),)))
    assert found.reached.all()
    one, two = found.vectors[:2]
    assert one @ two > 0.9 * np.linalg.norm(one) * np.linalg.norm(two)
    lonely = extension.extend(NewRows((known.tocsr()[:1],), (sp.csr_array((1, 1)),)))
    assert not lonely.reached.any()
    assert not lonely.vectors.any()
