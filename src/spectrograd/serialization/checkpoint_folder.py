"""The folder of a run's checkpoints: one file each, whose run is told by name, with the one before kept.

A run is several solves, numbered in the order in which they begin: a layer each, or the attempts of ``auto``.
Of each there may be states on the way (``solve-002-state-000017.ckpt``) and what came out in the end
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
from spectrograd.typing import Array

Decode = Callable[[Any, list[Array]], Any]
KEPT = 2  # states of a solve: the newest, and the one before
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


def _as_is(tree: Any, arrays: list[Array]) -> Any:
    return tree, arrays


def _value_of(path: Path, decode: Decode) -> Any:
    """The value in a file; whatever its bytes make a decoder fail with is a fault of the file."""
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
    """An open folder; ``identity`` says by name what a run is made of, and stands in every file."""

    path: Path
    identity: Mapping[str, Any]

    def save_state(self, solve: int, encode: Callable[[ArraySink], Any]) -> None:
        """The newest state of a solve; of those before only the last is kept, of earlier solves none."""
        states = [entry.state for entry in self._entries(solve) if entry.state is not None]
        self._write(f"solve-{solve:03d}-state-{max(states, default=0) + 1:06d}.ckpt", encode)
        for entry in _entries(self.path):
            old = entry.solve == solve and entry.state in sorted(states)[: max(0, len(states) + 1 - KEPT)]
            if entry.state is not None and (old or entry.solve < solve):
                entry.path.unlink()

    def save_result(self, solve: int, encode: Callable[[ArraySink], Any]) -> None:
        """What a solve has found."""
        self._write(f"solve-{solve:03d}-result.ckpt", encode)

    def result(self, solve: int, decode: Decode = _as_is) -> tuple[Path, Any] | None:
        """What a solve has found, and its file; a damaged file is as none while a state is left."""
        entries = self._entries(solve)
        return self._newest([entry for entry in entries if entry.state is None], len(entries) > 1, decode)

    def state(self, solve: int, decode: Decode = _as_is) -> tuple[Path, Any] | None:
        """The newest state of a solve that is not damaged, and its file."""
        entries = [entry for entry in self._entries(solve) if entry.state is not None]
        return self._newest(sorted(entries, key=lambda entry: -(entry.state or 0)), False, decode)

    def _newest(self, entries: list[Entry], more: bool, decode: Decode) -> tuple[Path, Any] | None:
        for left, entry in zip(range(len(entries) - 1, -1, -1), entries, strict=True):
            try:
                return entry.path, _value_of(entry.path, decode)
            except DamagedFileError as error:
                if not (left or more):
                    raise CheckpointError(beginning_anew(f"{error}, and there is no other one")) from None
                warn(f"{error}; going on from the one before", GraphWarning)
        return None

    def _write(self, name: str, encode: Callable[[ArraySink], Any]) -> None:
        write_value(self.path / name, {"identity": dict(self.identity)}, encode)

    def _entries(self, solve: int) -> list[Entry]:
        return [entry for entry in _entries(self.path) if entry.solve == solve]


@contextmanager
def open_checkpoints(
    path: str | os.PathLike[str], identity: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Iterator[CheckpointFolder]:
    """The folder, made where it is missing, for as long as one run writes it.

    ``identity`` is called with that of the run before (empty: there was none) and returns that of this one;
    where they differ the folder is refused, and what differs is named. Nothing but files with names like
    those above is ever changed or removed.
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
            _compare(folder, before, now)
        yield CheckpointFolder(folder, now)


def _entries(folder: Path) -> list[Entry]:
    found = ((name, _NAME.fullmatch(name)) for name in sorted(os.listdir(folder)))
    return [
        Entry(folder / name, int(match[1]), None if match[2] is None else int(match[2]))
        for name, match in found
        if match
    ]


def _identity_before(folder: Path) -> Mapping[str, Any]:
    """What the files say whose they are; those that are damaged are not asked."""
    entries = _entries(folder)
    for entry in reversed(entries):
        with suppress(DamagedFileError):
            identity = read_header(entry.path).get("identity")
            if isinstance(identity, dict) and identity:
                return identity
    if entries:
        raise CheckpointError(beginning_anew(f"{folder}: all {len(entries)} checkpoints are damaged"))
    return {}


def _compare(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [name for name in now if before.get(name) != now[name]]
    if not differing:
        return
    name = differing[0]
    if name == "graph":
        told = "another graph than this run has"
    else:
        told = f"{name} {_shown(before.get(name))}, this run has {name} {_shown(now[name])}"
    raise CheckpointError(beginning_anew(f"{folder}: was written for {told}"))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def beginning_anew(what: str) -> str:
    """What is wrong, and what to do about it."""
    return f"{what}; take another folder, or remove this one to begin anew"
