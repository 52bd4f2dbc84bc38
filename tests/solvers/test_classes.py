"""A class of solvers or operators is abstract or final: only abstract methods and defaults are overridden."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import spectrograd
from spectrograd.operators import Operator
from spectrograd.solvers import REGISTRY, Solver
from spectrograd.solvers.base import State

# Concrete methods that a subclass overrides, beside the defaults of the two protocols. The list only shrinks.
OVERRIDDEN = {
    "FewPassChebyshev.evidence",
    "FewPassChebyshev.orthogonality",
    "FewPassChebyshev.terminate",
    "FewPassLanczos.fill",
    "FewPassLanczos.init",
    "FewPassLanczos.terminate",
    "Lanczos.evidence",
    "PaperSGD.back_off",
    "RationalFilter.rate",
    "ShiftInvert.evidence",
    "StreamedBatches.edges",
    "StreamedBatches.of",
    "StreamedBatches.sampler",
    "TorchPaperSGD.back_off",
    "UnbiasedSGD.step",
}
# Solvers that run by themselves and have a variant which derives from them. The list only shrinks.
CONCRETE_BASES = {"Lanczos"}


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
    assert {name for cls in classes for name in overridden(cls)} == OVERRIDDEN


def test_a_solver_is_abstract_or_final():
    solvers = {cls for cls in classes_of("solvers") if issubclass(cls, Solver)}
    bases = {base for cls in solvers for base in cls.__bases__ if base in solvers}
    assert {cls.__name__ for cls in bases if not inspect.isabstract(cls)} == CONCRETE_BASES
    registered = {path.split(":")[1] for path in REGISTRY.values()}
    assert registered <= {cls.__name__ for cls in solvers if not inspect.isabstract(cls)}
