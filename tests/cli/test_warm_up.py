"""``spectrograd warm-up``: kernels are compiled once, and then found on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from spectrograd.cli import main
from spectrograd.cli.warm_up import KIND_NAMES
from spectrograd.pipeline.warm_up import KINDS, warm_up

KERNEL = """
import numpy as np
from spectrograd.datasets import make_block_model
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.warm_up import _counted
graph = make_block_model(5_000, 2, random_state=0).graph
with _counted() as compiled:
    laplacian(graph) @ np.ones((5_000, 1))
print(sorted(set(compiled)))
"""


def test_the_command_knows_all_kinds():
    assert set(KIND_NAMES) == set(KINDS)


def test_an_unknown_kind_is_refused(capsys):
    assert main(["warm-up", "--kind", "coffee"]) == 2
    assert "'coffee' is not one of" in capsys.readouterr().err
    with pytest.raises(ValueError, match="kind 'coffee': expected some of graphs"):
        list(warm_up(("coffee",)))


def test_what_was_compiled_is_printed_and_summarised(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "sgd", KINDS["sgd"]._replace(run=lambda: None))
    assert main(["warm-up", "--kind", "sgd", "--summary-json", str(tmp_path / "s.json")]) == 0
    assert "sgd: mini-batches of edges: 0 compiled" in capsys.readouterr().err
    (kind,) = json.loads((tmp_path / "s.json").read_text())["kinds"]
    assert (kind["kind"], kind["compiled"]) == ("sgd", 0)


def test_compilations_are_counted_and_not_those_from_disk(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", KERNEL]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "laplacian_column" in first
    assert second.strip() == "[]"
