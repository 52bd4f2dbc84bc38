"""Module paths that 0.1 published, for one release: they load the module's new home and say so."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

HOMES = {
    "spectrograd.laplacian": "spectrograd.operators.laplacian",
    "spectrograd.neighbors": "spectrograd.points.neighbors",
    "spectrograd.cluster": "spectrograd.labels.clustering",
    "spectrograd.solvers.embed": "spectrograd.pipeline.solving",
    "spectrograd.aggregation.merge": "spectrograd.pipeline.multilayer",
    "spectrograd.aggregation.sweep": "spectrograd.pipeline.layer_influence",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds the old paths; asked only where no file of that name exists."""

    _spec_at_home: ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a path that has moved."""
        return ModuleSpec(fullname, self) if fullname in HOMES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, under its new name."""
        home = HOMES[spec.name]
        warnings.warn(f"{spec.name} is now {home}", DeprecationWarning, stacklevel=2)
        module = import_module(home)
        self._spec_at_home = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed at home, where it belongs; the import system has just told it otherwise."""
        module.__spec__ = self._spec_at_home


def install() -> None:
    """Let the import system ask here last."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
