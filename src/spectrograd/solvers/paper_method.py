"""What ``sgd-paper`` is wherever it runs: its settings, and what the user should know of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from spectrograd.solvers.minibatch import Sampling
from spectrograd.solvers.protocol import SteppingSolver, StepT

PAPER_NODES = 10_000
OFTEN = 4  # times that a batch may meet a node: 0.8 in the paper


@dataclass(frozen=True)
class PaperMethod(SteppingSolver[StepT]):
    """The parameters are those of :class:`~spectrograd.solvers.sgd_paper.PaperSGD`."""

    step_size: float = 1e-3
    batch_size: int = 4000
    max_iter: int = 500
    batch: Sampling = "edges"
    optimizer: Literal["amsgrad", "sgd"] = "amsgrad"
    beta1: float = 0.9
    beta2: float = 0.999
    gram_update: Literal["printed", "unique"] = "printed"
    replacement: bool = True
    redrawn: bool = True
    refresh: int = 100

    name: ClassVar[str] = "sgd-paper"
    report_every: ClassVar[int] = 50

    def check_parameters(self) -> None:
        """Refuse what means nothing."""
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: at least one edge is needed")
        if self.optimizer not in ("amsgrad", "sgd"):
            raise ValueError(f"optimizer={self.optimizer!r}: expected 'amsgrad' or 'sgd'")
        if self.gram_update not in ("printed", "unique"):
            raise ValueError(f"gram_update={self.gram_update!r}: expected 'printed' or 'unique'")

    def advice(self, n_nodes: int) -> Iterator[str]:
        """What these settings mean for so many nodes, where it is not what one would expect."""
        if n_nodes > PAPER_NODES:
            yield (
                f"the paper's settings are those of {PAPER_NODES:,} nodes, here are {n_nodes:,}: "
                "'sgd' is the form for every size"
            )
        met = 2 * self.batch_size / n_nodes
        if self.gram_update == "printed" and met > OFTEN:
            yield (
                f"Eq. 19 as printed counts a node once per edge, here about {met:.0f} times per batch: "
                "gram_update='unique' counts it once"
            )

    def refreshes(self, iteration: int) -> bool:
        """Whether M is computed afresh before that step; as printed it is what its updates made it."""
        return self.gram_update == "unique" and iteration % self.refresh == 0

    def undisturbed(self, iteration: int) -> int:
        """Steps from there to the next report, refreshment or the end; at least one."""
        marks = [(iteration // every + 1) * every for every in (self.report_every, self.refresh)]
        return max(1, min(self.max_iter, *marks) - iteration)
