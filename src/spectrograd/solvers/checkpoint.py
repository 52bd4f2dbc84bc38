"""States of a solve in a file and back, whatever the solver and wherever its rows live."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd.linalg.subspace import Basis
from spectrograd.serialization.checkpoint_folder import CheckpointError, CheckpointFolder, advise_new_folder
from spectrograd.serialization.codec import ArraySink, Json, NotSaved, ValueReader, ValueWriter
from spectrograd.solvers.base import Problem, Progress, State
from spectrograd.solvers.similarity import Similarity
from spectrograd.typing import Array, JsonMapping


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a run, complete: a run that is resumed from it ends with the same bits.

    ``measured`` says that the last entry of the history is of this state, so that the run may be over;
    ``over`` is why it is, by what the solver said.
    """

    state: State
    history: tuple[Progress, ...]
    back_offs: int
    seconds: float
    over: str | None = None
    measured: bool = True


@dataclass(frozen=True, eq=False)
class PackedSnapshot:
    """A snapshot with its history as a table: a row per measurement, and events where they change."""

    snapshot: Snapshot
    numbers: Array
    events: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> PackedSnapshot:
        """Pack a snapshot."""
        history = snapshot.history
        rows = [[getattr(progress, name) for name in _NUMBERS] for progress in history]
        before = [(), *(progress.events for progress in history)]
        # events are long texts that seldom change: only the changes are kept
        changed = tuple((at, p.events) for at, p in enumerate(history) if p.events != before[at])
        numbers = np.array(rows, dtype=np.float64).reshape(-1, len(_NUMBERS))
        return cls(replace(snapshot, history=()), numbers, changed)

    def unpack(self) -> Snapshot:
        """The snapshot again."""
        history = []
        changes = dict(self.events)
        events: tuple[str, ...] = ()
        for at, row in enumerate(self.numbers.tolist()):
            events = changes.get(at, events)
            values = {n: int(v) if n in _WHOLE else v for n, v in zip(_NUMBERS, row, strict=True)}
            history.append(Progress(**values, events=events))
        return replace(self.snapshot, history=tuple(history))


_WHOLE = ("iteration", "edges_seen")
_NUMBERS = tuple(f.name for f in fields(Progress) if f.name != "events")


@dataclass(eq=False)
class SolveCheckpoint:
    """The checkpoints of one solve, the ``number``-th of its run."""

    run: RunCheckpoints
    number: int
    saved_at: float = field(default_factory=time.monotonic)
    resumed: Path | None = None  # the file that the solve went on from

    @property
    def due(self) -> bool:
        """Whether it is time for the next one."""
        return time.monotonic() - self.saved_at >= self.run.every

    def save(self, problem: Problem, snapshot: Snapshot) -> None:
        """Write a snapshot, as the newest."""
        self.run.folder.save_state(self.number, partial(_encode, problem, PackedSnapshot.of(snapshot)))
        self.saved_at = time.monotonic()

    def snapshot(self, problem: Problem, fresh: Callable[[], State]) -> Snapshot | None:
        """The newest snapshot; ``fresh`` makes a first state, which has what is derived from the problem."""
        entry = self.run.folder.state(self.number, partial(_decode, problem, _unpack))
        if entry is None:
            return None
        snapshot: Snapshot = entry[1]
        self.resumed = entry[0]
        # Fields that ``init`` derives from the problem (edges, factorisations) are in no file: made again.
        if _lacks(snapshot.state):
            first = fresh()
            if type(first) is not type(snapshot.state):
                raise CheckpointError(advise_new_folder(f"{self.resumed}: of another solver"))
            _complete(snapshot.state, first)
        return snapshot

    def cut_short(self) -> None:
        """The solve did not come to its end: what its run does now, it would not have done undisturbed."""
        self.run.is_open = False

    def finish(self, problem: Problem, result: object) -> None:
        """Keep what the solve has found."""
        self.run.folder.save_result(self.number, partial(_encode, problem, result))

    def result(self, problem: Problem, accept: Callable[[object], object]) -> Any:
        """The result of an earlier run of the same solve; None where it has none.

        ``accept`` returns the result, or fails for one that cannot be, as if the file were damaged.
        """
        entry = self.run.folder.result(self.number, partial(_decode, problem, accept))
        return None if entry is None else entry[1]

    def as_checkpoint_error(self, error: Exception) -> CheckpointError | None:
        """What to say of an error after the solve went on from a file; None where it did not."""
        if self.resumed is None:
            return None
        said = " ".join(str(error).split()) or type(error).__name__
        return CheckpointError(advise_new_folder(f"{self.resumed}: the run cannot go on from it ({said})"))


@dataclass(eq=False)
class RunCheckpoints:
    """The checkpoints of a run, one ``every`` so many seconds; its solves are numbered as they begin."""

    folder: CheckpointFolder
    every: float
    n_begun: int = 0
    is_open: bool = True

    def next_solve(self) -> SolveCheckpoint | None:
        """The checkpoints of the solve that begins now; None where the one before was cut short."""
        self.n_begun += 1
        return SolveCheckpoint(self, self.n_begun - 1) if self.is_open else None


def _lacks(value: object) -> bool:
    """Whether a state, or one of those it is made of, lacks what is derived."""
    if isinstance(value, State):
        return any(_lacks(item) for item in vars(value).values())
    return isinstance(value, NotSaved) or (isinstance(value, list) and any(map(_lacks, value)))


def _complete(state: State, first: State) -> None:
    """Mutates: the state, which gets what it lacks from the first state of its run."""
    for name, value in vars(state).items():
        if isinstance(value, NotSaved):
            setattr(state, name, getattr(first, name))
        elif isinstance(value, list) and _lacks(value):
            for one, other in zip(value, getattr(first, name), strict=True):
                _complete(one, other)


def _unpack(packed: object) -> Snapshot:
    """A snapshot of a solve, of what is believed to be one."""
    if not isinstance(packed, PackedSnapshot):
        raise TypeError("no state of a solve")
    snapshot = packed.unpack()
    if not isinstance(snapshot.state, State):
        raise TypeError("no state of a solve")
    return snapshot


def _decode(problem: Problem, accept: Callable[[object], object], tree: object, arrays: list[Array]) -> Any:
    return accept(_Reader(problem, tree, arrays).decode(tree))


def _encode(problem: Problem, value: object, sink: ArraySink) -> Any:
    return _Writer(problem, sink).encode(value, type(value).__name__)


@dataclass(eq=False)
class _Writer(ValueWriter):
    """Writes the arrays of a value, and the rows of its multivectors, into the file of a checkpoint."""

    problem: Problem
    sink: ArraySink
    _generators: dict[int, int] = field(default_factory=dict)

    def array(self, array: Array, where: str) -> Json:
        """Write an array to the file; return its number there."""
        return {"array": self.sink.add(array)}

    def other(self, value: object, where: str) -> Json:
        """Encode generators by their state and multivectors by their rows; leave out what a problem holds."""
        if isinstance(value, np.random.Generator):
            return self._generator(value)
        if isinstance(value, Problem):
            return {"problem": self.encode(value.start, where)}
        if isinstance(value, Similarity):
            return {"similarity": value.shift}
        if isinstance(value, Basis):
            # One after the other, because each is large.
            parts: list[Json] = [self._multivector(part) for part in value.vectors.parts()]
            return {"basis": self.encode(value.numbers(), where), "parts": parts}
        if hasattr(value, "numpy") and hasattr(value, "cpu"):  # a small tensor
            return {"tensor": self.sink.add(value.cpu().numpy())}
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return self._multivector(value)
        return super().other(value, where)

    def _multivector(self, multivector: object) -> Json:
        return {"multivector": self.sink.add(self.problem.engine.to_numpy(multivector), passing=True)}

    def _generator(self, generator: np.random.Generator) -> Json:
        """Its state, once: several parts of a state may draw from one generator."""
        # identity, not equality: generators that are shared must be shared again after reading
        number = self._generators.setdefault(id(generator), len(self._generators))
        return {"generator": number, "state": _plain(generator.bit_generator.state)}


def _plain(state: Any) -> Any:
    """The state of a generator, which is made of numbers and texts, without numpy's types."""
    if isinstance(state, Mapping):
        return {name: _plain(item) for name, item in state.items()}
    return state if isinstance(state, str) else int(state)


@dataclass(eq=False)
class _Reader(ValueReader):
    """Reads a value of a checkpoint; what belongs to a problem becomes part of this problem."""

    problem: Problem
    tree: Any
    arrays: list[Array]
    _generators: dict[int, np.random.Generator] = field(default_factory=dict)

    def array(self, reference: int) -> Array:
        """Return an array by its number in the file."""
        return self.arrays[reference]

    def other(self, value: JsonMapping) -> Any:
        """Decode a value that :meth:`_Writer.other` encoded, with multivectors on the problem's engine."""
        problem = self.problem
        if "multivector" in value:
            return problem.engine.from_numpy(self.arrays[value["multivector"]])
        if "tensor" in value:
            return problem.engine.from_numpy(self.arrays[value["tensor"]]).tensor
        if "generator" in value:
            return self._generator(value)
        if "problem" in value:
            return replace(problem, start=self.decode(value["problem"]))
        if "similarity" in value:
            return Similarity(problem.standard.operator, value["similarity"])
        if "basis" in value:
            parts = (self.decode(part) for part in value["parts"])
            return Basis.restore(
                problem.engine, problem.standard.operator, self.decode(value["basis"]), parts
            )
        raise TypeError(f"{sorted(value)} is nothing that a checkpoint holds")

    def _generator(self, value: JsonMapping) -> np.random.Generator:
        known = self._generators.get(value["generator"])
        if known is None:
            known = self._generators[value["generator"]] = np.random.default_rng()
            known.bit_generator.state = value["state"]
        return known
