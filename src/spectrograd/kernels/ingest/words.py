"""Words to numbers: a table of hashes with open addressing, and the letters themselves to be sure."""

import numpy as np

from spectrograd.kernels.ingest.scan import BEGIN, HASH, SIZE
from spectrograd.kernels.jit import serial

NUMBER_BITS = np.uint64((1 << 32) - 1)  # of a slot; above them are those of the hash that say where it stands
GROUP = 64
_NEWLINE = np.uint8(10)


@serial
def number_words(text, words, slots, starts, letters, n_known, codes):
    """Mutates: codes of the words (int32), and the table where it meets new ones: how many it knows then.

    ``words`` (3 x n, int64) are hash, first byte and length in ``text``. ``slots`` (uint64, a power of two of
    them) hold the upper half of a hash and one more than a number, 0 where they are empty. Word number w is
    ``letters[starts[w] : starts[w + 1] - 1]``, and a newline behind it. There must be room for all
    words to be new.
    """
    last_slot, touched = np.uint64(len(slots) - 1), np.empty(GROUP, np.int64)
    for w in range(words.shape[1]):
        if w % GROUP == 0:  # step by step: the processor then waits for many words at once
            n_ahead = min(GROUP, words.shape[1] - w)
            for g in range(n_ahead):
                place = (np.uint64(words[HASH, w + g]) >> np.uint64(32)) & last_slot
                touched[g] = slots[place] & NUMBER_BITS
            for g in range(n_ahead):
                touched[g] = starts[max(touched[g] - 1, 0)]
            for g in range(n_ahead):
                touched[g] = letters[touched[g]]
        tag = np.uint64(words[HASH, w]) & ~NUMBER_BITS
        begin, size = words[BEGIN, w], words[SIZE, w]
        place = (tag >> np.uint64(32)) & last_slot
        code = -1
        while code < 0:
            slot = slots[place]
            known = np.int64(slot & NUMBER_BITS) - 1
            if known < 0:
                slots[place] = tag | np.uint64(n_known + 1)
                for at in range(size):
                    letters[starts[n_known] + at] = text[begin + at]
                letters[starts[n_known] + size] = _NEWLINE
                starts[n_known + 1] = starts[n_known] + size + 1
                code, n_known = n_known, n_known + 1
            elif slot & ~NUMBER_BITS == tag and starts[known + 1] - starts[known] == size + 1:
                at, own = 0, starts[known]
                while at < size and letters[own + at] == text[begin + at]:
                    at += 1
                code = known if at == size else -1
            place = (place + np.uint64(1)) & last_slot
        codes[w] = code
    return n_known


@serial
def spread_slots(old, slots):
    """Mutates: slots, all empty, which take what the old ones hold."""
    last_slot = np.uint64(len(slots) - 1)
    for slot in old:
        if slot > 0:
            place = (slot >> np.uint64(32)) & last_slot
            while slots[place] > 0:
                place = (place + np.uint64(1)) & last_slot
            slots[place] = slot
