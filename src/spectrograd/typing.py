"""Types that every package shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    """A numpy array of any type and shape; docstrings say which."""
    Matrix: TypeAlias = Array | sp.csr_array
    """Rows of numbers, dense or sparse: points, features, adjacencies."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that is being made: a summary, the content of a page, a manifest."""

JsonMapping: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""


def __getattr__(name: str) -> object:
    """Aliases of numpy and scipy, once they are asked for: a command that prints a help text does without."""
    if name not in ("Array", "Matrix"):  # an import asks for __path__, too
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from numpy.typing import NDArray

    if name == "Array":
        return NDArray[Any]
    import scipy.sparse as sp

    return NDArray[Any] | sp.csr_array
