"""Diffusion maps have the vectors of pydiffmap and of scanpy, from the same kernel."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import DiffusionMap, Graph

RNG = np.random.default_rng(0)
ANGLE = np.sort(RNG.uniform(0, 1, 800)) * 3 * np.pi / 2 + np.pi / 2
ROLL = np.column_stack([ANGLE * np.cos(ANGLE), RNG.uniform(0, 8, 800), ANGLE * np.sin(ANGLE)])


def up_to_signs(A, B):
    """A with the signs and lengths of the columns of B."""
    return A * (A * B).sum(axis=0) / (A * A).sum(axis=0)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_vectors_are_those_of_pydiffmap(alpha):
    theirs = pytest.importorskip("pydiffmap.diffusion_map")
    rival = theirs.DiffusionMap.from_sklearn(n_evecs=3, epsilon=1.0, alpha=alpha, k=64).fit(ROLL)
    K = sp.csr_array(rival.kernel_matrix)
    own = float(K.diagonal()[0])
    K.setdiag(0)
    K.eliminate_zeros()
    model = DiffusionMap(3, alpha=alpha, t=0, self_weight=own, tol=1e-9).fit(Graph.from_matrix(K))
    # their eigenvalues are those of the generator (P - I) / epsilon
    assert np.allclose(model.eigenvalues_, 1 + rival.epsilon_fitted * rival.evals, atol=1e-8)
    assert np.allclose(up_to_signs(model.embedding_, rival.evecs), rival.evecs, atol=1e-6)


def test_vectors_are_those_of_scanpy():
    scanpy = pytest.importorskip("scanpy")
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(ROLL.astype(np.float32))
    scanpy.pp.neighbors(data, n_neighbors=15, use_rep="X", knn=True)
    scanpy.tl.diffmap(data, n_comps=4)
    W = sp.csr_array(data.obsp["connectivities"]).astype(np.float64)
    model = DiffusionMap(3, alpha=1.0, t=0, tol=1e-9).fit(Graph.from_matrix(W))
    assert np.allclose(model.eigenvalues_, data.uns["diffmap_evals"][1:], atol=1e-5)
    # eigenvectors of the symmetric transition matrix are psi sqrt(d)
    psi = data.obsm["X_diffmap"][:, 1:] / data.obsm["X_diffmap"][:, :1]
    scaled = up_to_signs(model.embedding_, psi)
    assert np.abs(scaled - psi).max() < 1e-3 * np.abs(psi).max()
