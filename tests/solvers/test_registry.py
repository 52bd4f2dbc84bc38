"""The registry of solvers (names, variants, renamed parameters) and the classes that checkpoints hold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from importlib import import_module

import pytest

from spectrograd import SpectralEmbedding, datasets
from spectrograd.engines import LocalEngine
from spectrograd.engines.base import Cost
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import embed
from spectrograd.serialization.codec import KINDS
from spectrograd.solvers import (
    CONDITIONS,
    REGISTRY,
    VARIANTS,
    Problem,
    choose_variant,
    make_solver,
    solver_class,
)
from spectrograd.solvers.chebyshev import Chebyshev
from spectrograd.solvers.chebyshev_few_passes import FewPassChebyshev
from spectrograd.solvers.lanczos import Lanczos
from spectrograd.solvers.lanczos_few_passes import FewPassLanczos


def problem(engine=None):
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    return Problem(laplacian(graph), 3, engine or LocalEngine())


@dataclass(frozen=True)
class SlowEngine(LocalEngine):
    """A local engine that says its passes are expensive."""

    cost = Cost(per_round=1.0)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_class_that_a_checkpoint_may_hold_exists(name):
    module = KINDS[name]
    if module.startswith("solvers.torch"):
        pytest.importorskip("torch")
    assert getattr(import_module(f"spectrograd.{module}"), name).__name__ == name


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_the_same_method_with_parameters_of_the_same_names(name):
    original = make_solver(name)
    for condition, path in VARIANTS[name].items():
        assert condition in CONDITIONS
        if "torch" in path:
            pytest.importorskip("torch")
        module, _, class_name = path.partition(":")
        variant = getattr(import_module(f"spectrograd.solvers.{module}"), class_name)
        assert variant.name == name
        assert {f.name for f in fields(variant)} <= {f.name for f in fields(original)}


@pytest.mark.parametrize(
    ("solver", "variant"),
    [(Chebyshev(degree=7, guard=2), FewPassChebyshev), (Lanczos(block_size=2, angle=0.1), FewPassLanczos)],
)
def test_the_class_that_runs_is_chosen_by_the_problem(solver, variant):
    assert choose_variant(problem(), solver) is solver
    chosen = choose_variant(problem(SlowEngine()), solver)
    assert type(chosen) is variant
    for field in fields(solver):
        assert getattr(chosen, field.name) == getattr(solver, field.name)
    assert choose_variant(problem(SlowEngine()), chosen) is chosen


def test_a_class_that_is_not_registered_runs_as_it_is():
    class Mine(Chebyshev):
        pass

    mine = Mine()
    assert choose_variant(problem(SlowEngine()), mine) is mine


@pytest.mark.parametrize(
    ("old", "new", "value"), [("hand_over", "polish", True), ("finisher", "polish_solver", "chebyshev")]
)
def test_old_parameter_names_work_with_a_warning(old, new, value):
    with pytest.warns(FutureWarning, match=f"the parameter '{old}' is now '{new}'"):
        solver = make_solver("sgd", **{old: value})
    assert getattr(solver, new) == value
    with pytest.raises(ValueError, match=f"'{old}' is the old name of '{new}'"):
        make_solver("sgd", **{old: value, new: value})


def test_an_old_name_is_the_users_choice_as_the_new_one_is():
    """A tolerance would set ``polish`` itself where the user did not."""
    operator = laplacian(datasets.make_block_model(200, 3, random_state=0).graph)
    for name in ("hand_over", "polish"):
        settings = Settings(solver="sgd", params={name: False}, tol=1e-4, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            assert embed(operator, 3, settings).last.matvecs == 0


def test_an_estimator_takes_old_parameter_names():
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    model = SpectralEmbedding(3, solver="sgd", solver_params={"hand_over": True}, random_state=0)
    with pytest.warns(FutureWarning, match="'hand_over' is now 'polish'"):
        model.fit(graph)
    assert model.converged_


@pytest.mark.parametrize("name", REGISTRY)
def test_registered_names_are_those_of_the_classes(name):
    assert make_solver(name).name == name


def test_facts_stand_on_the_solvers():
    without_goal = {name for name in REGISTRY if not solver_class(name).has_goal}
    assert without_goal == {"sgd", "sgd-paper", "stochastic-fb"}
    assert Settings().has_goal
    assert not Settings(solver="sgd").has_goal
    assert Settings(solver="sgd", tol=1e-3).has_goal
    assert solver_class("sgd").streamed_columns(5) == 3 * 8
    assert solver_class("lanczos").streamed_columns(5) == 5 + 10 * 5 + 2 * 5
    assert solver_class("chebyshev").streamed_columns(5) is None
    with pytest.raises(ValueError, match="expected one of auto, sgd"):
        solver_class("nonsense")
