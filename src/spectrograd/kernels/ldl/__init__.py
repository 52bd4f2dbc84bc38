"""Kernels of the sparse factorisation: ordering, symbolic and numeric phase, triangular solves."""
