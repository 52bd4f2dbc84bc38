"""Where a command writes its result: to a file, or as CSV to standard output."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from spectrograd.cli.session import Session
from spectrograd.io.write.output import naming
from spectrograd.io.write.parts import check_parts, is_folder_of_parts

STDOUT = "-"


def check_output(session: Session, output: str | None, write: Callable[..., None], sample: Any) -> None:
    """Find out before the work whether the result can be written: format, folder, optional packages."""
    if output in (None, STDOUT):
        return
    if is_folder_of_parts(output):
        try:
            check_parts(str(output))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'-o'") from None
        return
    session.check_target(output, "-o")
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, f"probe{''.join(Path(str(output)).suffixes[-2:])}")
        try:
            write(probe, sample, np.zeros(1, dtype=np.int64))
        except ValueError as error:
            raise click.BadParameter(str(error).replace(str(probe), str(output)), param_hint="'-o'") from None


def write_result(output: str | None, write: Callable[..., None], values: Any, names: Any) -> None:
    """Write to a file, or as CSV to standard output."""
    if output not in (None, STDOUT):
        write(output, values, names)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.csv")
        write(path, values, names)
        with path.open("rb") as handle, naming("standard output"):
            shutil.copyfileobj(handle, sys.stdout.buffer)
            sys.stdout.buffer.flush()
