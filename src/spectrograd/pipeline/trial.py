"""Solves of candidates: vectors first, a certificate only for those that are taken.

A certificate costs a third of a small solve, and most candidates lose. K and 2K vectors of one operator are
one solve: the first K columns of the wider one are Ritz vectors of its larger subspace.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace

from spectrograd.certificate.certificate import unmeasured_certificate
from spectrograd.embedding import Embedding
from spectrograd.operators.laplacian import Regularization
from spectrograd.pipeline.result import CertifiedEmbedding, Result
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.single import GraphOperator, PreparedGraph
from spectrograd.pipeline.solve import certify_first_columns, certify_solution
from spectrograd.solvers.settings import RunContext


@dataclass(frozen=True, eq=False)
class Trial:
    """One solve without a certificate; ``cost`` is a result that holds its seconds, passes and products."""

    prepared: PreparedGraph
    settings: Settings
    context: RunContext
    solved: CertifiedEmbedding
    operator: GraphOperator
    regularization: Regularization
    cost: Result

    def first_columns(self, k: int) -> Result:
        """The first k columns as a result that nobody vouches for; its costs are those of the solve."""
        embedding = self.solved.embedding
        if k == embedding.n_components:
            return self.cost
        narrow = Embedding(embedding.vectors[:, :k], embedding.eigenvalues[:k], embedding.names)
        unmeasured = unmeasured_certificate(embedding.eigenvalues[:k], "not measured")
        part = replace(self.solved, embedding=narrow, certificate=unmeasured)
        found = self.prepared.result_of(part, self.operator, self.regularization, self.context, {})
        return replace(found, passes=0.0, matvecs=0)

    def certified(self, k: int) -> Result:
        """The same columns with their certificate; its costs are those of the certificate alone."""
        began = time.perf_counter()
        engine = self.context.engine
        before = copy.copy(engine.work)
        context = replace(self.context, certifies=True)
        solved = self.solved
        whole = certify_solution(self.operator, solved.as_solution(), self.settings, context)
        found = whole
        if k < solved.embedding.n_components:
            found = certify_first_columns(self.operator, whole, k, self.settings, context)
        seconds = {"solve": time.perf_counter() - began}
        found = replace(found, attempts=(*solved.attempts[:-1], *found.attempts))
        result = self.prepared.result_of(found, self.operator, self.regularization, context, seconds)
        passes = engine.work.passes - before.passes
        return replace(result, passes=passes, matvecs=engine.work.matvecs - before.matvecs)


def run_trial(prepared: PreparedGraph, settings: Settings, context: RunContext) -> Trial:
    """Solve a prepared graph by the first solver of its plan, without a certificate."""
    began = time.perf_counter()
    before = copy.copy(context.engine.work)
    context = replace(context, certifies=False)
    with context.engine.threads():
        solved, operator, regularization, _ = prepared.solve_part(settings, context.start_clock(settings))
    seconds = {"solve": time.perf_counter() - began}
    result = prepared.result_of(solved, operator, regularization, context, seconds)
    cost = result.counted(before, context.engine.work)
    return Trial(prepared, settings, context, solved, operator, regularization, cost)
