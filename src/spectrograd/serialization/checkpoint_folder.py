"""The folder of a run's checkpoints: one file per checkpoint, each with the identity of its run.

A run is several solves, numbered in the order in which they begin: one per layer, or the attempts of
``auto``. A solve has states (``solve-002-state-000017.ckpt``, the newest two) and at its end a result
(``solve-002-result.ckpt``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrograd.graph import GraphError, GraphWarning
from spectrograd.notices import warn
from spectrograd.serialization.codec import ArraySink, DamagedFileError, read_header, read_value, write_value
from spectrograd.serialization.folders import MANIFEST, only_writer
from spectrograd.typing import Array, JsonMapping

Decode = Callable[[Any, list[Array]], object]
MAX_STATES = 2  # of a solve: the newest, and the one before
_NAME = re.compile(r"solve-(\d{3,})-(?:state-(\d{6,})|result)\.ckpt")
_DRAFT = re.compile(r"\.solve-\d{3,}-(?:state-\d{6,}|result)\.ckpt\.[0-9a-f]{8}\.tmp")


class CheckpointError(GraphError):
    """Checkpoints that cannot be used for this run; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A file of the folder: the solve it belongs to, and the number of its state (None: the result)."""

    path: Path
    solve: int
    state: int | None


def _as_is(tree: object, arrays: list[Array]) -> Any:
    return tree, arrays


def _decode_file(path: Path, decode: Decode) -> Any:
    """Decode the value in a file; an exception of the decoder means that the file is damaged."""
    tree, arrays = read_value(path)
    try:
        return decode(tree, arrays)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
    ) as error:
        raise DamagedFileError(f"{path}: damaged ({type(error).__name__}: {error})") from None
    except (TypeError, ValueError) as error:
        raise DamagedFileError(f"{path}: damaged ({error})") from None


@dataclass(frozen=True, eq=False)
class CheckpointFolder:
    """An open folder; ``identity`` (name -> value: graph, settings, version) is stored in every file."""

    path: Path
    identity: JsonMapping

    def save_state(self, solve: int, encode: Callable[[ArraySink], object]) -> None:
        """Write a state of a solve; remove all its states but the newest two, and those of earlier solves."""
        states = [entry.state for entry in self._entries(solve) if entry.state is not None]
        self._write(f"solve-{solve:03d}-state-{max(states, default=0) + 1:06d}.ckpt", encode)
        for entry in _entries(self.path):
            old = (
                entry.solve == solve and entry.state in sorted(states)[: max(0, len(states) + 1 - MAX_STATES)]
            )
            if entry.state is not None and (old or entry.solve < solve):
                entry.path.unlink()

    def save_result(self, solve: int, encode: Callable[[ArraySink], object]) -> None:
        """Write the result of a solve."""
        self._write(f"solve-{solve:03d}-result.ckpt", encode)

    def result(self, solve: int, decode: Decode = _as_is) -> tuple[Path, Any] | None:
        """Read the result of a solve: its file and value. A damaged file is skipped if a state is left."""
        entries = self._entries(solve)
        return self._newest([entry for entry in entries if entry.state is None], len(entries) > 1, decode)

    def state(self, solve: int, decode: Decode = _as_is) -> tuple[Path, Any] | None:
        """Read the newest state of a solve that is not damaged: its file and value."""
        entries = [entry for entry in self._entries(solve) if entry.state is not None]
        return self._newest(sorted(entries, key=lambda entry: -(entry.state or 0)), False, decode)

    def _newest(self, entries: list[Entry], more: bool, decode: Decode) -> tuple[Path, Any] | None:
        for left, entry in zip(range(len(entries) - 1, -1, -1), entries, strict=True):
            try:
                return entry.path, _decode_file(entry.path, decode)
            except DamagedFileError as error:
                if not (left or more):
                    raise CheckpointError(advise_new_folder(f"{error}, and there is no other one")) from None
                warn(f"{error}; going on from the one before", GraphWarning)
        return None

    def _write(self, name: str, encode: Callable[[ArraySink], object]) -> None:
        write_value(self.path / name, {"identity": dict(self.identity)}, encode)

    def _entries(self, solve: int) -> list[Entry]:
        return [entry for entry in _entries(self.path) if entry.solve == solve]


@contextmanager
def open_checkpoints(
    path: str | os.PathLike[str], identity: Callable[[JsonMapping], JsonMapping]
) -> Iterator[CheckpointFolder]:
    """Open the folder, created if missing, locked while one run writes it.

    ``identity`` is called with the identity of the run before (empty: there was none) and returns that of
    this one; where they differ the folder is refused and the first difference is named. Only files with
    names like those above are changed or removed.
    """
    folder = Path(os.path.realpath(path))
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{path}: this is no folder; checkpoints need one of their own")
    if not folder.parent.is_dir():
        raise CheckpointError(f"{folder.parent}: no such folder; create it first")
    if (folder / MANIFEST).exists():
        raise CheckpointError(
            f"{path}: a store or a saved model is there; checkpoints need a folder of their own"
        )
    folder.mkdir(exist_ok=True)
    with only_writer(folder / "run"):
        for name in os.listdir(folder):
            if _DRAFT.fullmatch(name):
                with suppress(OSError):
                    (folder / name).unlink()
        before = _identity_before(folder)
        now = identity(before)
        if before:
            _check_identity(folder, before, now)
        yield CheckpointFolder(folder, now)


def _entries(folder: Path) -> list[Entry]:
    names = ((name, _NAME.fullmatch(name)) for name in sorted(os.listdir(folder)))
    return [
        Entry(folder / name, int(match[1]), None if match[2] is None else int(match[2]))
        for name, match in names
        if match
    ]


def _identity_before(folder: Path) -> JsonMapping:
    """Read the identity of the newest checkpoint that is not damaged; empty: there is no checkpoint."""
    entries = _entries(folder)
    for entry in reversed(entries):
        with suppress(DamagedFileError):
            identity = read_header(entry.path).get("identity")
            if isinstance(identity, dict) and identity:
                return identity
    if entries:
        raise CheckpointError(advise_new_folder(f"{folder}: all {len(entries)} checkpoints are damaged"))
    return {}


def _check_identity(folder: Path, before: Mapping[str, object], now: Mapping[str, object]) -> None:
    differing = [name for name in now if before.get(name) != now[name]]
    if not differing:
        return
    name = differing[0]
    if name == "graph":
        difference = "another graph than this run has"
    else:
        difference = f"{name} {_format(before.get(name))}, this run has {name} {_format(now[name])}"
    raise CheckpointError(advise_new_folder(f"{folder}: was written for {difference}"))


def _format(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def advise_new_folder(what: str) -> str:
    """Add the remedy to an error text."""
    return f"{what}; take another folder, or remove this one to begin anew"
