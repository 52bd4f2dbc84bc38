"""Gaussian kernels of many points by random Fourier features, with their error measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spectrograd.graph.feature_rows import ResidentFeatures
from spectrograd.graph.features import FeatureGraph
from spectrograd.typing import Array

MAX_KERNEL_POINTS = 20_000  # up to which the kernel matrix itself is formed
N_FREQUENCIES = 512  # two features each; the error of a weight is about 1 / sqrt of that
N_PAIRS = 4000  # of points, whose weights are compared


@dataclass(frozen=True, eq=False)
class FourierMap:
    """``z(x) = [cos(x F), sin(x F)] / sqrt(m)`` with ``z(x)'z(y)`` about ``exp(-gamma |x - y|^2)``.

    Rahimi and Recht (2007), with frequencies F (n_coordinates x m) that are orthogonal in blocks, which
    lowers the error (Yu et al. 2016).
    """

    frequencies: Array

    @classmethod
    def draw(cls, n_coordinates: int, gamma: float, seed: int | None, m: int = N_FREQUENCIES) -> FourierMap:
        """Frequencies of the kernel ``exp(-gamma |x - y|^2)``: normal, with variance 2 gamma."""
        rng = np.random.default_rng(seed)
        blocks = []
        for _ in range(-(-m // n_coordinates)):
            directions = np.linalg.qr(rng.standard_normal((n_coordinates, n_coordinates)))[0]
            lengths = np.linalg.norm(rng.standard_normal((n_coordinates, n_coordinates)), axis=0)
            blocks.append(directions * lengths)
        return cls(np.sqrt(2 * gamma) * np.hstack(blocks)[:, :m])

    def __call__(self, X: Array) -> Array:
        """Features of points, float32, shape (n_points, 2 m)."""
        phases = np.asarray(X @ self.frequencies)
        features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(self.frequencies.shape[1])
        return np.ascontiguousarray(features, dtype=np.float32)


def fourier_graph(X: Array, gamma: float, seed: int | None) -> tuple[FeatureGraph, FourierMap]:
    """The graph of a Gaussian kernel by Fourier features; ``kernel_error`` is measured on random pairs.

    Parameters
    ----------
    X : array of shape (n_points, n_coordinates)
    gamma : float
    seed : int or None
    """
    n_points = X.shape[0]
    features = FourierMap.draw(X.shape[1], gamma, seed)
    Z = features(X)
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, n_points, (2, N_PAIRS))
    exact = np.exp(-gamma * np.square(X[one] - X[other]).sum(axis=1))
    error = np.einsum("ij,ij->i", Z[one], Z[other]) - exact
    rms = float(np.sqrt(np.mean(error[one != other] ** 2)))
    rows = ResidentFeatures(Z)
    ones = np.ones(n_points)
    graph = FeatureGraph((), n_points, features=rows, row_scale=ones, affinity="rbf", kernel_error=rms)
    return graph, features
