"""Operators, which solvers multiply: Laplacians, regularised or not, low rank, functions and sums of them."""

from spectrograd.operators.base import Operator
from spectrograd.operators.laplacian import Kind, laplacian
from spectrograd.operators.sparse import LowRank, SparseOperator

__all__ = ["Kind", "LowRank", "Operator", "SparseOperator", "laplacian"]
