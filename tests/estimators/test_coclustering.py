"""Co-clustering: the dense twin, scikit-learn's own tests of the class, many clusters, refusals."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_biclusters
from sklearn.metrics import consensus_score

from spectrograd import SpectralCoclustering, metrics
from spectrograd.graph import GraphError, GraphWarning


def test_singular_values_are_those_of_the_normalised_table():
    table = np.random.default_rng(0).random((40, 25)) * (np.random.default_rng(1).random((40, 25)) < 0.4)
    table += 0.01
    scaled = table / np.sqrt(np.outer(table.sum(axis=1), table.sum(axis=0)))
    for form in (np.asarray, sp.csr_array):
        for X in (form(table), form(table.T), form(table.astype(np.float32))):
            model = SpectralCoclustering(3, random_state=0, tol=1e-9 if X.dtype == float else "auto").fit(X)
            assert np.allclose(model.singular_values_, np.linalg.svd(scaled)[1][:3], atol=1e-6)
            assert model.converged_


@pytest.mark.parametrize("shape", [(300, 200), (200, 300)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_planted_biclusters_are_found(shape, form):
    table, rows, columns = make_biclusters(shape, 12, noise=3, minval=10, maxval=50, random_state=0)
    table = np.where(table > 8, table, 0)
    model = SpectralCoclustering(12, random_state=0).fit(form(table))
    assert consensus_score(model.biclusters_, (rows, columns)) > 0.99
    again = clone(model).fit(form(table))
    assert np.array_equal(again.row_labels_, model.row_labels_)


def test_both_sides_of_a_bipartite_graph_have_one_embedding():
    """Rows and columns are labelled as the nodes of the graph that is never formed."""
    from spectrograd import SpectralClustering

    table, _rows, _ = make_biclusters((120, 90), 4, noise=2, random_state=0)
    table = np.maximum(table, 0)
    both = sp.block_array([[None, sp.csr_array(table)], [sp.csr_array(table).T, None]], format="csr")
    graph = SpectralClustering(4, affinity="precomputed", random_state=0).fit(both)
    model = SpectralCoclustering(4, random_state=0).fit(table)
    ours = np.concatenate([model.row_labels_, model.column_labels_])
    assert metrics.nmi(graph.labels_, ours) > 0.95


def test_rows_and_columns_of_zeros_belong_to_no_cluster():
    table = np.kron(np.eye(3), np.ones((4, 5))) + 0.01
    table[2] = 0
    table[:, 7] = 0
    with pytest.warns(GraphWarning, match="1 rows and 1 columns are zero"):
        model = SpectralCoclustering(3, random_state=0).fit(table)
    assert model.row_labels_[2] == model.column_labels_[7] == -1
    assert not model.rows_[:, 2].any()
    assert set(model.row_labels_[[0, 4, 8]]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("table", "params", "message"),
    [
        (-np.ones((4, 3)), {}, "negative entries, the smallest -1"),
        (np.zeros((4, 3)), {}, "all of its entries are zero"),
        (np.ones((4, 3)), {"n_clusters": 5}, "n_clusters=5: expected a whole number from 1 to"),
        (np.ones((4, 3)), {"svd_method": "magic"}, "svd_method='magic'"),
        (np.full((4, 3), np.nan), {}, "NaN"),
    ],
)
def test_bad_tables_are_refused(table, params, message):
    with pytest.raises(ValueError, match=message) as caught:
        SpectralCoclustering(**params).fit(table)
    assert isinstance(caught.value, GraphError | ValueError)


def _scikit_learns_module():
    path = Path(sklearn.__file__).parent / "cluster/tests/test_bicluster.py"
    spec = importlib.util.spec_from_file_location("sklearn_bicluster_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SpectralCoclustering = SpectralCoclustering
    return module


_THEIRS = _scikit_learns_module()
test_scikit_learns_coclustering = _THEIRS.test_spectral_coclustering


@pytest.fixture(params=[0, 42])
def global_random_seed(request):
    """As the fixture of scikit-learn's conftest."""
    return request.param


@pytest.mark.parametrize("index", [5, -1, 2**24])
def test_a_table_with_columns_out_of_range_is_refused(index):
    """Compiled sums of scipy would write there."""
    table = sp.csr_array(np.ones((8, 5)))
    table.indices[7] = index
    with pytest.raises(GraphError, match=f"broken sparse matrix: column index {index}"):
        SpectralCoclustering(2).fit(table)


def test_scikit_learns_checks_of_features():
    table = np.random.default_rng(0).random((20, 6))
    model = SpectralCoclustering(2).fit(table)
    assert model.n_features_in_ == 6
    assert model.get_shape(0)[0] == model.rows_[0].sum()
    assert len(model.get_indices(1)[1]) == model.columns_[1].sum()


def test_small_singular_values_are_no_divergence():
    """Eigenvalues ``1 - sigma^2`` near the upper end: their sum is above that of an unknown start."""
    rng = np.random.default_rng(0)
    topics = np.arange(9000) % 6
    words = np.arange(4500) % 6
    chances = np.where(topics[:, None] == words[None, :], 0.02, 0.004).astype(np.float32)
    table = sp.csr_array((rng.random(chances.shape, np.float32) < chances).astype(float))
    model = SpectralCoclustering(6, random_state=0).fit(table)
    assert model.singular_values_[1] < 0.5
    assert model.converged_
    assert metrics.nmi(topics, model.row_labels_) > 0.9
