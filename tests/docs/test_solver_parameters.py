"""Pages of solvers list every parameter with type, default and meaning, as the code has them."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

from spectrograd import solvers

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("griffe", reason="the site needs: pip install 'spectrograd[docs]'")
sys.path.insert(0, str(ROOT / "docs" / "_site"))
solver_parameters = importlib.import_module("solver_parameters")


@pytest.mark.parametrize("name", list(solvers.REGISTRY))
def test_a_page_has_the_parameters_of_the_code(name):
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    table = solver_parameters.parameter_table(name)
    assert table in page, "run: python docs/_site/solver_parameters.py"
    for field in dataclasses.fields(solvers.make_solver(name)):
        assert f"| `{field.name}` |" in table


def test_a_parameter_without_a_meaning_is_noticed(monkeypatch):
    monkeypatch.setattr(solver_parameters, "described", lambda _: {})
    with pytest.raises(KeyError, match="step_size"):
        solver_parameters.parameter_table("sgd-paper")
