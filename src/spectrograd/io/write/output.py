"""Files that appear whole or not at all, packed as their suffix says."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from spectrograd.io.read.compressed import packed
from spectrograd.io.read.text import COMMENTS


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside the target, then move over it: no reader ever sees half a file."""
    target = Path(os.path.realpath(path))  # write through a link, do not replace it
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {target.parent} does not exist; create it first")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "x+b") as handle, packed(handle, str(path)) as out:
            yield out
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_text(handle: BinaryIO, lines: Iterator[str]) -> None:
    """Write lines as UTF-8; closing the file is left to its owner."""
    text = TextIOWrapper(handle, encoding="utf-8", newline="")
    text.writelines(lines)
    text.detach()  # flushes


def quoted(text: str, delimiter: str) -> str:
    """Quote a name that would not be read back as one field of a data line."""
    if (
        text.startswith(COMMENTS)
        or text != text.strip()
        or any(c in text for c in (delimiter, '"', "\n", "\r"))
    ):
        return '"' + text.replace('"', '""') + '"'
    return text
