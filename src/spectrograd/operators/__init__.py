"""What a solver multiplies: Laplacians, regularised or not, plus a low-rank part."""

from spectrograd.operators.laplacian import Kind, LowRank, Operator, laplacian

__all__ = ["Kind", "LowRank", "Operator", "laplacian"]
