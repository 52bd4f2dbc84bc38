"""Importing is quick: heavy things are loaded when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import spectrograd

HEAVY = ["numpy", "scipy.sparse.linalg", "sklearn", "numba", "matplotlib", "pandas", "click"]


def modules_after(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = modules_after("import spectrograd")
    assert "spectrograd" in loaded
    assert not loaded.intersection(HEAVY)


def test_graphs_need_neither_sklearn_nor_numba():
    loaded = modules_after("from spectrograd import Graph, MultilayerGraph; Graph.from_edges([0], [1])")
    assert "spectrograd.graph" in loaded
    assert not loaded.intersection({"sklearn", "numba", "matplotlib", "scipy.sparse.linalg"})


def test_the_estimators_need_neither_numba_nor_matplotlib():
    loaded = modules_after("from spectrograd import SpectralClustering")
    assert "sklearn" in loaded
    assert not loaded.intersection({"numba", "matplotlib"})


@pytest.mark.parametrize(("n_rows", "absent"), [(50, {"sklearn", "numba"}), (5_000, {"sklearn"})])
def test_labels_are_made_without_scikit_learn(n_rows, absent):
    loaded = modules_after(
        "import numpy as np; from spectrograd.labels.assign import assign;"
        f" X = np.random.default_rng(0).standard_normal(({n_rows}, 3));"
        " assign(X, 3, unit_rows=True, norm_regularization=1.0)"
    )
    assert not loaded.intersection(absent)


@pytest.mark.parametrize("name", spectrograd.__all__)
def test_every_public_name_is_there(name):
    assert getattr(spectrograd, name) is not None
    assert name in dir(spectrograd)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = spectrograd.nonsense
    assert spectrograd.__version__
