"""Files that appear whole or not at all, packed as their suffix says."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from spectrograd.graph import Array, GraphWarning
from spectrograd.io.read.compressed import packed
from spectrograd.io.read.formulas import MARK, escaped, is_formula
from spectrograd.io.read.text import COMMENTS
from spectrograd.notices import warn


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside the target, then move over it: no reader ever sees half a file."""
    target = Path(os.path.realpath(path))  # write through a link, do not replace it
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {target.parent} does not exist; create it first")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with naming(path), open(draft, "x+b") as handle, packed(handle, str(path)) as out:
            yield out
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in the errors of writing to it: a full disk does not say which."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_whole_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8 to a file that appears whole or not at all."""
    with whole_file(Path(path)) as handle:
        handle.write(text.encode("utf-8"))


def write_text(handle: BinaryIO, lines: Iterator[str]) -> None:
    """Write lines as UTF-8; closing the file is left to its owner."""
    text = TextIOWrapper(handle, encoding="utf-8", newline="")
    text.writelines(lines)
    text.detach()  # flushes


def as_field(text: str, delimiter: str, raw: bool) -> str:
    """A text as one field of a data line, quoted where it must be; formulas get a mark, unless ``raw``."""
    return quoted(text if raw else escaped(text), delimiter)


def warn_of_formulas(columns: Iterable[Array], raw: bool) -> None:
    """Say how many ids get a mark, so that no spreadsheet runs them."""
    texts = (column.tolist() for column in columns if column.dtype.kind == "U")
    marked = set() if raw else {text for column in texts for text in column if is_formula(text)}
    if marked:
        warn(
            f"{len(marked)} ids begin as formulas of spreadsheets do: {MARK} is written before them and "
            "dropped on reading; --raw (raw=True) keeps them as they are",
            GraphWarning,
        )


def quoted(text: str, delimiter: str) -> str:
    """Quote a name that would not be read back as one field of a data line."""
    if (
        text.startswith(COMMENTS)
        or text != text.strip()
        or any(c in text for c in (delimiter, '"', "\n", "\r"))
    ):
        return '"' + text.replace('"', '""') + '"'
    return text
