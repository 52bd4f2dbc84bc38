"""Compiled kernels: arrays in, arrays out; they import nothing of ours.

Every kernel is parallel over rows or fixed-size chunks and sums the chunks in order, so the bits of
a result do not depend on the number of threads. Each has a plain-NumPy twin in ``tests/reference.py``.
"""
