"""Talls on a device, and a Krylov basis of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spectrograd.kernels import LANES

Array = NDArray[Any]
Tensor = Any


class DeviceTall:
    """A tensor N x k of rows on a device, with the shape and the numpy type that everybody may ask for."""

    __slots__ = ("dtype", "shape", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape: tuple[int, int] = tuple(tensor.shape)
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceTall:
        return DeviceTall(self.tensor.clone())

    def __repr__(self) -> str:
        return f"DeviceTall({self.shape}, {self.dtype}, {self.tensor.device})"


class DeviceBasis:
    """The first ``filled`` rows of ``stored``, limit x N, are the columns of the basis."""

    def __init__(self, torch: Any, n_rows: int, limit: int, dtype: DTypeLike, device: Any) -> None:
        self.stored: Tensor = torch.empty(
            (limit, n_rows), dtype=getattr(torch, np.dtype(dtype).name), device=device
        )
        self.filled = 0

    def append(self, X: DeviceTall) -> None:
        """Add columns."""
        before, self.filled = self.filled, self.filled + X.shape[1]
        self.stored[before : self.filled] = X.tensor.T

    def columns(self, start: int, stop: int) -> DeviceTall:
        """A copy, N x (stop - start)."""
        return DeviceTall(self.stored[start:stop].T.contiguous().clone())

    def parts(self) -> Iterator[DeviceTall]:
        """A few columns at a time."""
        return (self.columns(a, min(a + LANES, self.filled)) for a in range(0, self.filled, LANES))

    def restore(self, parts: Iterable[DeviceTall]) -> None:
        """Mutates: the same columns again."""
        for part in parts:
            self.append(part)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: rows from ``count`` on become orthogonal to those before."""
        known, new = self.stored[:count], self.stored[count : self.filled]
        near = self.stored[first:count] @ new.T
        new -= near.T @ self.stored[first:count]
        rest = known @ new.T
        new -= rest.T @ known
        rest[first:] += near
        wide = new.double()  # a row or a few: their norms decide what is lost
        return rest.cpu().numpy().astype(np.float64), (wide @ wide.T).cpu().numpy()

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: combinations of rows take their place, those behind close up."""
        part, kept, behind = self.stored[start:], Y.shape[1], self.filled - stop
        if kept:
            small = self.stored.new_tensor(Y.T)
            for low in range(0, part.shape[1], SPAN):  # in place but for a few columns
                columns = part[:, low : low + SPAN]
                columns[:kept] = small @ columns[: len(Y)]
        if kept < stop - start:
            part[kept : kept + behind] = self.stored[stop : self.filled].clone()
        self.filled = start + kept + behind


SPAN = 1 << 16  # nodes at a time: a hundred vectors of them are 26 MB
