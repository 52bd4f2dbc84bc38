"""Torch's tensors as graphs and points."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from spectrograd import (
    Graph,
    MultilayerGraph,
    MultilayerSpectralEmbedding,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
    from_pyg,
    load,
)
from spectrograd.torch import embedding_tensor, keep_on_device

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


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_tensor_on_the_engines_device(matrix, form):
    """What lies on the device goes where arrays go, and the same embedding comes back."""
    model = SpectralEmbedding(2, affinity="precomputed", engine="torch:cpu", random_state=0)
    expected = SpectralEmbedding(2, affinity="precomputed", random_state=0).fit(matrix).embedding_
    np.testing.assert_allclose(model.fit(tensor_of(matrix, form)).embedding_, expected, atol=1e-3)


def component_labels(matrix):
    """The same with a node that has no edge, which is excluded, and nodes in another order."""
    larger = np.zeros((201, 201))
    larger[1:, 1:] = matrix
    order = np.random.default_rng(0).permutation(201)
    return larger[order][:, order]


KEPT = {
    "embedding": lambda: SpectralEmbedding(2, affinity="precomputed"),
    "all columns": lambda: SpectralEmbedding(3, drop_first=False, affinity="precomputed"),
    "clusters": lambda: SpectralClustering("auto", affinity="precomputed"),
    "layers": lambda: MultilayerSpectralEmbedding(2, affinity="precomputed"),
    "followed": lambda: SpectralEmbedding(2, affinity="precomputed", warm_start=True),
}


@pytest.mark.filterwarnings("ignore::spectrograd.GraphWarning")
@pytest.mark.parametrize("kind", KEPT)
def test_an_embedding_that_stays_on_the_device(matrix, kind):
    model = keep_on_device(KEPT[kind]().set_params(engine="torch:cpu", random_state=0))
    given = component_labels(matrix)
    given = [given, given] if kind == "layers" else given
    model.fit(given)
    if kind == "followed":
        model.fit(given)  # rotated onto the first
        assert model._rotation is not None
    tensor = embedding_tensor(model)
    np.testing.assert_allclose(tensor.numpy(), model.embedding_, atol=1e-12)
    assert tensor.dtype == torch.float64
    assert tensor.untyped_storage().data_ptr() != model.embedding_.__array_interface__["data"][0]
    np.testing.assert_array_equal(np.from_dlpack(tensor), tensor.numpy())
    model.embedding_ = np.full_like(model.embedding_, np.nan)  # what the host has plays no part
    assert bool(torch.isfinite(embedding_tensor(model)).all())


def test_only_engines_of_torch_keep_tensors():
    with pytest.raises(ValueError, match="engine='auto' has no device to keep tensors on"):
        keep_on_device(SpectralEmbedding(2))


def test_a_saved_model_leaves_its_tensor_behind(matrix, tmp_path):
    model = keep_on_device(SpectralEmbedding(2, affinity="precomputed", engine="torch:cpu", random_state=0))
    model.fit(matrix).save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(embedding_tensor(again).numpy(), model.embedding_)
