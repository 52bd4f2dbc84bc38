"""Cells of an AnnData as rows of features that stay in their file."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import SpectralClustering, load, metrics
from spectrograd.graph import GraphError
from spectrograd.graph.features import feature_graph
from spectrograd.io.features import H5adFeatures, read_features

anndata = pytest.importorskip("anndata")

RNG = np.random.default_rng(0)
LABELS = np.arange(300) % 3
RATES = RNG.random((3, 200)) ** 6
COUNTS = sp.csr_array(RNG.poisson(30 * RATES[LABELS] / RATES.sum(axis=1)[LABELS, None]).astype(np.float32))
NAMES = [f"cell{i}" for i in range(300)]


def write_cells(path, X):
    data = anndata.AnnData(X)
    data.obs_names = NAMES
    data.write_h5ad(path)
    return path


@pytest.mark.parametrize(
    "form", [sp.csr_matrix, lambda X: X.toarray(), lambda X: sp.csr_matrix(X.astype(int))]
)
def test_cells_are_streamed(tmp_path, monkeypatch, form):
    monkeypatch.setattr("spectrograd.io.features.BLOCK_BYTES", 4096)
    path = write_cells(tmp_path / "cells.h5ad", form(COUNTS))
    stream, names = read_features(path, memory_limit=1)
    assert isinstance(stream, H5adFeatures)
    assert names.tolist() == NAMES
    assert len(list(stream.blocks())) > 5
    X = np.random.default_rng(1).standard_normal((300, 2))
    assert np.allclose(stream.project(X), COUNTS.T @ X)
    assert np.allclose(feature_graph(stream).degrees, feature_graph(COUNTS).degrees)
    resident, _ = read_features(path)
    assert abs(sp.csr_array(resident) - COUNTS).max() == 0


def test_an_estimator_takes_the_file(tmp_path):
    path = write_cells(tmp_path / "cells.h5ad", sp.csr_matrix(COUNTS))
    there = SpectralClustering(3, affinity="cosine", memory_limit="400MB", random_state=0).fit(path)
    here = SpectralClustering(3, affinity="cosine", random_state=0).fit(COUNTS)
    assert np.array_equal(there.labels_, here.labels_)
    assert metrics.nmi(LABELS, there.labels_) > 0.8
    there.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(COUNTS[:20]), there.labels_[:20])


def test_files_that_hold_no_rows_of_features_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = write_cells(tmp_path / "cells.h5ad", sp.csc_matrix(COUNTS))
    with pytest.raises(GraphError, match="X is stored as 'csc_matrix': save it as CSR"):
        read_features(path)
    path = write_cells(tmp_path / "bad.h5ad", sp.csr_matrix(COUNTS))
    with h5py.File(path, "a") as file:
        file["X/indptr"][-1] += 7
    with pytest.raises(GraphError, match="row pointers of X do not fit"):
        read_features(path)
    with h5py.File(path, "a") as file:
        file["X/indptr"][-1] -= 7
        file["X/indices"][3] = 200
    with pytest.raises(GraphError, match="a column is out of range"):
        feature_graph(read_features(path, memory_limit=1)[0])
    with h5py.File(path, "a") as file:
        del file["X"]
    with pytest.raises(GraphError, match="holds no cells and features"):
        read_features(path)
    (tmp_path / "text.h5ad").write_text("no file of HDF5")
    with pytest.raises(GraphError, match="cannot be read as an AnnData"):
        read_features(tmp_path / "text.h5ad")
