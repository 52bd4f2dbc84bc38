"""What is left to do when all chunks are done.

Number by number: sums of arrays take numba seconds to compile, for all the words in their error messages.
"""

import numpy as np

from spectrograd.kernels.jit import inner


@inner
def summed(partial):
    """The sum over chunks, in order.

    A function of its own: in a parallel kernel numba would wake the threads for every ``+=`` of two arrays,
    which takes longer than the chunks themselves.
    """
    total = np.zeros(partial.shape[1:])
    sums, parts = total.reshape(total.size), partial.reshape(partial.size)
    for c in range(partial.shape[0]):
        for k in range(sums.size):
            sums[k] += parts[c * sums.size + k]
    return total


@inner
def joined(first, near, rest):
    """Mutates: ``rest`` plus ``near``, of which rows before ``first`` hold nothing."""
    for j in range(first, rest.shape[0]):
        for k in range(rest.shape[1]):
            rest[j, k] += near[j, k]
    return rest
