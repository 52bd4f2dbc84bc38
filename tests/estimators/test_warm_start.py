"""``warm_start=True``: clusters keep their names and the embedding its directions."""

from __future__ import annotations

import numpy as np

from spectrograd import Graph, SpectralClustering, SpectralEmbedding, datasets


def graphs():
    """The same 300 nodes in two orders, the second without the first 20 of them."""
    data = datasets.make_block_model(300, 3, random_state=0)
    names = np.array([f"n{i}" for i in range(300)])
    order = np.random.default_rng(3).permutation(np.arange(20, 300))
    second = data.graph.matrix[order][:, order]
    return Graph.from_matrix(data.graph.matrix, names=names), Graph.from_matrix(second, names=names[order])


def test_labels_and_rows_stay(recwarn):
    first, second = graphs()
    model = SpectralClustering(3, warm_start=True, random_state=0).fit(first)
    before = dict(zip(model.names_.tolist(), model.labels_.tolist(), strict=True))
    rows = dict(zip(model.names_.tolist(), model.embedding_, strict=True))
    model.fit(second)
    kept = [before[name] == label for name, label in zip(model.names_, model.labels_, strict=True)]
    assert np.mean(kept) > 0.95
    assert model.label_changes_.moved == len(kept) - sum(kept)
    old = np.array([rows[name] for name in model.names_])
    assert np.linalg.norm(model.embedding_ - old) < 0.3 * np.linalg.norm(old)
    assert (model.predict(second.matrix) == model.labels_).mean() > 0.95


def test_new_rows_are_turned_as_well():
    first, second = graphs()
    model = SpectralEmbedding(2, warm_start=True, random_state=0, solver="eigen", tol=1e-12).fit(first)
    model.fit(second)
    np.testing.assert_allclose(model.transform(second.matrix), model.embedding_, atol=1e-8)


def test_without_warm_start_nothing_is_remembered():
    first, _ = graphs()
    model = SpectralClustering(3, random_state=0).fit(first).fit(first)
    assert not hasattr(model, "label_changes_")
