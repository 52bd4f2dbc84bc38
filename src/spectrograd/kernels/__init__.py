"""Compiled kernels: arrays in, arrays out; they import nothing of ours.

Every kernel is parallel over rows or fixed-size chunks and sums the chunks in order, so the bits of
a result do not depend on the number of threads. Each has a plain-NumPy twin in ``tests/reference.py``.
"""

# Up to this many nodes numpy and scipy are fast enough, and nothing has to be compiled.
SMALL = 4096
# Passes over fewer entries than this take less time than waking the threads may cost.
WORTH_THREADS = 50_000
TALL = 20_000  # rows from which small dense products are worth threads
# Entries of a row that are summed up before they are added to the rest: in float32 the sum of a long row
# would else be lost in its rounding errors. Rows of 100,000 entries have some two hundred pieces.
SUM_PIECE = 512
LANES = 8  # columns of a row that a kernel holds in registers
