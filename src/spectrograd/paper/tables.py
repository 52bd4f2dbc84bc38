"""Tables 1 and 2 of the paper: its figures, the methods to run beside them, and ratios of their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spectrograd.typing import JsonMapping

DEFAULT = "auto"


@dataclass(frozen=True)
class Method:
    """A solver under the name the table shows, with the paper's figures where it has any."""

    label: str
    solver: str
    params: Mapping[str, object] = field(default_factory=dict)
    paper: Mapping[str, float | None] = field(default_factory=dict)
    remark: str = ""


Figures = dict[str, float | None]
# Shown by a computation in docs/method.md for the first table; the second has no data to show it with.
RI_IS = {
    1: "agrees numerically with the adjusted Rand index (ARI), not with RI",
    2: "is taken to be the adjusted Rand index (ARI), as it is in Table 1; that is not shown",
}
FIGURES = ("seconds", "iterations", "purity", "nmi", "ri")
NOT_IN_PAPER: Figures = dict.fromkeys(FIGURES)
DENSE = "Eigendecomposition (dense)"
FB = "Stochastic FB"
SGD = "Proposed (sgd-paper)"
MANY_NODES = 5000  # a dense eigendecomposition of more takes minutes


@dataclass(frozen=True)
class Experiment:
    """A table of El Gheche, Chierchia & Frossard (ICASSP 2019); rows of figures as in ``FIGURES``."""

    table: int
    data: str
    n_clusters: int
    eigen: tuple[float | None, ...]
    stochastic_fb: tuple[float | None, ...]
    proposed: tuple[float | None, ...]

    def ratio(self, name: str) -> float:
        """Time of a method over that of the proposed one."""
        return float(getattr(self, name)[0] or 0) / float(self.proposed[0] or 1)


# On 40 cores; the paper does not say which eigensolver.
EXPERIMENTS = {
    "1": Experiment(
        1,
        "synthetic data",
        5,
        eigen=(36.3, None, 0.93, 0.83, 0.85),
        stochastic_fb=(22.8, 3000, 0.94, 0.84, 0.86),
        proposed=(5.2, 500, 0.92, 0.79, 0.82),
    ),
    "2": Experiment(
        2,
        "Yelp data",
        3,
        eigen=(69.7, None, 0.87, 0.65, 0.56),
        stochastic_fb=(50.6, 3000, 0.88, 0.79, 0.88),
        proposed=(11.4, 500, 0.86, 0.71, 0.84),
    ),
}


def table_methods(experiment: Experiment, skip_dense: bool, n_nodes: int) -> list[Method]:
    """The methods of a table with the paper's figures, the dense eigendecomposition first, ``auto`` last."""
    eigen, fb, proposed = (
        dict(zip(FIGURES, figures, strict=True))
        for figures in (experiment.eigen, experiment.stochastic_fb, experiment.proposed)
    )
    wait = f"dense eigendecomposition of a {n_nodes:,} x {n_nodes:,} matrix: minutes (--skip-dense)"
    dense = Method(DENSE, "eigen", {"method": "dense"}, eigen, wait if n_nodes > MANY_NODES else "")
    return [
        *([] if skip_dense else [dense]),
        Method("Eigendecomposition (sparse)", "eigen", {"method": "arpack"}, eigen),
        Method(FB, "stochastic-fb", {"max_iter": 3000}, fb),
        Method(SGD, "sgd-paper", {"max_iter": 500}, proposed),
        Method("Default (auto)", DEFAULT, {}, NOT_IN_PAPER),
    ]


def time_ratios(rows: Sequence[JsonMapping], seconds_per_pass: float) -> dict[str, float | None]:
    """Ratios of our times: they carry over to other machines, seconds do not.

    Parameters
    ----------
    rows
        Of the table, with ``method`` and ``seconds``.
    seconds_per_pass
        Time of one product of the operator with the embedding.
    """
    seconds = {row["method"]: row["seconds"] for row in rows}
    sgd = seconds[SGD]

    def over_sgd(value: float | None) -> float | None:
        return None if value is None or sgd is None else value / sgd

    return {
        "dense_over_sgd_paper": over_sgd(seconds.get(DENSE)),
        "stochastic_fb_over_sgd_paper": over_sgd(seconds[FB]),
        "pass_equivalents": None if sgd is None else sgd / seconds_per_pass,
        "seconds_per_pass": seconds_per_pass,
    }
