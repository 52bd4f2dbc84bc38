"""Attributes of 0.1 work for one release, with a warning that names the new one."""

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import SpectralClustering, datasets


@pytest.mark.filterwarnings("ignore::spectrograd.graph.GraphWarning")
def test_old_names_of_attributes_warn():
    graph = datasets.make_block_model(300, 3, random_state=0).graph
    matrix = sp.block_diag([graph.matrix, [[0]]], format="csr")
    model = SpectralClustering(3, affinity="precomputed", random_state=0)
    assert not hasattr(model, "set_aside_")
    model.fit(matrix)
    with pytest.warns(FutureWarning, match="excluded_"):
        assert np.array_equal(model.set_aside_, model.excluded_)
    with pytest.warns(FutureWarning, match="complete_below"):
        assert model.certificate_.sure == model.certificate_.complete_below
