"""What is left to do when all chunks are done."""

import numpy as np

from spectrograd.kernels._jit import inner


@inner
def summed(partial):
    """The sum over chunks, in order.

    A function of its own: in a parallel kernel numba would wake the threads for every ``+=`` of two arrays,
    which takes longer than the chunks themselves.
    """
    total = np.zeros(partial.shape[1:])
    for c in range(partial.shape[0]):
        total += partial[c]
    return total


@inner
def joined(first, near, rest):
    """Mutates: ``rest`` plus ``near``, of which rows before ``first`` hold nothing."""
    for j in range(first, rest.shape[0]):
        rest[j] += near[j]
    return rest
