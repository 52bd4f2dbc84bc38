"""Fixtures that several packages share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import reference

# xdist sets COLUMNS=80 for its processes: commands would draw narrow tables.
os.environ.pop("COLUMNS", None)
# Shells let what they start in the background ignore Ctrl-C, as nohup does, and children inherit that: tests
# that interrupt themselves or a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
NEEDED_A_SECOND_TRY = "SPECTROGRAD_SECOND_TRIES"  # the file that gets the names of such tests


@pytest.fixture(scope="module")
def graphs():
    """A weighted and an unweighted graph, large enough for several chunks of every batch kernel."""
    return {
        weighted: reference.random_graph(1300, np.random.default_rng(5), weighted=weighted)
        for weighted in (True, False)
    }


def pytest_runtest_logreport(report):
    """Note the tests that failed and are run again (``--reruns``), once: not in the workers of xdist."""
    target = os.environ.get(NEEDED_A_SECOND_TRY)
    if report.outcome == "rerun" and target and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(target).open("a") as file:
            file.write(report.nodeid + "\n")
