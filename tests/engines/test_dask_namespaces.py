"""Workers with a network of their own: nothing but TCP joins them to the client and to one another."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("distributed")

from benchmarks.namespaces import NET, client_of_namespaces, why_not

from spectrograd import datasets, metrics
from spectrograd.engines import make_engine
from spectrograd.pipeline import Settings, cluster
from spectrograd.solvers.settings import RunContext


def test_workers_in_network_namespaces():
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    graph = datasets.make_block_model(4000, 3, random_state=0).graph
    how = {"n_components": 3, "seed": 0, "solver": "chebyshev", "tol": 1e-8}
    with client_of_namespaces(2) as client:
        assert sorted(client.nthreads())[0].startswith(f"tcp://{NET}.2:")
        seen = client.run(os.listdir, "/sys/class/net")
        assert all(len(names) == 2 for names in seen.values())  # the loopback and one cable
        engine = make_engine(client)
        far = cluster(graph, Settings(**how), RunContext(engine))
        assert engine.bytes_moved() > 4000 * 8 * far.passes
    near = cluster(graph, Settings(**how), RunContext(make_engine("local")))
    Q, P = (np.linalg.qr(found.vectors)[0] for found in (far, near))
    assert np.linalg.norm(Q - P @ (P.T @ Q), 2) < 1e-3
    assert metrics.score(near.labels, far.labels)["ari"] >= 0.99
