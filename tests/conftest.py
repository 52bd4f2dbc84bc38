"""Fixtures that several rooms share."""

from __future__ import annotations

import os

import numpy as np
import pytest

import reference

# Processes of xdist are told that their lines have 80 columns: commands would draw narrow tables.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="module")
def graphs():
    """A weighted and an unweighted graph, large enough for several chunks of every batch kernel."""
    return {
        weighted: reference.random_graph(1300, np.random.default_rng(5), weighted=weighted)
        for weighted in (True, False)
    }
