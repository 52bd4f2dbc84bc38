"""Models on disk: the same answers, no pickle, clear words about damage."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsTransformer

import spectrograd
from spectrograd import (
    Graph,
    GraphError,
    MultilayerSpectralClustering,
    SpectralClustering,
    SpectralEmbedding,
    datasets,
)


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=250)
    return np.array([[0, 0], [6, 0], [0, 6.0]])[truth] + rng.standard_normal((250, 2))


def cases(X):
    blocks = datasets.make_block_model(200, 3, random_state=0).graph
    named = Graph.from_matrix(blocks.matrix, names=[f"n{i}" for i in range(200)])
    layers = datasets.make_multilayer_gmm(200, 2, 3, random_state=0).graph
    distances = KNeighborsTransformer(n_neighbors=10, mode="distance").fit_transform(X)
    return {
        "points": (SpectralClustering(3, random_state=0), X, X[:5] + 0.1),
        "kernel": (SpectralEmbedding(2, affinity="rbf", random_state=0), X, X[:5] + 0.1),
        "distances": (
            SpectralEmbedding(2, affinity="precomputed_nearest_neighbors"),
            distances,
            distances[:5],
        ),
        "graph": (SpectralClustering(3, random_state=0, laplacian="symmetric"), named, named.matrix[:5]),
        "single": (SpectralEmbedding(2, random_state=0), X.astype(np.float32), X[:5].astype(np.float32)),
        "layers": (
            MultilayerSpectralClustering(3, random_state=0),
            layers,
            [layer.matrix[:5] for layer in layers.layers],
        ),
        "functions": (
            MultilayerSpectralClustering(3, aggregation="power-mean", random_state=0),
            layers,
            None,
        ),
    }


@pytest.mark.parametrize("case", ["points", "kernel", "distances", "graph", "single", "layers", "functions"])
def test_the_same_answers(clouds, tmp_path, case):
    model, given, asked = cases(clouds)[case]
    model.fit(given).save(tmp_path / "model")
    again = spectrograd.load(tmp_path / "model", check=True)
    assert type(again) is type(model)
    assert repr(again.get_params()) == repr(model.get_params())
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    assert again.embedding_.dtype == model.embedding_.dtype
    np.testing.assert_array_equal(again.names_, model.names_)
    assert str(again.knn_recall_) == str(model.knn_recall_)
    assert again.certificate_.sentence == model.certificate_.sentence
    if asked is not None:
        np.testing.assert_array_equal(again.transform(asked), model.transform(asked))
        np.testing.assert_array_equal(again.score_samples(asked), model.score_samples(asked))
    if asked is not None and hasattr(model, "labels_"):
        np.testing.assert_array_equal(again.predict(asked), model.predict(asked))
    again.save(tmp_path / "model")  # over the files it is mapped to
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    assert not list(tmp_path.glob(".*"))


@pytest.fixture
def folder(tmp_path):
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    SpectralClustering(3, random_state=0).fit(graph).save(tmp_path / "model")
    return tmp_path / "model"


def test_no_pickle(folder):
    for path in folder.glob("*.npy"):
        np.load(path, allow_pickle=False)
    assert {path.suffix for path in folder.iterdir()} == {".npy", ".json"}


def test_truncated_and_missing_arrays(folder):
    path = folder / "labels_.npy"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(GraphError, match=r"labels_.npy: \d+ bytes long instead of"):
        spectrograd.load(folder)
    path.unlink()
    with pytest.raises(GraphError, match="missing; save the model again"):
        spectrograd.load(folder)


def test_a_flipped_bit(folder):
    path = folder / "membership_.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    spectrograd.load(folder)
    with pytest.raises(GraphError, match="checksum is wrong"):
        spectrograd.load(folder, check=True)


def test_another_version(folder, monkeypatch):
    from spectrograd.serialization.folders import read_manifest, write_manifest

    write_manifest(folder, read_manifest(folder) | {"version": 99})
    with pytest.raises(GraphError, match=r"format 99.*fit and save it again"):
        spectrograd.load(folder)


def test_damaged_or_foreign_manifests(folder, tmp_path):
    path = folder / "meta.json"
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(GraphError, match="save the model again"):
        spectrograd.load(folder)
    path.write_text(json.dumps({"format": "store"}), encoding="utf-8")
    with pytest.raises(GraphError, match="damaged"):
        spectrograd.load(folder)
    with pytest.raises(GraphError, match="a saved model is a folder"):
        spectrograd.load(tmp_path / "nothing")


def test_what_cannot_be_saved(tmp_path):
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    model = SpectralClustering(3, random_state=np.random.RandomState(0)).fit(graph)
    with pytest.raises(GraphError, match="random_state is of type RandomState"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    pairs = Graph.from_matrix(graph.matrix, names=[(0, i) for i in range(200)])
    with pytest.raises(GraphError, match="rename the nodes"):
        SpectralClustering(3, random_state=0).fit(pairs).save(tmp_path / "model")
    (tmp_path / "mine").mkdir()
    with pytest.raises(GraphError, match="no saved model"):
        SpectralClustering(3, random_state=0).fit(graph).save(tmp_path / "mine")


def test_a_million_nodes_open_at_once(folder, tmp_path):
    """Only the arrays grow with the nodes, and they are mapped."""
    model = spectrograd.load(folder)
    model.embedding_ = np.lib.stride_tricks.as_strided(np.zeros(1), (1_000_000, 3), (0, 0))
    model.save(tmp_path / "large")
    tracemalloc.start()
    vectors = spectrograd.load(tmp_path / "large").embedding_
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert vectors.shape == (1_000_000, 3)
    assert peak < 8e6  # they take 24 MB
