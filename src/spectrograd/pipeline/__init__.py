"""The line from a graph to its embedding and clusters, single or multilayer; every command walks it."""

from spectrograd.pipeline.result import Result
from spectrograd.pipeline.run import cluster, embed, label, prepare
from spectrograd.pipeline.settings import Settings
from spectrograd.solvers.settings import RunContext

__all__ = ["Result", "RunContext", "Settings", "cluster", "embed", "label", "prepare"]
