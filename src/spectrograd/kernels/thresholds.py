"""From which sizes on another way is the faster one: one value, which an engine carries to all who ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Sizes that decide between two ways to the same result, each with the reason for its usual value.

    Attributes
    ----------
    small
        Nodes up to which numpy and scipy are fast enough, and nothing has to be compiled.
    worth_threads
        Entries of a pass; fewer take less time than waking the threads may cost.
    parallel_rows
        Rows from which small dense products are worth threads.
    block
        Numbers of a block up to which numpy combines its columns as fast as compiled code does: a first fit
        of 20,000 nodes and few clusters then has three kernels fewer to wait for.
    wide
        Columns of two blocks from which BLAS multiplies them faster than compiled code. Measured with one
        thread: as fast at 48; at 512 three to four times as fast (combinations; Gram matrices, which are
        float64, 1.6 to 3.5 times).
    reordered_from, near
        Nodes below which all vectors fit into a core's own cache; rows of eight float32 that do.
    long_rows
        Entries per row, in the mean, from which the ends of rows take no time beside their entries.
    all_vectors, dense_at_most
        Nodes up to which all eigenvectors take no longer than a few of them and a look at the spectrum; and
        up to which they are a candidate.
    far_too_much
        Entries of the factor per edge, which no second search could take back: 2 to 11 are found on roads
        and planar k-NN graphs, thousands on block models and social graphs.
    shrinks
        Of the entries, what one matching may leave for a hierarchy to be a candidate; measured: 0.34 on
        planar k-NN, 0.5 to 0.56 on roads and k-NN of many dimensions, 0.65 to 0.8 on social graphs, 0.9 on
        block models.
    """

    small: int = 4096
    worth_threads: int = 50_000
    parallel_rows: int = 20_000
    block: int = 1 << 19
    wide: int = 48
    reordered_from: int = 30_000
    near: int = 8192
    long_rows: int = 48
    all_vectors: int = 250
    dense_at_most: int = 1500
    far_too_much: int = 160
    shrinks: float = 0.6


USUAL = Thresholds()
