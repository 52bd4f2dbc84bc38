"""A finished run: all that its page tells, frozen; saved in a folder and read back."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrograd.report.strict_json import to_json

Array = NDArray[Any]

STORY, ARRAYS = "run.json", "nodes.npz"
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Nodes:
    """What is known of every node, one row each; ``classes`` are -1 where unknown.

    ``scores`` has one column per layer: how far the layer agrees with the merged embedding at the node.
    """

    names: Array
    vectors: Array
    labels: Array | None = None
    classes: Array | None = None
    scores: Array | None = None

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Array) -> Nodes:
        """Some of the nodes."""
        arrays = ((field.name, getattr(self, field.name)) for field in fields(self))
        return replace(self, **{name: array[rows] for name, array in arrays if array is not None})


@dataclass(frozen=True, eq=False)
class Run:
    """A run as its page tells it.

    Attributes
    ----------
    summary
        What ``--summary-json`` holds.
    nodes
        Names, vectors, labels.
    spectrum
        ``first`` (number of the first eigenvector in ``nodes.vectors``), ``values``, ``residuals`` and
        ``beyond``, the next eigenvalue as the certificate's probe saw it, or None.
    curves
        Per solve ``name, solver, seconds, objective, residual``: the layers' first, the result's last.
    conductance
        Per layer its ``name`` and ``values``, one per cluster.
    agreement
        ``names`` and the matrix ``values`` of the layers and the merged embedding; None where the layers
        were not embedded.
    layers
        Per embedded layer its ``name``, whether it ``converged`` and its certificate's ``sentence``.
    truth
        Where the classes came from.
    """

    summary: Mapping[str, Any]
    nodes: Nodes
    spectrum: Mapping[str, Any]
    curves: Sequence[Mapping[str, Any]]
    conductance: Sequence[Mapping[str, Any]] = ()
    agreement: Mapping[str, Any] | None = None
    layers: Sequence[Mapping[str, Any]] = ()
    truth: str | None = None


def save_run(folder: str | os.PathLike[str], run: Run) -> None:
    """Write ``run.json`` and ``nodes.npz`` into a folder, which is made where it is missing."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    arrays = {field.name: getattr(run.nodes, field.name) for field in fields(Nodes)}
    np.savez(path / ARRAYS, **{name: array for name, array in arrays.items() if array is not None})
    story = {field.name: getattr(run, field.name) for field in fields(Run) if field.name != "nodes"}
    (path / STORY).write_text(to_json({"format": FORMAT, **story}), encoding="utf-8")


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Read what :func:`save_run` wrote; a folder without a run in it is a ValueError that says so."""
    path = Path(folder)
    missing = next((name for name in (STORY, ARRAYS) if not (path / name).is_file()), None)
    if missing is not None:
        raise ValueError(
            f"{path}: no saved run there ({missing} is missing); 'embed' and 'cluster' save one with --run"
        )
    try:
        story = json.loads((path / STORY).read_text(encoding="utf-8"))
        if story.pop("format") != FORMAT:
            raise ValueError("written by another version of spectrograd")
        with np.load(path / ARRAYS, allow_pickle=False) as arrays:
            return Run(nodes=Nodes(**arrays), **story)
    except (ValueError, TypeError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: the saved run cannot be read ({error}); run the command again") from None
