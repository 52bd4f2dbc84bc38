"""``python tests/fuzz.py 10000``: the campaigns of test_certificate_never_wrong.py at length, by solver.

One case in five is of :mod:`campaign_large`: long rows, stores, numeric tolerances, ``"auto"`` clusters; one
of :mod:`campaign_kinds`: hundreds of equal eigenvalues, threads, signs, models whose edges change.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import campaign
import campaign_kinds
import campaign_large

EVERY = 5


def _judged(number: int) -> tuple[str, str, str, str]:
    """Solver, outcome, what was asked and what was said of the case."""
    if number % EVERY == 0:
        outcome, sentence = campaign_large.judged(number // EVERY)
        large = campaign_large.case(number // EVERY)
        where = "store" if large.stored else "memory"
        size = f"n={large.W.shape[0]} k={'auto' if large.auto else large.k} tol={large.tol} {where}"
        return large.solver, outcome, f"{large.solver} {large.kind} {large.family} {size}", sentence
    if number % EVERY == 1:
        outcome, sentence = campaign_kinds.judged(number // EVERY)
        hard = campaign_kinds.case(number // EVERY)
        size = f"n={hard.W.shape[0]} k={hard.k} stored={hard.stored} changed={hard.change is not None}"
        return hard.solver, outcome, f"{hard.solver} {hard.kind} {hard.family} {size}", sentence
    outcome, sentence = campaign.judged(number)
    given = campaign.case(number)
    about = f"{given.solver} {given.kind} {given.family} n={len(given.W)} k={given.k}"
    size = f"1e{given.exponent} ratio {given.ratio:g} warm={given.before is not None}"
    return given.solver, outcome, f"{about} {size}", sentence


def main(n_cases: int = 10_000, first: int = 0) -> int:
    """Print how the cases ended, and each one that is wrong or crashed; their number."""
    write = sys.stdout.write
    counts: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    for number in range(first, first + n_cases):
        if number % 500 == 0:
            sys.stderr.write(f"case {number}, {time.perf_counter() - began:.0f} s\n")
        solver, outcome, about, sentence = _judged(number)
        counts[solver, outcome] += 1
        if outcome in (campaign.WRONG, campaign.CRASHED):
            write(f"case {number}: {outcome}: {about}: {sentence}\n")
            sys.stdout.flush()
    write("".join(f"{head:>20}" for head in ("solver", *campaign.OUTCOMES)) + "\n")
    for solver in campaign.SOLVERS:
        cells = (solver, *(counts[solver, outcome] for outcome in campaign.OUTCOMES))
        write("".join(f"{cell:>20}" for cell in cells) + "\n")
    totals = [sum(counts[s, outcome] for s in campaign.SOLVERS) for outcome in campaign.OUTCOMES]
    write("".join(f"{cell:>20}" for cell in ("all", *totals)) + "\n")
    write(f"{n_cases} cases in {time.perf_counter() - began:.0f} s\n")
    return totals[-1] + totals[-2]


if __name__ == "__main__":
    sys.exit(min(1, main(*(int(word) for word in sys.argv[1:]))))
