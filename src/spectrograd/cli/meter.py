"""How far a run is: rate, share done and time left, as far as a limit tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrograd.solvers import Progress


@dataclass(frozen=True)
class Meter:
    """The limits of a run: iterations, seconds, or neither. It may stop earlier, when it is good enough."""

    max_iter: int | None = None
    time_budget: float | None = None

    def share(self, progress: Progress) -> float | None:
        """How much of the nearest limit is used up, or None without a limit."""
        shares = []
        if self.max_iter is not None:
            shares.append(progress.iteration / self.max_iter)
        if self.time_budget is not None:
            shares.append(progress.seconds / self.time_budget)
        return min(1.0, max(shares)) if shares else None

    def text(self, progress: Progress) -> str:
        """Rate and, with a limit, the time left at most."""
        if progress.seconds <= 0 or progress.iteration == 0:
            return ""
        rate = f"{progress.iteration / progress.seconds:,.1f} it/s"
        share = self.share(progress)
        if not share:
            return rate
        left = progress.seconds * (1 - share) / share
        return f"{rate}  <{clock(left)} left"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
