"""scikit-learn's own tests of spectral clustering and embedding, run against our classes.

The two modules are loaded from the installed scikit-learn; the names they test are replaced by ours.
Every difference stands in DIFFERENCES with its reason, and in docs/coming_from_scikit_learn.md: a listed
test that passes is a failure, and so is an unlisted one that fails.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import sklearn

from spectrograd import SpectralClustering, SpectralEmbedding
from spectrograd.labels.assign import assign

MODULES = {
    "clustering": "cluster/tests/test_spectral.py",
    "embedding": "manifold/tests/test_spectral_embedding.py",
}
# Test of scikit-learn, with the module in its name -> what ours does instead.
DIFFERENCES = {
    "test_clustering_affinities": (
        "a graph in several components is clustered as it is; only tiny components (isolated nodes, a few "
        "nodes) are excluded, with a warning that names them"
    ),
    "test_clustering_verbose": "`verbose` writes to the logger `spectrograd`, not to standard output",
    "test_clustering_spectral_clustering_not_infinite_loop": (
        "a failing SVD is raised at once, with numpy's own message; there are no restarts"
    ),
    "test_embedding_fallback_amg": (
        "`amg` also runs on dense and on small graphs, where scikit-learn warns and takes ARPACK"
    ),
}
# They test private helpers of scikit-learn, or which function of scipy it calls: nothing of ours runs.
NOT_ABOUT_US = {
    "test_sparse_graph_connected_component",
    "test_connectivity",
    "test_spectral_eigen_tol_auto",
}


def spectral_clustering(affinity, **params):
    return SpectralClustering(affinity="precomputed", **params).fit(affinity).labels_


def spectral_embedding(adjacency, *, n_components=8, norm_laplacian=True, **params):
    kind = "random_walk" if norm_laplacian else "unnormalized"
    return SpectralEmbedding(n_components, affinity="precomputed", laplacian=kind, **params).fit_transform(
        adjacency
    )


def cluster_qr(vectors):
    return assign(vectors, vectors.shape[1], method="cluster_qr").labels


def discretize(vectors, random_state=None):
    rng = np.random.default_rng(None if random_state is None else random_state.randint(2**31))
    return assign(vectors, vectors.shape[1], method="discretize", random_state=rng).labels


OURS = (
    SpectralClustering,
    SpectralEmbedding,
    spectral_clustering,
    spectral_embedding,
    cluster_qr,
    discretize,
)


def with_our_names(name: str) -> ModuleType:
    """A private copy of a test module of scikit-learn in which the names are ours."""
    path = Path(sklearn.__file__).parent / MODULES[name]
    if not path.exists():
        pytest.skip(f"this scikit-learn comes without {MODULES[name]}", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(f"sklearn_{name}_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for ours in OURS:
        if hasattr(module, ours.__name__):
            setattr(module, ours.__name__, ours)
    return module


for _kind in MODULES:
    for _name, _test in vars(with_our_names(_kind)).items():
        if _name.startswith("test_") and _name not in NOT_ABOUT_US:
            globals()[_name.replace("test_", f"test_{_kind}_", 1)] = _test


@pytest.fixture(params=[0, 42])
def global_random_seed(request):
    """As the fixture of scikit-learn's conftest."""
    return request.param


@pytest.fixture(autouse=True)
def _listed_differences(request):
    """A listed test must fail, an unlisted one must pass."""
    reason = DIFFERENCES.get(request.node.originalname)
    if reason:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def test_every_listed_difference_is_a_test_and_documented():
    page = (Path(__file__).parents[2] / "docs" / "coming_from_scikit_learn.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(test_\w+)` \| (.+) \|$", page, flags=re.MULTILINE))
    assert rows == DIFFERENCES
    assert DIFFERENCES.keys() <= globals().keys()


def test_the_names_under_test_are_ours():
    tests = [
        test for name, test in globals().items() if name.startswith(("test_clustering_", "test_embedding_"))
    ]
    assert len(tests) > 25
    for ours in OURS:
        assert any(test.__globals__.get(ours.__name__) is ours for test in tests)
