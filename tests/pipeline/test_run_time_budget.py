"""A time budget is for all of a run; counted, not timed."""

import math

import numpy as np
import pytest

from spectrograd import datasets
from spectrograd.labels import assign, kmeans
from spectrograd.pipeline import RunContext, Settings, cluster, embed
from spectrograd.solvers import settings as solver_settings

OVER = -math.inf  # a moment that is always past


def test_solver_certificate_and_labels_share_the_budget(monkeypatch):
    monkeypatch.setattr(solver_settings.time, "perf_counter", lambda: 100.0)
    settings = Settings(time_budget=10.0)
    with_labels = RunContext().start_clock(settings, labels=True)
    assert 100 < with_labels.deadline < with_labels.certified_by < with_labels.labelled_by == 110
    assert with_labels.solver_seconds == pytest.approx(with_labels.deadline - 100)
    assert with_labels.start_clock(settings) is with_labels
    alone = RunContext().start_clock(settings)
    assert with_labels.deadline < alone.deadline < alone.certified_by == 110


def test_without_time_k_means_begins_once(monkeypatch):
    looks = []
    kept = kmeans.descend
    monkeypatch.setattr(kmeans, "descend", lambda *a, **k: looks.append(1) or kept(*a, **k))
    rows = np.random.default_rng(0).standard_normal((3000, 6))
    assign(rows, 6, random_state=0)
    usual = len(looks)
    looks.clear()
    found = assign(rows, 6, random_state=0, deadline=OVER)
    assert len(looks) == 2 < usual  # one search, one run over all rows
    assert set(found.labels) == set(range(6))


def test_a_certificate_without_time_says_so():
    data = datasets.make_block_model(6000, 4, random_state=0)
    late = RunContext(certified_by=OVER)
    result = embed(data.graph, Settings(n_components=4, solver="lobpcg", seed=0), late)
    assert not result.certificate.converged
    assert "not certified, out of time" in result.certificate.sentence


def test_a_run_out_of_time_has_labels():
    data = datasets.make_block_model(300, 4, random_state=0)
    result = cluster(data.graph, Settings(n_components=4, solver="lanczos", seed=0, time_budget=1e-9))
    assert result.labels is not None
