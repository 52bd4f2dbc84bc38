"""Torch's tensors as graphs and points."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralEmbedding,
    SpectralEmbedding,
    datasets,
    from_pyg,
)
from spectrograd.torch import embedding_tensor

torch = pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")
FORMS = ["dense", "coo", "csr", "csc", "bsr", "bfloat16", "requires_grad"]


@pytest.fixture(scope="module")
def matrix():
    return datasets.make_block_model(200, 3, random_state=0).graph.matrix.toarray()


def tensor_of(matrix, form):
    dense = torch.tensor(matrix)
    if form == "bsr":
        return dense.to_sparse_bsr((2, 2))
    if form == "bfloat16":
        return dense.bfloat16()
    if form == "requires_grad":
        return dense.requires_grad_()
    return dense if form == "dense" else getattr(dense, "to_sparse_" + form)()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_is_a_matrix(matrix, form):
    tensor = tensor_of(matrix, form)
    np.testing.assert_array_equal(Graph.from_matrix(tensor).matrix.toarray(), matrix)
    model = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(tensor)
    expected = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(matrix)
    np.testing.assert_allclose(model.embedding_, expected.embedding_, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_an_uncoalesced_tensor_is_summed_with_a_word(matrix):
    rows, cols = np.nonzero(matrix)
    doubled = torch.tensor(np.array([np.r_[rows, rows], np.r_[cols, cols]]))
    tensor = torch.sparse_coo_tensor(doubled, torch.ones(2 * len(rows)), matrix.shape)
    assert Graph.from_matrix(tensor).degrees.sum() == 2 * matrix.sum()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_layers_and_points(matrix):
    layers = MultilayerGraph.from_layers([torch.tensor(matrix).to_sparse_csr(), torch.tensor(matrix)])
    assert [layer.n_edges for layer in layers.layers] == [int(matrix.sum()) // 2] * 2
    model = MultilayerSpectralEmbedding(2, affinity="precomputed", random_state=0)
    assert model.fit([torch.tensor(matrix), torch.tensor(matrix)]).embedding_.shape == (200, 2)
    points = torch.randn(150, 3, generator=torch.Generator().manual_seed(0))
    model = SpectralEmbedding(2, random_state=0).fit(points)
    assert model.embedding_.dtype == np.float32


def test_pyg_data_of_tensors(matrix):
    index = torch.tensor(np.array(np.nonzero(matrix)))
    data = SimpleNamespace(edge_index=index, edge_weight=torch.ones(index.shape[1]).bfloat16(), num_nodes=200)
    np.testing.assert_array_equal(from_pyg(data).matrix.toarray(), matrix)


@pytest.mark.parametrize("engine", ["auto", "torch:cpu"])
def test_an_embedding_as_a_tensor(matrix, engine):
    model = SpectralEmbedding(2, affinity="precomputed", engine=engine, random_state=0).fit(matrix)
    tensor = embedding_tensor(model)
    assert tensor.device.type == "cpu"
    np.testing.assert_array_equal(tensor.numpy(), model.embedding_)
    with pytest.raises(ValueError, match="no such card"):
        embedding_tensor(model, "cuda:99")
