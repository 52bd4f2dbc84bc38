"""Values as JSON and arrays, and back: what saved models and checkpoints have in common.

No pickle: a file from a stranger can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spectrograd.graph import GraphError

Array = NDArray[Any]


class PlainWriter(ABC):
    """Turns values into JSON; where arrays go and which other values there may be is the derived class's."""

    def encode(self, value: Any, where: str) -> Any:
        """The value as JSON; ``where`` names it, for files and errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if type(value) is float:  # derived ones may know more
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, list) or type(value) is tuple:
            word = "list" if isinstance(value, list) else "tuple"
            return {word: [self.encode(item, f"{where}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self.encode(item, f"{where}.{name}") for name, item in value.items()}}
        return self.other(value, where)

    @abstractmethod
    def array(self, array: Array, where: str) -> dict[str, Any]:
        """Keep an array; what stands in its place."""

    def other(self, value: Any, where: str) -> Any:
        """Whatever is no plain value."""
        raise GraphError(f"{where} is of type {type(value).__name__}, which cannot be saved")


class PlainReader(ABC):
    """The way back; ``listed`` is what lists become."""

    listed: ClassVar[type[list[Any]] | type[tuple[Any, ...]]] = list

    def decode(self, value: Any) -> Any:
        """The value behind its JSON."""
        if not isinstance(value, dict):
            return value
        if "array" in value:
            return self.array(value["array"])
        if "float" in value:
            return float(value["float"])
        if "list" in value:
            return self.listed(self.decode(item) for item in value["list"])
        if "tuple" in value:
            return tuple(self.decode(item) for item in value["tuple"])
        if "dict" in value:
            return {name: self.decode(item) for name, item in value["dict"].items()}
        return self.other(value)

    @abstractmethod
    def array(self, kept: Any) -> Array:
        """The array behind what stands in its place."""

    @abstractmethod
    def other(self, value: Mapping[str, Any]) -> Any:
        """Whatever is no plain value."""
