"""Ctrl-C at safe points: noticed between the passes of a run, never inside a compiled kernel.

Python's own handler raises wherever the interpreter happens to be. Where that is a callback of a kernel or of
its compiler the exception is lost, or becomes a ``SystemError``; and a result that is nearly there is gone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Interruption:
    """Whether Ctrl-C was ``requested``, and whether somebody still has to be told (``pending``)."""

    requested: bool = False
    pending: bool = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C is a request, the second one is an order."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = self.pending = True


class Interrupted(KeyboardInterrupt):
    """Raised at a safe point, where everything is whole."""


_current: Interruption | None = None


@contextmanager
def deferred(*, terminate: bool = False) -> Iterator[Interruption]:
    """Within, Ctrl-C waits for the next :func:`check`; a second one interrupts at once.

    Whoever opens this looks at ``requested`` afterwards. Only the main thread gets signals, and a handler
    that somebody else has installed stays in charge. ``terminate`` does the same for SIGTERM.
    """
    global _current
    if _current is not None and _in_main_thread():
        yield _current
        return
    # A run in the background of a shell ignores Ctrl-C, but can be asked to terminate.
    defaults: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    wanted = (signal.SIGINT, signal.SIGTERM) if terminate else (signal.SIGINT,)
    ours = [name for name in wanted if _in_main_thread() and signal.getsignal(name) is defaults[name]]
    if not ours:
        yield Interruption()
        return
    _current = interruption = Interruption()
    for name in ours:
        signal.signal(name, interruption.handle)
    try:
        yield interruption
    except SystemError as error:  # the second Ctrl-C hit a kernel
        if not interruption.requested:
            raise
        raise KeyboardInterrupt from error
    finally:
        for name in ours:
            signal.signal(name, defaults[name])
        _current = None


def check() -> None:
    """A safe point: raises :class:`Interrupted`, once, where Ctrl-C was pressed since."""
    if _current is not None and _current.pending and _in_main_thread():
        _current.pending = False
        raise Interrupted


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
