"""How far a run is: rate, share done and time left, as far as a limit tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrograd.solvers import Progress


@dataclass
class Meter:
    """The limits of a run: iterations, seconds, or neither. It may stop earlier, when it is good enough.

    A run that goes on from a checkpoint counts its own seconds and iterations: the first measurement of a
    solve is where it began.
    """

    max_iter: int | None = None
    time_budget: float | None = None
    _began: tuple[int, float] = (0, 0.0)
    _last: int | None = None

    def _own(self, progress: Progress) -> tuple[int, float]:
        """Iterations and seconds of this run; remembers where a solve began."""
        if self._last is None or progress.iteration < self._last:
            self._began = (progress.iteration, progress.seconds)
        self._last = progress.iteration
        return progress.iteration - self._began[0], progress.seconds - self._began[1]

    def share(self, progress: Progress) -> float | None:
        """How much of the nearest limit is used up, or None without a limit."""
        shares, (_, seconds) = [], self._own(progress)
        if self.max_iter is not None:
            shares.append(progress.iteration / self.max_iter)
        if self.time_budget is not None:
            shares.append(seconds / self.time_budget)
        return min(1.0, max(shares)) if shares else None

    def text(self, progress: Progress) -> str:
        """Rate and, with a limit, the time left at most."""
        done, seconds = self._own(progress)
        if seconds <= 0 or done <= 0:
            return ""
        rate = f"{done / seconds:,.1f} it/s"
        lefts = []
        if self.max_iter is not None:
            lefts.append((self.max_iter - progress.iteration) * seconds / done)
        if self.time_budget is not None:
            lefts.append(self.time_budget - seconds)
        return f"{rate}  <{clock(max(0.0, min(lefts)))} left" if lefts else rate


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
