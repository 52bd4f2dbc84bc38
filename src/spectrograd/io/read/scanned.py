"""Columns of a large text table by compiled code: all threads scan blocks, ids are numbered as they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spectrograd.graph import Array
from spectrograd.io.read.layouts import BulkColumns, Coded, Layout
from spectrograd.io.read.plain_blocks import BLOCK, Surprise, whole_lines
from spectrograd.io.read.text import TextFile, is_number


class ScannedBlock(NamedTuple):
    """Some edges: integer ends (2, n) or words (columns, 3, n) in the bytes of ``text``, and weights."""

    text: Array
    ends: Array
    weights: Array
    words: Array


def scan_columns(file: TextFile, layout: Layout, size: int = BLOCK) -> BulkColumns | None:
    """The columns of a table, or None where the careful scan must look."""
    for integers in (True, False) if layout.integers else (False,):
        try:
            return _gathered(file, layout, integers, size)
        except ValueError:  # a surprise, no UTF-8, or a weight that is no number
            continue
    return None


def _gathered(file: TextFile, layout: Layout, integers: bool, size: int) -> BulkColumns | None:
    """The columns of all blocks."""
    from spectrograd.kernels.threads import in_order

    scanner = Scanner(layout, integers)
    nodes, layers = Vocabulary(), Vocabulary()
    parts: dict[str, list[Array]] = {role: [] for role in layout.roles if role}
    for block in in_order(scanner.scan, whole_lines(file, layout.skip, size)):
        words: Iterator[Array] = iter(block.words)
        for at, end in enumerate(("src", "dst")):
            found = _narrow(block.ends[at]) if integers else nodes.codes(block.text, next(words))
            parts[end].append(found)
        if "weight" in parts:
            parts["weight"].append(block.weights)
        if "layer" in parts:
            parts["layer"].append(layers.codes(block.text, next(words)))
    if not any(map(len, parts["src"])):
        return None
    source, target = (np.concatenate(parts.pop(end)) for end in ("src", "dst"))
    weight = np.concatenate(parts.pop("weight")) if "weight" in parts else None
    layer = Coded(layers.texts(), (np.concatenate(parts["layer"]),)) if "layer" in parts else None
    return BulkColumns(
        (source, target) if integers else Coded(nodes.texts(), (source, target)), weight, layer
    )


def _narrow(numbers: Array) -> Array:
    """Integers in half the memory where they fit, else as they are."""
    narrow = numbers.astype(np.int32)
    return narrow if np.array_equal(narrow, numbers) else numbers.copy()


class Scanner:
    """Reads blocks of whole lines: one layout, several threads."""

    def __init__(self, layout: Layout, integers: bool) -> None:
        from spectrograd.kernels.ingest import scan

        meanings = {"src": scan.SOURCE, "dst": scan.TARGET, "weight": scan.WEIGHT, None: scan.IGNORED}
        words = [role for role in ("src", "dst", "layer") if role in layout.roles]
        words = words[2:] if integers else words
        meanings |= {role: scan.WORD + at for at, role in enumerate(words)}
        self._roles = np.array([meanings[role] for role in layout.roles], np.int64)
        self._classes = scan.byte_classes(layout.delimiter)
        self._weighted, self._n_words = "weight" in layout.roles, len(words)
        end = re.escape(layout.delimiter) if layout.delimiter else " \t"
        self._field = re.compile(rb'[^\r\n"' + end.encode() + rb"]*")

    def scan(self, text: bytes) -> ScannedBlock:
        """The edges of a block; what only the careful scan can judge is a :class:`Surprise`."""
        from spectrograd.kernels.ingest import scan

        block, _, _, problem = self.look(text)
        if problem != scan.GOOD:
            raise Surprise("a line that is no edge, or not plainly one")
        self.read_weights(text, block.weights)
        return block

    def look(self, text: bytes) -> tuple[ScannedBlock, int, int, int]:
        """The edges up to the first that is none, the lines before, the byte where it begins, and why."""
        from spectrograd.kernels.ingest import scan

        letters, capacity = np.frombuffer(text, np.uint8), text.count(b"\n")
        ends = np.empty((2, capacity), np.int64)
        weights = np.empty(capacity if self._weighted else 0)
        words = np.empty((self._n_words, 3, capacity), np.int64)
        n, n_lines, at, problem = scan.scan_edges(letters, self._classes, self._roles, ends, weights, words)
        return ScannedBlock(letters, ends[:, :n], weights[:n], words[:, :, :n]), n_lines, at, problem

    def read_weights(self, text: bytes, weights: Array) -> None:
        """Mutates: weights that the compiled code could not read exactly are read by Python."""
        for edge in np.flatnonzero(weights < 0).tolist():
            begin = int(-1 - weights[edge])
            match = self._field.match(text, begin)
            weights[edge] = _weight(match[0].decode("utf-8", "replace").strip() if match else "", begin)


def _weight(word: str, begin: int) -> float:
    if not is_number(word):
        raise BadWeight(begin, f"{word!r} is not a number (weight)")
    if not 0 <= float(word) < np.inf:
        raise BadWeight(begin, f"weight {word} must be finite and not negative")
    return float(word)


class BadWeight(Surprise):
    """No number, or none that a weight may be: the byte where it stands, and what is wrong."""

    def __str__(self) -> str:
        return str(self.args[1])


@dataclass
class Vocabulary:
    """Words numbered in the order they are first met, whatever block they stand in."""

    _slots: Array = field(default_factory=lambda: np.zeros(1 << 12, np.uint64))
    _starts: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    _letters: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    _n_known: int = 0

    def codes(self, text: Array, words: Array) -> Array:
        """Numbers of words (3, n) in a text, new ones at the end: int32, (n,)."""
        from spectrograd.kernels.ingest.words import number_words

        codes = np.empty(words.shape[1], np.int32)
        self._make_room(words)
        table = self._slots, self._starts, self._letters
        self._n_known = number_words(text, words, *table, self._n_known, codes)
        return codes

    def texts(self) -> list[str]:
        """The words; an error where one is no UTF-8."""
        return self._letters[: self._starts[self._n_known]].tobytes().decode("utf-8").split("\n")[:-1]

    def _make_room(self, words: Array) -> None:
        """Grow the table until all the words could be new."""
        from spectrograd.kernels.ingest.words import spread_slots

        most = self._n_known + words.shape[1]
        self._starts = _grown(self._starts, most + 1)
        size = int(self._starts[self._n_known] + words[2].sum() + words.shape[1])
        self._letters = _grown(self._letters, size)
        if 2 * most > len(self._slots):
            old, self._slots = self._slots, np.zeros(1 << (2 * most).bit_length(), np.uint64)
            spread_slots(old, self._slots)


def _grown(array: Array, size: int) -> Array:
    """The array, or a longer one that begins with it: twice as long at least, so that few are copied."""
    if size <= len(array):
        return array
    longer: Array = np.zeros(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer
