"""The shootout's figures as a Markdown page: who was right, how long it took, where we lose."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.harness import table
from benchmarks.plots import shootout_plot
from benchmarks.shootout.entrants import DEFAULT, ENTRANTS, OURS

Row = dict[str, Any]
HEAD = """Seconds for the embedding (ours with its certificate), every peer at the loosest of three tolerances
that still gives equal quality. A peer of equal quality has a trace within 1 % of the best, or an NMI within
.01 of the best where classes are known; X marks a result that is silently wrong, - one that failed or was
stopped after 10 times our time, or 15 s (or 4 times our time, if that is more; scikit-learn's default not
before 20 s), and is then not run on larger graphs of the same kind."""


def page(cases: dict[str, Row]) -> str:
    """Two tables and what they add up to."""
    verdicts = _all_verdicts(cases)
    return "\n\n".join(
        [
            "## Shootout: time to equal quality",
            HEAD,
            _times(cases),
            _summary(verdicts),
            _verdicts(verdicts),
            f"![times faster than the best peer]({shootout_plot(verdicts)})",
        ]
    )


def short(cases: dict[str, Row]) -> str:
    """What it adds up to, for the README."""
    return _summary(_all_verdicts(cases))


def _all_verdicts(cases: dict[str, Row]) -> list[Row]:
    return [verdict(name, case) for name, case in cases.items() if "seconds" in case["entrants"][OURS]]


def right(row: Row, case: Row) -> bool:
    """Equal quality, as the page says."""
    done = [r for r in case["entrants"].values() if "trace" in r]
    best = min(r["trace"] for r in done)
    most = max((r["nmi"] for r in done if "nmi" in r), default=None)
    if "trace" not in row:
        return False
    floor = 1e-9 * case["k"]
    close = row["trace"] <= 1.01 * best + floor
    return close or (most is not None and row.get("nmi", -1) >= most - 0.01)


def verdict(name: str, case: Row) -> Row:
    """Our time against the fastest peer of equal quality, with and without labels."""
    ours = case["entrants"][OURS]
    peers = {n: r for n, r in case["entrants"].items() if n != OURS and right(r, case)}
    best = min(peers, key=lambda n: peers[n]["seconds"], default=None)
    all_in = {n: r["seconds"] + r["label_seconds"] for n, r in peers.items() if "label_seconds" in r}
    total = ours["seconds"] + ours.get("label_seconds", np.nan)
    default = _seconds_at_least(case["entrants"][DEFAULT])
    return {
        "name": name,
        "right": right(ours, case),
        "best": best,
        "ratio": peers[best]["seconds"] / ours["seconds"] if best else None,
        "labelled": min(all_in.values()) / total if all_in else None,
        "default": default / ours["seconds"] if default else None,
        "default_ended": "seconds" in case["entrants"][DEFAULT],
        "passes": ours["seconds"] / ours["pass"],
        "solver": ours["solver"],
        "converged": ours["converged"],
    }


def _seconds_at_least(row: Row) -> float | None:
    """What a peer took, or how long it was let run; None where it did not run."""
    if "seconds" in row:
        return float(row["seconds"])
    stopped = re.match(r"more than (\d+) s", row["failed"])
    return float(stopped[1]) if stopped else None


def _times(cases: dict[str, Row]) -> str:
    rows = []
    for name, case in cases.items():
        cells = [f"{name}", f"{case['nodes']:,}", f"{case['nonzeros']:,}"]
        for entrant in ENTRANTS:
            row = case["entrants"][entrant]
            if "seconds" not in row:
                cells.append("-")
                continue
            nmi = f" ({row['nmi']:.3f})" if "nmi" in row else ""
            cells.append(f"{row['seconds']:.2f}{nmi}{'' if right(row, case) else ' X'}")
        rows.append(cells)
    return table(["graph", "nodes", "nonzeros", *(f"{e} (NMI)" for e in ENTRANTS)], rows)


def _verdicts(verdicts: list[Row]) -> str:
    rows = [
        (
            v["name"],
            v["solver"],
            "yes" if v["converged"] else "no",
            v["best"] or "none right in time",
            _times_faster(v["ratio"]),
            _times_faster(v["labelled"]),
            ("" if v["default_ended"] or not v["default"] else "> ") + _times_faster(v["default"]),
            f"{v['passes']:.0f}",
        )
        for v in verdicts
    ]
    head = [
        "graph",
        "chosen",
        "certified",
        "best peer",
        "faster",
        "with labels",
        "than its default",
        "passes",
    ]
    return table(head, rows)


def _times_faster(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}x"


def _summary(verdicts: list[Row]) -> str:
    def mean(key: str) -> float:
        values = [v[key] for v in verdicts if v[key]]
        return float(np.exp(np.mean(np.log(values)))) if values else np.nan

    lost = [
        f"{v['name']} ({v['ratio']:.2f}x of {v['best']})" for v in verdicts if v["ratio"] and v["ratio"] < 1
    ]
    wrong = [v["name"] for v in verdicts if not v["right"]]
    lines = [
        f"Geometric mean over {len(verdicts)} graphs: {mean('ratio'):.1f}x the best peer of each graph,",
        f"{mean('labelled'):.1f}x with labels; {mean('default'):.1f}x scikit-learn's default solver, counted",
        "until it was stopped where it was.",
        f"Cases we lose: {', '.join(lost) or 'none'}.",
        f"Cases where our own answer is not of equal quality: {', '.join(wrong) or 'none'}.",
    ]
    return "\n".join(lines)
