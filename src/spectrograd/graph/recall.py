"""How many of the true neighbours a k-NN graph holds: a note that stays with the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Recall(float):
    """The share of the true neighbours that were found: a number with its standard error.

    ``n_rows`` exact rows were compared; 0 says that the search itself was exact.

    Examples
    --------
    >>> print(Recall(0.987, 0.0042, 400))
    98.7 % of the true neighbours, +- .4
    >>> print(Recall(1.0), Recall(0.98) > 0.9)
    100 % of the true neighbours True
    """

    error: float
    n_rows: int

    def __new__(cls, value: float, error: float = 0.0, n_rows: int = 0) -> Recall:
        """A share between 0 and 1."""
        made = super().__new__(cls, value)
        made.error, made.n_rows = float(error), int(n_rows)
        return made

    def __getnewargs__(self) -> tuple[float, float, int]:  # type: ignore[override]
        return float(self), self.error, self.n_rows

    def __str__(self) -> str:
        if not self.n_rows:
            return "100 % of the true neighbours"
        margin = f"{100 * self.error:.1f}".removeprefix("0")
        return f"{100 * self:.1f} % of the true neighbours, +- {margin}"

    def summary(self) -> dict[str, float | int]:
        """For ``--summary-json``."""
        return {"value": float(self), "standard_error": self.error, "rows_compared": self.n_rows}

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> Recall:
        """What :meth:`summary` was made of."""
        return cls(summary["value"], summary["standard_error"], summary["rows_compared"])
