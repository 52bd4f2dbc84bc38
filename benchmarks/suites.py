"""The suites: which blocks each writes, which packages these speak of, and how long it takes.

In the order in which ``python -m benchmarks --write`` runs them: what is cheap comes first. Minutes are those
of two cores that do nothing else; of long suites they are extrapolated from the CPU seconds of some cases.
"""

from __future__ import annotations

from dataclasses import dataclass

# what every embedding runs through
SOLVING = ("certificate", "engines", "kernels", "linalg", "operators", "pipeline", "solvers")
CLUSTERING = (*SOLVING, "labels")
LAYERS = (*CLUSTERING, "aggregation")
POINTS = (*CLUSTERING, "points")
STORES = (*SOLVING, "store", "io")


@dataclass(frozen=True)
class Suite:
    """A module ``benchmarks.NAME``, or a command of its own."""

    name: str
    minutes: float
    packages: tuple[str, ...]
    blocks: tuple[str, ...] = ()  # the suite's own name, where there is one block only
    arguments: str = ""  # of a module that is run by itself, not by ``python -m benchmarks NAME``

    @property
    def command(self) -> str:
        """What writes its blocks."""
        if self.arguments:
            return f"python -m benchmarks.{self.name} {self.arguments}"
        return f"python -m benchmarks {self.name} --write"

    @property
    def block_names(self) -> tuple[str, ...]:
        """What it writes."""
        return self.blocks or (self.name,)


METHODS = (
    "methods",
    "method-chebyshev",
    "method-compressive",
    "method-coordinate-power",
    "method-eigen",
    "method-forward-backward",
    "method-gradient-descent",
    "method-lanczos",
    "method-lobpcg",
    "method-multilevel",
    "method-nystrom",
    "method-power",
    "method-sgd",
    "method-sgd-paper",
    "method-shift-invert",
    "method-stochastic-fb",
    "method-variational-nystrom",
)
UPDATES = ("update_nodes", "update_edges", "update_stream", "update_points", "update_store", "update_saved")
BEYOND = ("signed", "similarities", "diffusion", "coclustering", "features")

SUITES = (
    Suite("extras", 1, ()),
    Suite("demo", 1, (*LAYERS, "cli", "datasets")),
    Suite("spmm", 0.5, ("kernels", "operators")),
    Suite("drop_in", 2, (*POINTS, "estimators"), ("drop_in", "drop_in-short")),
    Suite("memory", 2, SOLVING),
    Suite("report_page", 1, ("report",)),
    Suite("torch_engine", 2, SOLVING),
    Suite("labelling", 0.2, ("kernels", "labels")),
    Suite("cold_start", 0.5, (*CLUSTERING, "estimators")),
    Suite("paper_table", 1, (*LAYERS, "paper"), ("paper_table", "paper_table-short")),
    Suite("small_graphs", 0.3, CLUSTERING),
    Suite("regularization", 0.2, POINTS),
    Suite("clothing", 0.1, (*LAYERS, "datasets")),
    Suite("coordinate_power", 0.2, SOLVING),
    Suite("dask_engine", 4, STORES, ("dask_engine", "dask_model")),
    Suite("methods", 1, CLUSTERING, METHODS),
    Suite("number_of_clusters", 1, POINTS),
    Suite("faults", 7, ("cli", "io", "serialization", "store")),
    Suite("reading", 2, ("graph", "io", "kernels")),
    Suite("compressive", 25, (*CLUSTERING, "io", "store")),
    Suite("sgd_labels", 0.2, CLUSTERING),
    Suite("store", 3, ("io", "kernels", "store")),
    Suite("update", 2, (*POINTS, "estimators", "store"), UPDATES),
    Suite("neighbours", 3, ("kernels", "points")),
    Suite("multilayer", 5, LAYERS),
    Suite("ecosystem", 2, (*POINTS, "estimators")),
    Suite("disk_passes", 3, STORES),
    Suite("first_hour", 4, (*POINTS, "cli", "io")),
    Suite("beyond", 8, (*LAYERS, "estimators"), tuple(f"beyond_{name}" for name in BEYOND)),
    Suite("partition", 5, CLUSTERING),
    Suite("parametric", 4, (*POINTS, "torch")),
    Suite("layer_weights", 2, LAYERS),
    Suite("layers", 13, LAYERS),
    Suite("sgd", 2, LAYERS, ("sgd", "sgd-joint", "sgd-batches", "sgd-cost")),
    Suite("paper_studies", 6, (*SOLVING, "paper"), ("paper-seeds", "paper-ablation", "paper-scale")),
    Suite("cluster_verdict", 4, (*POINTS, "aggregation")),
    Suite("labels", 4, POINTS),
    Suite("public", 38, POINTS, ("public", "public-predicted")),
    Suite("campaigns", 12, (*LAYERS, "io", "serialization", "store")),
    Suite("growth", 15, POINTS),
    Suite("shootout", 20, POINTS, ("shootout", "shootout-short")),
    Suite("graph_challenge", 15, (*CLUSTERING, "datasets")),
)
# not run by ``python -m benchmarks``: they want a folder, and the second one 50 GB of disk
LARGE = tuple(
    Suite("larger_than_memory", minutes, STORES, (f"larger_than_memory-{name}",), f"{options} --write {name}")
    for name, minutes, options in (
        ("hundred", 10, "FOLDER --nodes 2e6 --edges 1e8 -k 16 --memory-limit 1GB --in-memory"),
        ("billion", 60, "FOLDER --nodes 2e7 --edges 1e9 -k 10 --memory-limit 6GB"),
    )
)


def suite_of() -> dict[str, Suite]:
    """The suite of every block that there may be."""
    return {block: suite for suite in (*SUITES, *LARGE) for block in suite.block_names}
