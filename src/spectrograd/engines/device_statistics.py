"""Statistics of rows on a device, as :mod:`spectrograd.engines.base` has them for arrays."""

from __future__ import annotations

from typing import Any

Tensor = Any


def peaks(torch: Any, X: Tensor) -> tuple[bool, Tensor, Tensor]:
    """Whether N x k numbers are finite; per column the entry of largest magnitude, the first, and its row."""
    sizes = X.abs()
    top = sizes.max(dim=0).values
    # a device may return any of several equal places: the first is asked for
    rows = torch.arange(X.shape[0], device=X.device)[:, None]
    where = torch.where(sizes == top, rows, X.shape[0]).min(dim=0).values.clamp_max(X.shape[0] - 1)
    return bool(torch.isfinite(X).all()), X.gather(0, where[None])[0].double(), where


def moments(torch: Any, X: Tensor, units: Tensor, metric: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of ``metric (x / unit)^2`` and ``^4`` per column, and of the metric."""
    mass = (
        torch.ones((len(X), 1), dtype=torch.float64, device=X.device) if metric is None else metric.double()
    )
    squares = (X.double() / units).square()
    return (mass * squares).sum(dim=0), (mass * squares.square()).sum(dim=0), mass.sum()


def row_lengths(torch: Any, X: Tensor) -> Tensor:
    """N x 1 in float64; squares are taken in units of the largest entry: they may leave the range."""
    largest = X.abs().amax(dim=1, keepdim=True).double()
    scaled = X / torch.where(largest == 0, 1.0, largest)
    return largest * scaled.square().sum(dim=1, keepdim=True).sqrt()


def nearest_centres(torch: Any, X: Tensor, centres: Tensor) -> tuple[Tensor, ...]:
    """Labels and gaps of some rows, and per centre their sums, their number and its use."""
    rows, count = X.double(), len(centres)
    scores = rows @ centres.T - centres.square().sum(dim=1) / 2
    best = scores.topk(min(2, count), dim=1)
    labels = best.indices[:, 0]
    lead = (
        2 * (best.values[:, 0] - best.values[:, -1])
        if count > 1
        else torch.full_like(scores[:, 0], torch.inf)
    )
    own = torch.zeros((len(rows), count), dtype=torch.float64, device=X.device)
    own[torch.arange(len(rows), device=X.device), labels] = 1.0  # sums by products: the same in every run
    use = torch.zeros(count, dtype=torch.float64, device=X.device).index_add_(0, labels, lead)
    return labels, (rows - centres[labels]).square().sum(dim=1), own.T @ rows, own.sum(dim=0).long(), use
