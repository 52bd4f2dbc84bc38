"""A class of solvers or operators is abstract or final: only abstract methods and defaults are overridden."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import spectrograd
from spectrograd.estimators.base import Spectral
from spectrograd.io.features import StreamedFeatures
from spectrograd.operators import Operator
from spectrograd.solvers import REGISTRY, Solver
from spectrograd.solvers.base import State


def classes_of(package):
    """All classes that the modules of a package define."""
    found = set()
    path = importlib.import_module(f"spectrograd.{package}").__path__
    for module in pkgutil.iter_modules(path, f"spectrograd.{package}."):
        if "torch" in module.name:
            pytest.importorskip("torch")
        members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        found |= {cls for _, cls in members if cls.__module__ == module.name}
    return found


def is_method(value):
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def overridden(cls):
    """Methods of a class that replace a concrete one of a base, protocols apart."""
    for base in cls.__mro__[1:]:
        if not base.__module__.startswith(spectrograd.__name__) or base in (Solver, Operator, State):
            continue
        for name, value in vars(cls).items():
            inherited = vars(base).get(name)
            own = is_method(value) and is_method(inherited) and not name.startswith("_")
            if own and not getattr(inherited, "__isabstractmethod__", False):
                yield f"{cls.__name__}.{name}"


def test_only_abstract_methods_are_overridden():
    codecs = {cls for cls in classes_of("solvers") if cls.__module__.endswith("checkpoint")}
    classes = classes_of("solvers") - codecs | classes_of("operators")
    assert {name for cls in classes for name in overridden(cls)} == set()


def test_a_solver_is_abstract_or_final():
    solvers = {cls for cls in classes_of("solvers") if issubclass(cls, Solver)}
    bases = {base for cls in solvers for base in cls.__bases__ if base in solvers}
    assert {cls.__name__ for cls in bases if not inspect.isabstract(cls)} == set()
    registered = {path.split(":")[1] for path in REGISTRY.values()}
    assert registered <= {cls.__name__ for cls in solvers if not inspect.isabstract(cls)}


def test_what_a_subclass_must_define_is_an_abstract_method():
    sources = Path(spectrograd.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "raise NotImplementedError" in path.read_text("utf-8")]
    for base in (Spectral, StreamedFeatures):
        with pytest.raises(TypeError, match="abstract"):
            base()
