"""A fit that did not reach its accuracy says so, as scikit-learn's own do."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

from spectrograd.notices import warn
from spectrograd.pipeline.result import Result
from spectrograd.pipeline.settings import Settings


def warn_unless_converged(result: Result, settings: Settings) -> None:
    """Warn where the accuracy asked for was not reached, be it by a layer behind a merge."""
    if result.converged or not settings.has_goal:
        return
    remedy = "raise max_iter, time_budget or tol, or choose another solver or number of clusters"
    if result.certificate.gap <= 0:
        remedy = "another number of eigenvectors or clusters may suit the graph better"
    if result.certificate.converged:
        remedy = "the layers named have embeddings of their own that are rough, or one choice of many"
    warn(f"{result.certificate.sentence}; {remedy}", ConvergenceWarning)
