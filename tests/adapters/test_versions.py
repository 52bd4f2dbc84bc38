"""Other libraries in other versions: the least supported one is named."""

from __future__ import annotations

import types

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import networkx_backend, pyg, system
from spectrograd.io.interop.anndata import from_anndata
from spectrograd.scanpy import read_neighbors
from spectrograd.system import MissingExtra, check_version

LEAST = {"anndata": "0.11", "mudata": "0.3", "networkx": "3.4", "torch_geometric": "2.6"}


@pytest.fixture
def old_packages(monkeypatch):
    """All of them installed in a version that is too old."""
    monkeypatch.setattr(system, "_least_versions", lambda: LEAST)
    monkeypatch.setattr(system, "_installed_version", lambda package: "0.2.9.post1")


def neighbours():
    adata = types.SimpleNamespace(obs_names=["a", "b"], obsm={}, uns={})
    adata.obsp = {"connectivities": sp.csr_array(np.ones((2, 2)) - np.eye(2))}
    return adata


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: from_anndata(neighbours()), r"an AnnData needs anndata 0\.11 or later, and 0\.2\.9"),
        (lambda: read_neighbors(types.SimpleNamespace(mod={})), r"a MuData needs mudata 0\.3 or later"),
        (lambda: networkx_backend.convert_from_nx(None), r"needs networkx 3\.4 or later"),
    ],
)
@pytest.mark.usefixtures("old_packages")
def test_the_least_supported_version_is_named(call, words):
    with pytest.raises(MissingExtra, match=words):
        call()


@pytest.mark.usefixtures("old_packages")
def test_the_least_supported_version_of_pyg_is_named():
    pytest.importorskip("torch")
    with pytest.raises(MissingExtra, match=r"torch_geometric 2\.6 or later.*pip install --upgrade"):
        pyg.AddLaplacianEigenvectorPE(3)(types.SimpleNamespace(edge_index=None))


def test_versions_are_compared_by_numbers_and_unknown_packages_pass(monkeypatch):
    monkeypatch.setattr(system, "_least_versions", lambda: {"networkx": "3.4"})
    for installed in ("3.4", "3.10.1", "4.0rc1", None):
        monkeypatch.setattr(system, "_installed_version", lambda package, installed=installed: installed)
        check_version("networkx", "a test")
        check_version("unheard_of", "a test")


def test_the_least_versions_are_those_of_the_extras():
    found = system._least_versions()
    if not found:
        pytest.skip("the library is not installed here")
    assert {name: found[name] for name in LEAST} == LEAST
