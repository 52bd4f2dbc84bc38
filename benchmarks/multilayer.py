"""Several layers: quality of the aggregations, a noisy layer, speed, joint against two stages, Table 2.

python -m benchmarks multilayer                  # all of it, into docs/benchmarks.md
python -m benchmarks.multilayer PART ...         # some parts, on the screen
"""

from __future__ import annotations

import sys

from benchmarks import multilayer_joint, multilayer_quality, multilayer_speed, paper_table

PARTS = {
    "mfeat": multilayer_quality.mfeat,
    "noise": multilayer_quality.noise,
    "pieces": multilayer_speed.pieces,
    "large": multilayer_speed.large,
    "joint": multilayer_joint.joint,
    "yelp": paper_table.yelp,
}


def run() -> str:
    return "\n\n".join(["## Several layers", *map(section, PARTS)])


def section(name: str) -> str:
    title = str(PARTS[name].__doc__).rstrip(".")
    return f"### {title}\n\n{PARTS[name]()}"


if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        print(section(name), flush=True)
