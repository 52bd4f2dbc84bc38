"""What each solver would take on a problem: the cost model behind ``auto``.

Seconds are ``sum_i c_i x_i``: numbers ``x`` of what a solver does (products, numbers it moves, operations of
BLAS), times constants ``c`` of one thread of an ordinary machine. How many products there are follows from
the shape of the spectrum (:mod:`spectrograd.linalg.spectral_shape`) by laws ``exp(a) K^b crowding^c``. Both
were fitted on graphs that are made up, and judged on others (docs/adr/0049-a-plan-by-cost.md). The constants
are constants, so a plan is a function of the graph: only ratios decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spectrograd.linalg.fill import FactorSize
from spectrograd.linalg.spectral_shape import SpectralShape
from spectrograd.solvers.ritz import usual_width


class Law(NamedTuple):
    """``exp(constant) K^k crowding^crowding``: how often something is done."""

    constant: float
    k: float
    crowding: float

    def at(self, k: int, crowding: float) -> float:
        """The number for K vectors."""
        return math.exp(self.constant + self.k * math.log(k) + self.crowding * math.log(crowding))


@dataclass(frozen=True)
class Looks:
    """What is known of a problem before it is solved."""

    n: int
    entries: int  # of the matrix, and two for each row and low-rank column
    k: int
    shape: SpectralShape
    factor: FactorSize
    shrinkage: float = 1.0  # of the entries, what one matching leaves

    @property
    def crowding(self) -> float:
        """See :meth:`SpectralShape.crowding`."""
        return self.shape.crowding(self.k)


# How often, fitted by least squares on logarithms: products of one vector, passes of a filter's block (times
# its columns over K), passes of a hierarchy, and products of the certificate's probe.
LAWS: Mapping[str, Law] = {
    "lanczos": Law(1.31, 0.39, 0.49),
    "chebyshev": Law(3.18, -0.33, 0.40),
    "multilevel": Law(4.34, -0.21, 0.12),
    "probe": Law(1.31, -0.11, 0.46),
}
NEAR, FAR = 20_000, 400_000  # nodes: rows of a block that a core's own cache holds, and that none does
OUT_OF_CACHE = 2.0  # times as long, on top, where none does


def work(solver: str, looks: Looks) -> tuple[float, ...]:
    """What a solver does on a problem, in the units of its :data:`CONSTANTS`."""
    n, k, entries, crowding = looks.n, looks.k, looks.entries, looks.crowding
    if solver == "eigen":
        return (1.0, float(n) ** 2, float(n) ** 3)
    width = usual_width(k)
    if solver == "shift-invert":  # a factor, some thirty solves of K and guards, and no probe
        factor = looks.factor
        return (1.0, n * width, factor.entries * width, factor.operations, n * width**2)
    probe = LAWS["probe"].at(k, crowding)
    if solver == "lanczos":
        steps = LAWS["lanczos"].at(k, crowding)
        basis = 1.7 * k + 14  # between a restart and the next, in the mean
        products = steps + probe
        return (1.0, products, products * entries, n * (steps * basis + probe * k))
    passes = LAWS[solver].at(k, crowding) * k / width
    columns = passes * width
    return (
        1.0,
        passes + probe,
        (passes + probe) * entries,
        columns * entries * _latency(n),
        n * (columns + probe * k),
        columns * n * width,
    )


def _latency(n: int) -> float:
    """How much longer the gathering of rows takes than inside a core's own cache."""
    share = math.log(n / NEAR) / math.log(FAR / NEAR)
    return 1 + OUT_OF_CACHE * min(max(share, 0.0), 1.0)


# Seconds per unit of :func:`work`, one thread: of graphs up to 4,096 nodes, which numpy and scipy work on,
# and of larger ones, which compiled kernels do.
CONSTANTS: Mapping[tuple[str, bool], tuple[float, ...]] = {
    ("eigen", False): (0.0021, 2.4e-08, 3.4e-11),
    ("lanczos", False): (0.0032, 2.7e-05, 6e-10, 4.5e-10),
    ("lanczos", True): (0.006, 4e-05, 9e-10, 3.6e-10),
    ("chebyshev", False): (0.0041, 1.2e-05, 3.2e-10, 2.9e-10, 9.8e-10, 2.6e-11),
    ("chebyshev", True): (0.008, 4e-05, 4e-10, 2e-10, 7e-10, 2.2e-11),
    ("shift-invert", False): (0.0051, 2.7e-07, 1.4e-09, 7e-11, 1e-08),
    ("shift-invert", True): (0.011, 4e-08, 3.5e-09, 3e-11, 3.2e-09),
    ("multilevel", False): (0.028, 3.2e-05, 0, 3.7e-10, 8.3e-10, 4e-10),
    ("multilevel", True): (0.04, 0, 0, 0, 1.2e-09, 3.7e-10),
}


def predicted_seconds(solver: str, looks: Looks, small: int) -> float:
    """Seconds of one thread until the certificate stands; up to ``small`` nodes nothing is compiled."""
    constants = CONSTANTS[solver, looks.n > small]
    return sum(c * x for c, x in zip(constants, work(solver, looks), strict=True))
