"""`python -m benchmarks [NAME ...] [--write]`: run suites; ``--write`` puts their blocks into the pages.

``labels --sets NAME,NAME`` measures some of its sets only, which is not written. ``guard`` fails where a case
has become slower than its recorded ratio, and ``guard --record`` records.
"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.blocks import fill_pages, store
from benchmarks.harness import machine

SUITES = (
    "demo",
    "drop_in",
    "methods",
    "regularization",
    "labelling",
    "small_graphs",
    "labels",
    "number_of_clusters",
    "cluster_verdict",
    "compressive",
    "spmm",
    "cold_start",
    "memory",
    "paper_table",
    "paper_studies",
    "multilayer",
    "layer_weights",
    "layers",
    "sgd",
    "sgd_labels",
    "partition",
    "store",
    "disk_passes",
    "first_hour",
    "neighbours",
    "reading",
    "shootout",
    "growth",
    "report_page",
    "update",
    "dask_engine",
    "torch_engine",
    "parametric",
    "public",
    "ecosystem",
    "beyond",
    "faults",
)
# judges and writes no page; not among what is run without a name
GUARD = "guard"


def main(arguments: list[str]) -> None:
    """Run the suites asked for; a suite gives one block under its own name, or several by name."""
    if arguments[:1] == [GUARD]:
        if arguments[1:] not in ([], ["--record"]):
            raise SystemExit("guard takes --record, and nothing else")
        print(import_module("benchmarks.guard").run(record=len(arguments) > 1))
        return
    options: dict[str, list[str]] = {}
    if "--sets" in arguments:
        at = arguments.index("--sets")
        options = {"names": arguments[at + 1].split(",")}
        if arguments[:at] != ["labels"] or "--write" in arguments:
            raise SystemExit("--sets belongs to labels, without --write")
        arguments = arguments[:at]
    names = [word for word in arguments if word != "--write"]
    unknown = set(names) - set(SUITES)
    if unknown:
        raise SystemExit(f"unknown suite {sorted(unknown)[0]!r}: expected some of {', '.join(SUITES)}")
    for name in names or SUITES:
        print(f"== {name}", flush=True)
        found = import_module(f"benchmarks.{name}").run(**options)
        for block, body in (found if isinstance(found, dict) else {name: found}).items():
            print(body, flush=True)
            if "--write" in arguments:
                store(block, f"{body}\n\nMeasured {machine()}; `python -m benchmarks {name} --write`.")
    if "--write" in arguments:
        fill_pages()


if __name__ == "__main__":
    main(sys.argv[1:])
