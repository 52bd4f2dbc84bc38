"""A finished run as plain values: strict JSON and arrays in a folder, from which its page is made."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.io.matrices import Archive, decoding
from spectrograd.io.write_graph import whole_file, write_whole_text
from spectrograd.typing import Array, JsonMapping


def to_json(values: Mapping[str, object], *, indent: int | None = 2) -> str:
    """Strict JSON: what is not finite becomes null, numpy's numbers become plain ones."""
    return json.dumps(_plain(values), indent=indent, allow_nan=False) + "\n"


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# --- A finished run: all that its page tells, frozen; saved in a folder and read back.


STORY = "run.json"
ARRAYS = "nodes.npz"
FORMAT = 3


@dataclass(frozen=True, eq=False)
class Nodes:
    """What is known of every node, one row each; ``classes`` are -1 where unknown.

    ``membership`` is how sure each label is; ``layout`` are places in a drawing of the graph (n x 2).
    ``scores`` has one column per layer: how far the layer agrees with the merged embedding at the node.
    """

    names: Array
    vectors: Array
    labels: Array | None = None
    classes: Array | None = None
    scores: Array | None = None
    membership: Array | None = None
    layout: Array | None = None

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
    class_names
        What the numbers of classes stand for, where they are texts.
    edges
        Pairs of rows that the drawing joins.
    excluded
        ``count``, ``share`` and some ``names`` of the nodes that took no part; None where all did.
    """

    summary: JsonMapping
    nodes: Nodes
    spectrum: JsonMapping
    curves: Sequence[JsonMapping]
    conductance: Sequence[JsonMapping] = ()
    agreement: JsonMapping | None = None
    layers: Sequence[JsonMapping] = ()
    truth: str | None = None
    class_names: Sequence[str] = ()
    edges: Sequence[Sequence[int]] = ()
    excluded: JsonMapping | None = None


def save_run(folder: str | os.PathLike[str], run: Run) -> None:
    """Write ``run.json`` and ``nodes.npz`` into a folder, which is made where it is missing."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    arrays = {field.name: getattr(run.nodes, field.name) for field in fields(Nodes)}
    with whole_file(path / ARRAYS) as handle:
        np.savez(handle, **{name: array for name, array in arrays.items() if array is not None})
    story = {field.name: getattr(run, field.name) for field in fields(Run) if field.name != "nodes"}
    checksums = {STORY: _checksum(to_json(story).encode()), ARRAYS: _checksum((path / ARRAYS).read_bytes())}
    write_whole_text(path / STORY, to_json({"format": FORMAT, "sha256": checksums, **story}))


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Read what :func:`save_run` wrote; a folder without a run in it is a ValueError that says so."""
    path = Path(folder)
    missing = next((name for name in (STORY, ARRAYS) if not (path / name).is_file()), None)
    if missing is not None:
        raise ValueError(
            f"{path}: no saved run there ({missing} is missing); 'embed' and 'cluster' save one with --run"
        )
    with decoding(str(path / STORY), "the saved run cannot be read", "run the command again"):
        story = json.loads((path / STORY).read_text(encoding="utf-8"))
        if not isinstance(story, dict) or story.pop("format", None) != FORMAT:
            raise ValueError("written by another version of spectrograd")
        known = story.pop("sha256")
        if known[STORY] != _checksum(to_json(story).encode()):
            raise ValueError("damaged, or changed since it was saved")
    with decoding(str(path / ARRAYS), "the saved run cannot be read", "run the command again"):
        if known[ARRAYS] != _checksum((path / ARRAYS).read_bytes()):
            raise ValueError("damaged, or changed since it was saved")
        with Archive(str(path / ARRAYS)) as arrays:
            return Run(nodes=Nodes(**arrays), **story)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
