"""Compiled kernels: arrays in, arrays out; they import nothing of ours.

Every kernel is parallel over rows or fixed-size chunks and sums the chunks in order, so the bits of
a result do not depend on the number of threads. Each has a plain-NumPy twin in ``tests/reference.py``.
"""

from spectrograd.kernels.thresholds import USUAL

# For whatever has no engine at hand, which has thresholds of its own.
SMALL = USUAL.small
WORTH_THREADS = USUAL.worth_threads
PARALLEL_ROWS = USUAL.parallel_rows
# Entries of a row that are summed up before they are added to the rest: in float32 the sum of a long row
# would else be lost in its rounding errors. A row of 100,000 entries has some two hundred blocks.
SUM_BLOCK = 512
LANES = 8  # columns of a row that a kernel holds in registers
