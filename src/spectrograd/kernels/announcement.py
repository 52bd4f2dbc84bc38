"""Says before the first kernel is compiled that this takes seconds, once on a machine.

Through the logger ``spectrograd``: it stands on stderr unless a program has set up logging otherwise, and a
script that turns warnings into errors goes on.
"""

import logging

from numba.core import event

COMPILING = "first run of this kind on this machine: compiling for spectrograd, about 15 s, once"
EVENT = "numba:compile"  # not when a kernel is found in the cache on disk


class FirstCompilation(event.Listener):
    """Tells once, before the first of our kernels is compiled; kernels found on disk do not count."""

    def __init__(self):
        self._told = False

    def on_start(self, event):
        """A kernel is about to be compiled, maybe one of ours."""
        if not self._told and event.data["dispatcher"].py_func.__module__.startswith("spectrograd."):
            self._told = True
            logging.getLogger("spectrograd").warning(COMPILING)

    def on_end(self, event):
        """It is compiled."""


def announce_compiling():
    """From now on, in this process."""
    event.register(EVENT, FirstCompilation())
