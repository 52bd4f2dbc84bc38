"""Statements on columns that mix eigenvectors: they stand in the place of a certificate.

Some solvers (``compressive``) return fewer columns than there are eigenvectors, each a random mixture of
them. No residual says how good such columns are. What can be said honestly: how many eigenvalues lie below
the edge of the filter, how much of the columns comes from beyond it, and whether two halves of the columns,
which are independent, lead to the same clusters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from spectrograd.typing import JsonObject

MAX_COUNT_ERRORS = 3.0  # standard errors by which the count may differ from what was asked for
MAX_FOREIGN_SHARE = 0.1  # of the columns' squares, from beyond the edge
# Adjusted Rand index of the labels of two halves: each half has half of the columns, so it says too little.
MIN_AGREEMENT = 0.8


@dataclass(frozen=True)
class MixedColumns:
    """The statement on columns that mix the first eigenvectors.

    Attributes
    ----------
    n_vectors
        Eigenvectors asked for: those that should be mixed.
    n_columns
        Random columns; a known null vector is none of them.
    edge
        Eigenvalue at which the filter falls.
    count, standard_error
        Estimated number of eigenvalues below the edge.
    foreign_share
        Part of the columns' squares from beyond the edge, by the density of eigenvalues.
    degree
        Of the filter.
    agreement
        Adjusted Rand index of the labels by two halves of the columns; None before labels were assigned.
    """

    n_vectors: int
    n_columns: int
    edge: float
    count: float
    standard_error: float
    foreign_share: float
    degree: int
    agreement: float | None = None

    @property
    def objections(self) -> list[str]:
        """Reasons against the columns; empty where there are none."""
        against = []
        if abs(self.count - self.n_vectors) > MAX_COUNT_ERRORS * max(self.standard_error, 0.5):
            against.append(f"no edge has {self.n_vectors} eigenvalues below it")
        if self.foreign_share > MAX_FOREIGN_SHARE:
            against.append("no gap of the spectrum is wide enough for a filter of this degree")
        if self.agreement is not None and self.agreement < MIN_AGREEMENT:
            against.append("the clusters depend on the random columns")
        return against

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against the columns, and their clusters were compared."""
        return self.agreement is not None and not self.objections

    @property
    def sentence(self) -> str:
        """The statement in words."""
        text = (
            f"{self.n_columns} columns mix the first {self.n_vectors} eigenvectors and have converged to "
            f"none: {self.count:.1f} +- {self.standard_error:.1f} eigenvalues counted below {self.edge:.3g}, "
            f"{self.foreign_share:.1%} of the columns from beyond"
        )
        if self.agreement is not None:
            text += f", clusters of two halves of the columns agree with an ARI of {self.agreement:.2f}"
        doubts = self.objections
        return f"{text}; doubtful: {', '.join(doubts)} (solver 'chebyshev' decides)" if doubts else text

    def in_units(self, unit: float) -> MixedColumns:
        """The statement for eigenvalues ``unit`` times as large."""
        return replace(self, edge=unit * self.edge)

    def summary(self) -> JsonObject:
        """The values that ``--summary-json`` holds."""
        return {**asdict(self), "good": self.is_good, "objections": self.objections}
