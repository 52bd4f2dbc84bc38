"""Which worker owns which row block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def reassigned(owners: Sequence[str], alive: Sequence[str], n_blocks: int) -> list[str]:
    """Owners of the blocks among the workers that are alive: as before where possible, and evenly.

    Examples
    --------
    >>> reassigned([], ["a", "b"], 4)
    ['a', 'a', 'b', 'b']
    >>> reassigned(["a", "a", "b", "b"], ["a", "c"], 4)
    ['a', 'a', 'c', 'c']
    >>> reassigned(["a", "a"], ["a", "b"], 2)
    ['b', 'a']
    """
    if not owners:
        return [alive[block * len(alive) // n_blocks] for block in range(n_blocks)]
    found: list[str | None] = [owner if owner in alive else None for owner in owners]
    load = Counter(dict.fromkeys(alive, 0))
    load.update(owner for owner in found if owner is not None)
    least = n_blocks // len(alive)
    for block, owner in enumerate(found):
        poorest = min(alive, key=lambda address: load[address])
        if owner is not None:
            rich = load[owner] > least + 1 or (load[owner] > least and load[poorest] < least)
            if not rich:
                continue
            load[owner] -= 1
        found[block] = poorest
        load[poorest] += 1
    return [str(owner) for owner in found]
