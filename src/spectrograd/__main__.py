"""``python -m spectrograd`` and the script ``spectrograd``: imports that Ctrl-C ends without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130  # as spectrograd.cli.session, which is not loaded yet
MESSAGE = b"error: interrupted; nothing was written\n"


def main() -> int:
    """Load the command line and run it; a Ctrl-C meanwhile ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    guarded = handler is signal.default_int_handler  # it is ignored in the background of a shell
    if guarded:
        signal.signal(signal.SIGINT, _stop)
    from spectrograd.cli import main as run_command

    if guarded:
        signal.signal(signal.SIGINT, handler)
    return run_command()


def _stop(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2, MESSAGE)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
