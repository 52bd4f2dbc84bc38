"""Comparing solvers: failing rows, budgets, interrupts, the page and the command."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from spectrograd import datasets, solvers
from spectrograd.cli import main
from spectrograd.engines import LocalEngine
from spectrograd.pipeline import RunContext, Settings
from spectrograd.pipeline.compare import ScoreRecorder, compare, default_names, parse_spec
from spectrograd.report.compare_page import advice, compare_document, draw_comparison, in_order
from spectrograd.report.page import render
from spectrograd.solvers import REGISTRY, Solver, State
from spectrograd.system import Peak

HOW = Settings(n_components=3, seed=0)
KEYS = {
    *("method", "seconds", "iterations", "passes", "matvecs", "objective", "angle", "certificate"),
    "max_residual",
    *("purity", "nmi", "ri", "ari", "peak_memory_bytes", "converged", "stopped", "error", "history"),
}


@dataclass(frozen=True)
class Odd(Solver):
    """A solver that misbehaves after some steps."""

    how: str = "fails"
    max_iter: int = 10_000
    name: ClassVar[str] = "odd"

    def init(self, problem, rng):
        return State(problem.first_guess(rng), rng)

    def step(self, problem, state):
        state.iteration += 1
        if state.iteration > 1 and self.how == "fails":
            raise RuntimeError("no luck")
        if state.iteration > 2 and self.how == "interrupts":
            raise KeyboardInterrupt
        time.sleep(0.01 if self.how == "dawdles" else 0)
        return state


@dataclass(frozen=True)
class Endless(Solver):
    """A direct method that never comes to an end."""

    max_iter: int = 1
    name: ClassVar[str] = "endless"
    direct: ClassVar[bool] = True

    def init(self, problem, rng):
        return State(np.zeros((problem.n_nodes, problem.n_components)), rng)

    def step(self, problem, state):
        while True:
            problem.apply(state.U)


@pytest.fixture(scope="module")
def data():
    return datasets.make_block_model(300, 3, random_state=0)


@pytest.fixture
def odd(monkeypatch):
    """Register the odd solvers."""
    made = solvers.make_solver

    def make(name, **params):
        return (
            {"odd": Odd, "endless": Endless}[name](**params)
            if name in ("odd", "endless")
            else made(name, **params)
        )

    for module in ("compare", "solve"):
        monkeypatch.setattr(f"spectrograd.pipeline.{module}.make_solver", make)


def test_rows_of_good_solvers(data):
    seen = []
    rows, _ = compare(data.graph, HOW, ["eigen", "power"], classes=data.labels, on_row=seen.append)
    assert [set(row) for row in rows] == [KEYS, KEYS]
    assert seen == rows
    for row in rows:
        assert row["error"] is None
        assert row["converged"] is True
        assert row["nmi"] > 0.9
        assert row["angle"] < 1e-2
        assert "converged" in row["certificate"]
    assert rows[1]["history"][0]["nmi"] is not None
    assert rows[1]["history"][-1]["nmi"] == rows[1]["nmi"]


def test_a_failing_solver_has_its_row_and_the_others_go_on(data, odd):
    rows, _ = compare(data.graph, HOW, ["odd:how=fails", "eigen"])
    assert rows[0]["error"] == "RuntimeError: no luck"
    assert rows[0]["objective"] is None
    assert rows[1]["converged"]


def test_the_budget_holds_for_iterations(data, odd):
    rows, _ = compare(data.graph, replace(HOW, time_budget=0.3), ["odd:how=dawdles", "eigen"])
    assert "out of time after 0.3 s" in rows[0]["error"]
    assert rows[0]["objective"] is not None
    assert not rows[0]["converged"]
    assert rows[1]["error"] is None


def test_the_budget_holds_for_direct_methods(data, odd):
    rows, _ = compare(data.graph, replace(HOW, time_budget=0.3), ["endless", "eigen"])
    assert "without a result" in rows[0]["error"]
    assert rows[0]["converged"] is None
    assert rows[1]["converged"]


def test_an_interrupt_keeps_what_is_done(data, odd):
    rows, _ = compare(data.graph, HOW, ["eigen", "odd:how=interrupts", "power"])
    assert [row["method"] for row in rows] == ["eigen", "odd:how=interrupts"]
    assert rows[0]["converged"]
    assert rows[1]["error"] == "interrupted"
    assert rows[1]["objective"] is not None  # its best so far


def test_names_and_parameters():
    assert set(REGISTRY) <= set(default_names())
    assert default_names()[0] == "auto"
    assert parse_spec("nystrom:walk=7:n_landmarks=50") == ("nystrom", {"walk": 7, "n_landmarks": 50})
    for wrong in ("nonsense", "auto:degree=3", "power:shift", "power:speed=1"):
        with pytest.raises(ValueError, match=r"expected|parameter"):
            parse_spec(wrong)


def test_wrong_questions_are_errors(data):
    with pytest.raises(ValueError, match="at least one"):
        compare(data.graph, HOW, [])
    with pytest.raises(ValueError, match="choose fewer"):
        compare(data.graph, Settings(n_components=300), ["eigen"])


RUN = {"command": "spectrograd compare <g>", "seed": 0, "time_budget": 1, "versions": {}}


def test_the_page_needs_nothing_beside_it(data, odd):
    rows, _ = compare(data.graph, HOW, ["eigen", "power", "odd:how=fails"], classes=data.labels)
    page = render(compare_document(data.graph, rows, run=RUN))
    assert "no luck" in page
    assert "&lt;g&gt;" in page
    assert page.count("<svg") == 2  # objective and NMI
    assert page.count('class="curve curve-0"') == 2
    assert "http" not in page


def test_nothing_to_draw_is_still_a_picture():
    (picture,) = draw_comparison([])
    assert picture.startswith("<svg")


def row(method, seconds, angle, *, converged=True, nmi=None):
    return {"method": method, "seconds": seconds, "angle": angle, "converged": converged, "nmi": nmi}


def test_the_page_says_which_solver_to_take():
    rows = [row("slow", 2.0, 1e-9), row("rough", 0.1, 0.5, converged=False), row("quick", 1.0, 1e-3)]
    ordered = in_order([*rows, row("failed", None, None, converged=None)])
    assert [one["method"] for one in ordered] == ["quick", "slow", "rough", "failed"]
    assert advice(ordered).startswith("Take quick: with 1 s the quickest of the 2 of 4")
    assert "higher NMI" in advice(in_order([row("a", 1.0, 0.0, nmi=0.5), row("b", 2.0, 0.0, nmi=0.6)]))
    assert advice(in_order(rows[1:2])).endswith("The smallest angle is that of rough.")


def test_scoring_is_loaded_before_memory_is_measured(data, monkeypatch):
    """The first solver of a process would be charged for libraries otherwise."""
    order = []
    observe = ScoreRecorder.observe

    def observed(self, basis):
        order.append("score")
        observe(self, basis)

    @contextmanager
    def measured():
        order.append("memory")
        yield Peak()

    monkeypatch.setattr(ScoreRecorder, "observe", observed)
    monkeypatch.setattr("spectrograd.pipeline.compare.peak_memory", measured)
    compare(data.graph, HOW, ["power"], classes=data.labels)
    assert order[0] == "score"
    assert order.count("memory") == 1


@pytest.fixture
def files(tmp_path, data):
    coo = data.graph.matrix.tocoo()
    edges = [f"{i},{j}" for i, j in zip(coo.row, coo.col, strict=True) if i < j]
    (tmp_path / "graph.csv").write_text("src,dst\n" + "\n".join(edges) + "\n")
    labels = [f"{i},{c}" for i, c in enumerate(data.labels)]
    (tmp_path / "truth.csv").write_text("node,label\n" + "\n".join(labels) + "\n")
    return tmp_path


def test_the_command(files, capsys):
    args = ["compare", str(files / "graph.csv"), "-k", "3", "--labels", str(files / "truth.csv")]
    args += ["--solvers", "eigen,power,nystrom:n_landmarks=50", "-o", str(files / "page.html")]
    code = main([*args, "--summary-json", str(files / "run.json")])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "nystrom" in shown.out
    summary = json.loads((files / "run.json").read_text())
    assert [row["method"] for row in summary["rows"]] == ["eigen", "power", "nystrom:n_landmarks=50"]
    assert {"command", "version", "seed", "input", "graph", "seconds", "solver", "certificate"} <= set(
        summary
    )
    assert (files / "page.html").stat().st_size > 10_000


def test_the_command_refuses_unknown_solvers_before_reading(files, capsys):
    code = main(["compare", str(files / "missing.csv"), "--solvers", "nonsense"])
    assert code == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_comparison_runs_on_the_engine_it_was_given(data, monkeypatch):
    """A budget that stops a direct method replaces no engine."""
    used = []
    apply = LocalEngine.apply

    class Own(LocalEngine):
        def apply(self, *arrays):
            used.append(type(self))
            return apply(self, *arrays)

    context = RunContext(Own())
    rows, _ = compare(data.graph, replace(HOW, time_budget=60.0), ["eigen", "power"], context)
    assert [row["error"] for row in rows] == [None, None]
    assert set(used) == {Own}
