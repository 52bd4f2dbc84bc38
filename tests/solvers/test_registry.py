"""The registry of solvers, and the classes that a checkpoint may hold."""

from __future__ import annotations

from importlib import import_module

import pytest

from spectrograd.solvers.checkpoint import KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_class_that_a_checkpoint_may_hold_exists(kind):
    module, _, name = kind.partition(":")
    if module.startswith("solvers.torch"):
        pytest.importorskip("torch")
    assert getattr(import_module(f"spectrograd.{module}"), name).__name__ == name
