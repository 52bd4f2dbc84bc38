"""Eigenvectors to compare by, certified afterwards if at all: by the plan, ARPACK, or exact for low rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse.linalg as sla

from spectrograd.certificate import unmeasured_certificate
from spectrograd.certificate.lanczos_probe import Evidence
from spectrograd.embedding import arrange
from spectrograd.engines import LocalEngine
from spectrograd.operators.base import Operator
from spectrograd.operators.composite import LowRankOperator
from spectrograd.operators.equilibration import equilibrate
from spectrograd.operators.sparse import LowRank, SparseOperator
from spectrograd.pipeline.result import CertifiedEmbedding
from spectrograd.pipeline.settings import Settings
from spectrograd.pipeline.solve import certify_solution, embed
from spectrograd.solvers.base import Progress
from spectrograd.solvers.loop import Solution
from spectrograd.solvers.settings import RunContext
from spectrograd.typing import Array

# ARPACK's tolerance. 1e-4 takes a seventh less time, and one certificate in three is then not met.
TOLERANCE = 1e-6
# ARPACK has the least fixed costs (1 to 2 ms less on some hundred nodes), and takes more products: 1.5 to 1.8
# times as long with 100 columns, or with two million edges.
MAX_ARPACK_COLUMNS = 32
MAX_ARPACK_ENTRIES = 200_000
# Nodes up to which LAPACK takes no longer than ARPACK needs to begin, and multiples of K likewise.
MAX_DENSE_NODES = 64
MIN_RELATIVE_VALUE = 1e-8  # of an eigenvalue of a Gram matrix whose vector is exact enough
REASON = "found among the candidates of aggregation='auto'"
UNMEASURED = "not certified: a candidate that was compared only"


def comparing(settings: Settings) -> Settings:
    """Settings for solves that only compare: the solver is free, whatever the result is solved by."""
    return replace(settings, solver="auto", params={}, tol="auto", max_iter=None, batch_size=None)


def is_rough(operator: Operator, settings: Settings, context: RunContext) -> bool:
    """Whether :func:`rough_embed` may leave out the certificate: nothing was asked for, and all is here."""
    free = settings.solver == "auto" and settings.tol == "auto" and settings.max_iter is None
    here = isinstance(context.engine, LocalEngine) and not operator.is_streamed
    return free and here and isinstance(operator, LowRankOperator | SparseOperator)


def rough_embed(
    operator: Operator, n_components: int, settings: Settings, context: RunContext | None = None
) -> CertifiedEmbedding:
    """An embedding without a certificate, unless a solver or a tolerance was asked for.

    Parameters
    ----------
    operator
        With the identity as metric.
    n_components
        Columns, fewer than there are nodes.
    settings
        Solver and seed.
    context
        The engine.
    """
    context = context or RunContext()
    if not is_rough(operator, settings, context):
        return embed(operator, n_components, settings, context)
    if isinstance(operator, LowRankOperator) or _is_for_arpack(operator, n_components, context):
        try:
            return _solve_quickly(operator, n_components, settings)
        except (sla.ArpackError, np.linalg.LinAlgError):
            pass  # the plan has other ways
    found = embed(operator, n_components, settings, replace(context, certifies=False))
    certificate = unmeasured_certificate(found.embedding.eigenvalues, UNMEASURED)
    return replace(found, certificate=certificate, reason=REASON)


def _is_for_arpack(operator: Operator, k: int, context: RunContext) -> bool:
    assert isinstance(operator, SparseOperator)
    small = operator.n_nodes <= context.engine.thresholds.small and k <= MAX_ARPACK_COLUMNS
    return small and operator.graph.n_entries <= MAX_ARPACK_ENTRIES


def _solve_quickly(operator: Operator, n_components: int, settings: Settings) -> CertifiedEmbedding:
    """By ARPACK, or exactly for an operator of low rank."""
    began = time.perf_counter()
    fit = equilibrate(operator)
    inside = operator if fit is None else fit.operator
    if isinstance(inside, LowRankOperator):
        vectors, evidence = _solve_low_rank(inside, n_components)
    else:
        assert isinstance(inside, SparseOperator)
        vectors, evidence = _solve_sparse(inside, n_components, settings)
    values = np.einsum("ij,ij->j", vectors, np.asarray(inside @ vectors))
    if fit is not None:
        vectors = fit.inverse_transform(vectors)
        values = fit.unit * values
        evidence = evidence.in_units(fit.unit)
    arranged = arrange(vectors, values, operator.names)
    seconds = time.perf_counter() - began
    last = Progress(1, 0.0, 0, float(values.sum()), np.inf, 0.0, seconds)
    solution = Solution(
        arranged.vectors, "eigen", (last,), "converged", seconds, evidence=evidence, reason=REASON
    )
    certificate = unmeasured_certificate(arranged.eigenvalues, UNMEASURED)
    return CertifiedEmbedding.of(solution, arranged, certificate, UNMEASURED)


def certify_rough(
    operator: Operator, found: CertifiedEmbedding, settings: Settings, context: RunContext | None = None
) -> CertifiedEmbedding:
    """The embedding with a certificate; solved again where rough vectors do not earn one."""
    if found.certificate.known != UNMEASURED:
        return found
    measured = certify_solution(operator, found.as_solution(), settings, context)
    if measured.certificate.converged:
        return measured
    return embed(operator, found.Q.shape[1], settings, context, start=np.asarray(found.Q))


def _solve_low_rank(operator: LowRankOperator, k: int) -> tuple[Array, Evidence]:
    """Smallest eigenvectors of ``-Z diag(a) Z'`` with a >= 0: left singular vectors of ``Z diag(a)^1/2``.

    By the Gram matrix, whose eigenvalues are all there are, where the K largest are far above its rounding;
    else, or where the rank is below K, by the singular value decomposition.
    """
    Z = operator.low_rank.factors * np.sqrt(np.maximum(operator.low_rank.coefficients, 0.0))
    if Z.shape[1] > k:
        values, W = np.linalg.eigh(Z.T @ Z)
        values = values[::-1]
        W = W[:, ::-1]
        if values[k - 1] > MIN_RELATIVE_VALUE * values[0]:
            vectors = np.linalg.qr(Z @ (W[:, :k] / np.sqrt(values[:k])))[0]
            return np.asarray(vectors), Evidence(-float(values[k]), complete=True)
    left, singular, _ = np.linalg.svd(Z, full_matrices=False)
    if left.shape[1] <= k:  # the rest of the subspace is arbitrary
        more = np.random.default_rng(0).standard_normal((len(left), k - left.shape[1]))
        return np.asarray(np.linalg.qr(np.hstack([left, more]))[0]), Evidence(0.0, complete=True)
    return np.asarray(left[:, :k]), Evidence(-float(singular[k] ** 2), complete=True)


def _solve_sparse(operator: SparseOperator, k: int, settings: Settings) -> tuple[Array, Evidence]:
    """ARPACK on ``upper I - A``, whose products are those of one sparse matrix and a low-rank part."""
    n = operator.n_nodes
    if n <= max(MAX_DENSE_NODES, 3 * k):
        values, vectors = np.linalg.eigh(operator.to_dense())
        return np.asarray(vectors[:, :k]), Evidence(float(values[k]), complete=True)
    product = _product_of(operator)
    start = np.random.default_rng(settings.seed).standard_normal(n)
    values, vectors = sla.eigsh(
        _Shifted(n, product), k + 1, which="LA", v0=start, tol=TOLERANCE, ncv=min(n - 1, 2 * k + 12)
    )
    return np.asarray(vectors[:, :0:-1]), Evidence(float(operator.upper - values[0]))


class _Shifted(sla.LinearOperator):  # type: ignore[misc]
    """``upper I - A`` for ARPACK, without the checks of every vector that scipy's own makes."""

    def __init__(self, n: int, product: Callable[[Array], Array]) -> None:
        super().__init__(np.float64, (n, n))
        self._product = product

    def _matvec(self, x: Array) -> Array:
        return self._product(x)

    def matvec(self, x: Array) -> Array:
        """One product."""
        return self._product(x)


def _product_of(operator: SparseOperator) -> Callable[[Array], Array]:
    matrix = operator.astype(np.float64).scaled_matrix
    rest = operator.upper - operator.diagonal
    low_rank = operator.low_rank or LowRank(np.zeros((operator.n_nodes, 0)), np.zeros(0))
    Z = np.asarray(low_rank.factors, dtype=np.float64)

    def product(x: Array) -> Array:
        y = matrix @ x
        y += rest * x
        return np.asarray(y + Z @ (low_rank.coefficients * (x @ Z)) if Z.shape[1] else y)

    return product
