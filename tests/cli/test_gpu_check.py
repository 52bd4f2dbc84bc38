"""``spectrograd gpu-check`` on torch's CPU device."""

from __future__ import annotations

import numpy as np
import pytest

from spectrograd.cli import main
from spectrograd.cli.device_check import checks
from spectrograd.engines import make_engine

pytest.importorskip("torch", reason="torch is not installed: pip install spectrograd[torch]")


def test_a_block_to_paste(capsys):
    assert main(["gpu-check", "--device", "cpu", "--nodes", "5000"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("spectrograd gpu-check: torch:cpu")
    assert "FAIL" not in text
    assert text.count("ok  ") == 8
    assert text.count("time ") == 2


def test_a_card_that_is_not_there(capsys):
    assert main(["gpu-check", "--device", "cuda:99"]) == 2
    assert "no such card" in capsys.readouterr().err


def test_a_device_that_calculates_wrong_is_noticed(monkeypatch):
    engine = make_engine("torch:cpu")
    right = engine.gram
    monkeypatch.setattr(engine, "gram", lambda *args, **kwargs: right(*args, **kwargs) * (1 + 1e-6))
    failed = {check.name for check in checks(engine) if not check.passed}
    assert "gram" in failed
    assert not np.isnan([check.error for check in checks(make_engine("torch:cpu"))]).any()
