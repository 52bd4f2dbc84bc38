"""Clusters of very many rows: the same as of few, without a second array of their size."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from anonymous_memory import peak_of
from spectrograd import metrics
from spectrograd.labels import assign, sampled_kmeans


def noisy_rows(n, k, dtype=np.float32):
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    rows = rng.normal(scale=0.15, size=(n, k)) + np.eye(k)[truth]
    return (rows * rng.uniform(0.5, 2, (n, 1))).astype(dtype), truth


@pytest.mark.parametrize("norm_regularization", [0.0, 1.0])
def test_one_sweep_finds_what_many_steps_find(monkeypatch, norm_regularization):
    rows, truth = noisy_rows(60_000, 5)
    excluded = np.array([3, 50_000])
    rows[excluded] = 0
    given = {
        "unit_rows": True,
        "norm_regularization": norm_regularization,
        "excluded": excluded,
        "random_state": 0,
    }
    here = assign(rows, 5, **given)
    monkeypatch.setattr(import_module("spectrograd.labels.assign"), "MAX_COPIED_ROWS", 10_000)
    monkeypatch.setattr(sampled_kmeans, "SAMPLE_ROWS", 20_000)
    swept = assign(rows, 5, **given)
    assert metrics.score(here.labels, swept.labels)["ari"] > 0.999
    assert metrics.score(truth, swept.labels)["ari"] > 0.97
    assert swept.labels[excluded].tolist() == [-1, -1]
    assert np.isnan(swept.membership[excluded]).all()
    np.testing.assert_allclose(swept.membership, here.membership, atol=0.02)
    assert swept.inertia == pytest.approx(here.inertia, rel=1e-2)
    firsts = [int(np.argmax(swept.labels == label)) for label in range(5)]
    assert firsts == sorted(firsts)  # numbered as they first appear


WORK = """
import sys
from importlib import import_module
import numpy as np
from spectrograd.io import write_embedding, write_labels
from spectrograd.labels import assign, sampled_kmeans
from spectrograd.system import _status_bytes

n, k, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
import_module("spectrograd.labels.assign").MAX_COPIED_ROWS, sampled_kmeans.SAMPLE_ROWS = 100_000, 20_000
rng = np.random.default_rng(0)
rows = rng.random((n, k), dtype=np.float32)
assign(rows[:5000], k, unit_rows=True, random_state=0)  # loads all that is needed
write_labels(folder + "/warm.csv", [0])
write_embedding(folder + "/warm.parquet", rows[:5000])
before = _status_bytes("RssAnon")
found = assign(rows, k, unit_rows=True, norm_regularization=1.0, random_state=0, n_init=1)
write_labels(folder + "/labels.csv", found.labels)
write_embedding(folder + "/rows.npy", rows[:, 1:])
write_embedding(folder + "/rows.parquet", rows[:, 1:])
print(before)
"""


def test_labels_and_files_make_no_second_embedding(tmp_path):
    n, k = 250_000, 64
    peak, printed = peak_of("-c", WORK, n, k, tmp_path)
    assert peak - int(printed) < 1.25 * 4 * n * k  # unit rows in double precision alone are 8 n k
    assert np.load(tmp_path / "rows.npy", mmap_mode="r").shape == (n, k - 1)
    assert (tmp_path / "labels.csv").read_bytes().count(b"\n") == n + 1
