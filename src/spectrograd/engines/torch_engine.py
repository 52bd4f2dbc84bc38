"""The torch engine: multivectors are tensors on a device, a GPU or the CPU; with a Krylov basis of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from spectrograd.engines.base import Coefficients, Engine, Statistics, Work
from spectrograd.engines.torch_blocks import DeviceBlocks
from spectrograd.graph.feature_rows import FeatureRows
from spectrograd.kernels import LANES
from spectrograd.operators.base import Capability, Operator
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.system import check, need
from spectrograd.typing import Array

Tensor = Any


class TorchMultiVector:
    """A tensor N x k of rows on a device, with its shape and its numpy type."""

    __slots__ = ("dtype", "shape", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape: tuple[int, int] = tuple(tensor.shape)
        self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def __deepcopy__(self, memo: dict[int, object]) -> TorchMultiVector:
        return TorchMultiVector(self.tensor.clone())

    def __repr__(self) -> str:
        return f"TorchMultiVector({self.shape}, {self.dtype}, {self.tensor.device})"


class DeviceBasis:
    """The first ``filled`` rows of ``stored``, limit x N, are the columns of the basis."""

    def __init__(self, torch: ModuleType, n_rows: int, limit: int, dtype: DTypeLike, device: object) -> None:
        self.stored: Tensor = torch.empty(
            (limit, n_rows), dtype=getattr(torch, np.dtype(dtype).name), device=device
        )
        self.filled = 0

    def append(self, X: TorchMultiVector) -> None:
        """Add columns."""
        before = self.filled
        self.filled += X.shape[1]
        self.stored[before : self.filled] = X.tensor.T

    def columns(self, start: int, stop: int) -> TorchMultiVector:
        """A copy, N x (stop - start)."""
        return TorchMultiVector(self.stored[start:stop].T.contiguous().clone())

    def parts(self) -> Iterator[TorchMultiVector]:
        """A few columns at a time."""
        return (self.columns(a, min(a + LANES, self.filled)) for a in range(0, self.filled, LANES))

    def restore(self, parts: Iterable[TorchMultiVector]) -> None:
        """Mutates: the same columns again."""
        for part in parts:
            self.append(part)

    def orthogonalize(self, first: int, count: int) -> tuple[Array, Array]:
        """Mutates: make the rows from ``count`` on orthogonal to those before (Gram-Schmidt, twice)."""
        # 1. against the last vectors, which hold nearly all of the projection
        basis = self.stored[:count]
        new = self.stored[count : self.filled]
        near = self.stored[first:count] @ new.T
        new -= near.T @ self.stored[first:count]
        # 2. against all: "twice is enough" (Kahan; Parlett 1980)
        rest = basis @ new.T
        new -= rest.T @ basis
        rest[first:] += near
        # 3. the Gram matrix of the remainder
        wide = new.double()  # a few rows: their norms decide which directions are lost
        return rest.cpu().numpy().astype(np.float64), (wide @ wide.T).cpu().numpy()

    def rotate(self, start: int, stop: int, Y: Array) -> None:
        """Mutates: replace rows by their combinations; the rows behind close up."""
        part = self.stored[start:]
        width = Y.shape[1]
        behind = self.filled - stop
        if width:
            small = self.stored.new_tensor(Y.T)
            for low in range(0, part.shape[1], NODE_CHUNK):  # in place but for a few columns
                columns = part[:, low : low + NODE_CHUNK]
                columns[:width] = small @ columns[: len(Y)]
        if width < stop - start:
            part[width : width + behind] = self.stored[stop : self.filled].clone()
        self.filled = start + width + behind


NODE_CHUNK = 1 << 16  # nodes at a time: a hundred vectors of them are 26 MB


# --- Column statistics on a device, as in engines.base for arrays


def peaks(torch: ModuleType, X: Tensor) -> tuple[bool, Tensor, Tensor]:
    """Whether N x k numbers are finite; per column the entry of largest magnitude, the first, and its row."""
    sizes = X.abs()
    top = sizes.max(dim=0).values
    # a device may return any of several equal places: the first is asked for
    rows = torch.arange(X.shape[0], device=X.device)[:, None]
    where = torch.where(sizes == top, rows, X.shape[0]).min(dim=0).values.clamp_max(X.shape[0] - 1)
    return bool(torch.isfinite(X).all()), X.gather(0, where[None])[0].double(), where


def moments(
    torch: ModuleType, X: Tensor, units: Tensor, metric: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of ``metric (x / unit)^2`` and ``^4`` per column, and of the metric."""
    mass = (
        torch.ones((len(X), 1), dtype=torch.float64, device=X.device) if metric is None else metric.double()
    )
    squares = (X.double() / units).square()
    return (mass * squares).sum(dim=0), (mass * squares.square()).sum(dim=0), mass.sum()


# --- The engine

ROW_CHUNK = 1 << 17  # rows at a time where float64 copies are made: 16 MB for sixteen columns
MIN_PARALLEL_ROWS = (
    50_000  # rows; below, threads that wait for one another take ten times longer on a busy CPU
)
GRAPH_MEMORY_SHARE = 0.5  # of a card's free memory for graphs; the rest is for multivectors


class TorchEngine(Engine):
    """Multivectors are tensors on a device; products by torch's sparse kernels, small matrices on the host.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``; None takes a card where torch sees one.
    n_jobs
        Threads where the device is the CPU; None leaves torch alone.
    graph_bytes
        How much of the device graphs may keep; larger ones are streamed. None: half of what is free.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(("tensors",))

    def __init__(
        self, device: str | None = None, *, n_jobs: int | None = None, graph_bytes: float | None = None
    ) -> None:
        self.torch: ModuleType = need("torch", "engine='torch'")
        self.device: Any = find_device(self.torch, device)
        self.work = Work()
        self._n_threads = _threads(self.torch, n_jobs)
        if graph_bytes is None:
            free = np.inf if self.device.type == "cpu" else self.torch.cuda.mem_get_info(self.device)[0]
            graph_bytes = GRAPH_MEMORY_SHARE * free
        self.blocks = DeviceBlocks(self.torch, self.device, graph_bytes)

    # operators

    def spmm(self, operator: SparseOperator, X: TorchMultiVector) -> TorchMultiVector:
        """Multiply slice by slice; each product is subtracted from its rows."""
        x = X.tensor
        diagonal = _tensor(operator.diagonal).to(x.dtype)
        if operator.scale is None:
            return TorchMultiVector(self._subtract_product(operator, x, diagonal * x))
        scale = _tensor(operator.scale).to(x.dtype)
        negative = self._subtract_product(operator, scale * x, self.torch.zeros_like(x))
        return TorchMultiVector(negative.mul_(scale).addcmul_(diagonal, x))

    def _subtract_product(self, operator: SparseOperator, x: Any, out: Any, factor: float = 1.0) -> Any:
        """Mutates: ``out -= factor W x``."""
        if self.device.type == "cpu":  # others were kept to one thread, and torch with them
            self.torch.set_num_threads(self._n_threads if len(x) > MIN_PARALLEL_ROWS else 1)
        # One slice of rows at a time: resident, or sent from the host.
        for start, stop, W in self.blocks.slices(operator.graph, x.dtype):
            out[start:stop].addmm_(W, x, alpha=-factor)
        return out

    def subtract_low_rank(
        self, product: TorchMultiVector, low_rank: LowRank, X: TorchMultiVector
    ) -> TorchMultiVector:
        """Mutates the product, which is then the result."""
        self._subtract_factors(product.tensor, low_rank, X)
        return product

    def _subtract_factors(
        self, out: Any, low_rank: LowRank, X: TorchMultiVector, factor: float = 1.0
    ) -> None:
        """Mutates: ``out -= factor Z diag(a) Z' X``."""
        Z: Any = low_rank.factors  # a multivector of load_operator
        small = low_rank.coefficients[:, None] * self.gram(Z, X)
        out.addmm_(Z.tensor.to(out.dtype), self._small(small, out.dtype), alpha=-factor)

    def recurrence(
        self,
        operator: Operator,
        X: TorchMultiVector,
        before: TorchMultiVector,
        coefficients: Coefficients,
        out: TorchMultiVector | None = None,
    ) -> TorchMultiVector:
        """Compute in the memory of ``out``: first the terms without a product, then the pass is added."""
        a, b, c = coefficients
        if not isinstance(operator, SparseOperator):
            product = self.apply(operator, X).tensor
            if operator.metric is not None:
                product = product / operator.metric.tensor.to(product.dtype)
            return TorchMultiVector((a * product).add_(X.tensor, alpha=b).add_(before.tensor, alpha=c))
        check()
        assert operator.scale is None, "bring the operator to random_walk_form() first"
        self.work.passes += 1
        self.work.matvecs += X.shape[1]
        return self._run_run_fused(operator, X, before, coefficients, out)

    def _run_run_fused(
        self,
        operator: SparseOperator,
        X: TorchMultiVector,
        before: TorchMultiVector,
        coefficients: Coefficients,
        out: TorchMultiVector | None,
    ) -> TorchMultiVector:
        """Computed times the metric and divided by it at the end: no multivector but the result is made."""
        a, b, c = coefficients
        x = X.tensor
        metric = self.torch.ones_like(x[:, :1]) if operator.metric is None else _tensor(operator.metric)
        # 1. the terms without a product, times the metric: c B before + (a diag + b B) x
        own = (a * _tensor(operator.diagonal) + b * metric).to(x.dtype)
        result = self.torch.empty_like(x) if out is None else out.tensor
        self.torch.mul(before.tensor, (c * metric).to(x.dtype), out=result).addcmul_(own, x)
        # 2. - a W x, one pass over the edges
        self._subtract_product(operator, x, result, a)
        if operator.low_rank is not None:
            self._subtract_factors(result, operator.low_rank, X, a)
        return TorchMultiVector(result.div_(metric.to(x.dtype)))

    def residual(self, operator: Operator, Q: TorchMultiVector, AQ: TorchMultiVector, values: Array) -> Array:
        """Sum squared differences in float64, some rows at a time."""
        k = len(values)
        torch = self.torch
        theta = self._small(values, torch.float64)
        squares = torch.zeros(k, dtype=torch.float64).to(self.device)
        for rows in self._spans(Q):
            mass = 1.0 if operator.metric is None else operator.metric.tensor[rows].double()
            rest = AQ.tensor[rows, :k].double() - mass * Q.tensor[rows, :k].double() * theta
            squares += (rest.square_() / mass).sum(dim=0)
        return self._host(squares.sqrt())

    # algebra

    def gram(
        self,
        X: TorchMultiVector,
        Y: TorchMultiVector,
        metric: TorchMultiVector | None = None,
        *,
        symmetric: bool = False,
    ) -> Array:
        """Sum over chunks of rows in float64, in order."""
        total = self.torch.zeros((X.shape[1], Y.shape[1]), dtype=self.torch.float64, device=self.device)
        for rows in self._spans(X):
            # products in float64, of ROW_CHUNK rows at a time: a whole copy would not fit the device
            left = X.tensor[rows].double()
            right = left if X is Y else Y.tensor[rows].double()
            total.addmm_((left if metric is None else metric.tensor[rows] * left).T, right)
        return self._host(total)

    def combine(
        self, X: TorchMultiVector, C: Array, Y: TorchMultiVector | None = None, E: Array | None = None
    ) -> TorchMultiVector:
        """Compute in the type of X."""
        x = X.tensor
        product = x @ self._small(C, x.dtype)
        if Y is not None and E is not None:
            product.addmm_(Y.tensor.to(x.dtype), self._small(E, x.dtype))
        return TorchMultiVector(product)

    def scale_rows(self, X: TorchMultiVector, factors: TorchMultiVector) -> TorchMultiVector:
        """Scale in the type of X."""
        return TorchMultiVector(X.tensor * factors.tensor.to(X.tensor.dtype))

    def columns(self, X: TorchMultiVector, chosen: slice) -> TorchMultiVector:
        """A copy: kernels take whole rows."""
        return TorchMultiVector(X.tensor[:, chosen].contiguous())

    def hstack(self, *multivectors: TorchMultiVector) -> TorchMultiVector:
        """Side by side."""
        kind = multivectors[0].tensor.dtype
        return TorchMultiVector(
            self.torch.cat([multivector.tensor.to(kind) for multivector in multivectors], dim=1)
        )

    def basis(self, n_rows: int, limit: int, dtype: DTypeLike) -> DeviceBasis:
        """Vectors as rows of one tensor."""
        return DeviceBasis(self.torch, n_rows, limit, dtype, self.device)

    # rows

    def from_numpy(self, rows: Array) -> TorchMultiVector:
        """A copy on the device."""
        return TorchMultiVector(self.torch.tensor(np.ascontiguousarray(rows), device=self.device))

    def to_numpy(self, X: TorchMultiVector, indices: Array | None = None) -> Array:
        """A copy on the host."""
        chosen = X.tensor.clone() if indices is None else X.tensor[self._index(indices)]
        return self._host(chosen)

    def map_blocks(self, function: Callable[..., Array], *multivectors: TorchMultiVector) -> TorchMultiVector:
        """Map by way of the host, some rows at a time: for operations without a method of their own."""
        return TorchMultiVector(
            self.torch.cat(
                [self.from_numpy(part).tensor for part in self.gather_blocks(function, *multivectors)]
            )
        )

    def gather_blocks(self, function: Callable[..., object], *multivectors: TorchMultiVector) -> list[Any]:
        """Call the function on the host, some rows at a time."""
        return [
            function(rows.start, *(self._host(multivector.tensor[rows]) for multivector in multivectors))
            for rows in self._spans(multivectors[0])
        ]

    def place_features(self, rows: FeatureRows) -> dict[Any, Any]:
        """Z and Z' as tensors on the device, by type; made when a product first needs them."""
        return {"rows": rows}

    def _features(self, placed: dict[Any, Any], kind: DTypeLike) -> tuple[Any, Any]:
        if kind not in placed:
            rows = placed["rows"]
            matrix = rows.between(0, rows.shape[0])
            pair = []
            for own in (matrix, matrix.T):
                if not sp.issparse(own):
                    pair.append(self.torch.tensor(np.ascontiguousarray(own), dtype=kind, device=self.device))
                    continue
                csr = sp.csr_array(own)
                parts = (self.torch.tensor(part.astype(np.int64)) for part in (csr.indptr, csr.indices))
                values = self.torch.tensor(csr.data, dtype=kind)
                with warnings.catch_warnings():  # that torch calls these tensors new
                    warnings.simplefilter("ignore", UserWarning)
                    tensor = self.torch.sparse_csr_tensor(*parts, values, csr.shape, check_invariants=True)
                pair.append(tensor.to(self.device))
            placed[kind] = tuple(pair)
        return placed[kind]  # type: ignore[no-any-return]

    def project(self, rows: dict[Any, Any], X: TorchMultiVector) -> Array:
        """On the device, in float64."""
        _, transposed = self._features(rows, self.torch.float64)
        return self._host(transposed @ X.tensor.double())

    def expand(self, rows: dict[Any, Any], C: Array, like: TorchMultiVector) -> TorchMultiVector:
        """On the device, in the type of ``like``."""
        kind = like.tensor.dtype
        matrix, _ = self._features(rows, kind)
        return TorchMultiVector(matrix @ self.torch.tensor(C, dtype=kind, device=self.device))

    def astype(self, X: TorchMultiVector, dtype: DTypeLike) -> TorchMultiVector:
        """X itself where it is of that type."""
        return X if X.dtype == dtype else TorchMultiVector(X.tensor.to(self._kind(dtype)))

    def scatter_rows(self, X: TorchMultiVector, chosen: Array, n_rows: int) -> TorchMultiVector:
        """On the device."""
        out = X.tensor.new_zeros((n_rows, X.shape[1]))
        out[self._index(chosen)] = X.tensor
        return TorchMultiVector(out)

    # statistics

    def column_statistics(self, X: TorchMultiVector, metric: TorchMultiVector | None = None) -> Statistics:
        """On the device, in float64."""
        # 1. peaks; 2. moments in units of the peaks, as in ``Engine.column_statistics``
        finite, top, where = peaks(self.torch, X.tensor)
        units = top.abs().clamp_min(1e-300)
        parts = [
            moments(self.torch, X.tensor[rows], units, None if metric is None else metric.tensor[rows])
            for rows in self._spans(X)
        ]
        second, fourth, mass = (self._host(sum(part)) for part in zip(*parts, strict=True))
        return Statistics(finite, self._host(top), self._host(where), second, fourth, float(mass))

    # threads, and conversions between tensors and arrays

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Use ``n_jobs`` threads of torch while inside."""
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(self._n_threads)
        try:
            yield
        finally:
            self.torch.set_num_threads(before)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Use one thread while inside: for small operations threads of a busy CPU wait for one another."""
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(1)
        try:
            yield
        finally:
            self.torch.set_num_threads(before)

    def _spans(self, X: TorchMultiVector) -> list[slice]:
        return [slice(start, start + ROW_CHUNK) for start in range(0, X.shape[0], ROW_CHUNK)]

    def _small(self, values: Array, kind: DTypeLike) -> Any:
        return self.torch.tensor(np.ascontiguousarray(values), dtype=kind, device=self.device)

    def _host(self, tensor: Any) -> Array:
        return np.asarray(tensor.cpu().numpy())

    def _index(self, chosen: Array) -> Any:
        return self.torch.as_tensor(np.asarray(chosen, dtype=np.int64), device=self.device)

    def _kind(self, dtype: DTypeLike) -> Any:
        return getattr(self.torch, np.dtype(dtype).name)


def _tensor(vector: Any) -> Any:
    """Return the tensor of a vector of a loaded operator, N x 1."""
    return vector.tensor


def find_device(torch: ModuleType, name: str | None) -> Any:
    """Return the device of that name, or raise one clear error; None takes a card where there is one."""
    n_cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        name = "cuda" if n_cards else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
        raise ValueError(f"engine='torch:{name}': expected 'torch:cpu', 'torch:cuda' or 'torch:cuda:1'")
    if kind == "cuda" and int(number or 0) >= n_cards:
        available = f"only {n_cards} of them" if n_cards else "none"
        raise ValueError(
            f"engine='torch:{name}': no such card, torch {torch.__version__} sees {available}; "
            "use 'torch:cpu', 'local', or a build of torch for your card"
        )
    return torch.device(name)


def _threads(torch: ModuleType, n_jobs: int | None) -> int:
    """Threads asked for; negative numbers count back from all cores, as in scikit-learn."""
    if n_jobs is None:
        return int(torch.get_num_threads())
    cores = os.cpu_count() or 1
    count = n_jobs if n_jobs >= 0 else cores + 1 + n_jobs
    if count < 1:
        raise ValueError(f"n_jobs={n_jobs}: expected at least 1, -1 for all {cores} cores, or None")
    return count
