"""Faults of the machine against ``convert``, ``cluster``, ``update`` and ``predict``: nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import spectrograd

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(spectrograd.__file__).parents[1])}
FAULTS = ("kill -9", "disk full", "corrupt block", "SIGSTOP", "clock jump", "read-only folder")


@pytest.mark.chaos
@pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in forked processes")
@pytest.mark.parametrize("fault", [*FAULTS, "symlink in the way"])
def test_every_command_survives_and_loses_nothing(fault):
    script = Path(__file__).with_name("faults.py")
    call = [sys.executable, str(script), "3", fault]
    done = subprocess.run(call, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 4
    for _, command, tries, survived, lost, text in rows:
        assert (survived, lost) == (tries, 0), (command, text)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["lost worker", "lost scheduler"])
def test_a_cluster_that_loses_a_process_loses_nothing(fault):
    pytest.importorskip("distributed")
    script = Path(__file__).with_name("faults.py")
    call = [sys.executable, str(script), "1", fault]
    done = subprocess.run(call, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ((_, _, tries, survived, lost, text),) = map(json.loads, done.stdout.splitlines())
    assert (tries, survived, lost) == (2, 2, 0), text
