"""Says when a kernel is compiled, and of what kind it is: it takes seconds, once on a machine.

Through the logger ``spectrograd``: it stands on stderr unless a program has set up logging otherwise, and a
script that turns warnings into errors goes on.
"""

import logging
from typing import ClassVar

from numba.core import event

COMPILING = "compiling {}: some seconds, once on this machine"
EVENT = "numba:compile"  # not when a kernel is found in the cache on disk
# By the packages of the kernels: kernels of one kind are compiled in the same run, one after the other.
KINDS = {
    "csr": "products of sparse matrices",
    "dense": "products of blocks of vectors, and k-means",
    "batches": "mini-batches of edges",
    "ldl": "the sparse factorisation",
    "ingest": "the reading of edge lists",
}
OTHER = "kernels"


def kind_of(module):
    """What the kernels of a module are for; None where they are not ours."""
    home, _, inside = module.partition(".")
    if home != "spectrograd":
        return None
    return KINDS.get(inside.removeprefix("kernels.").partition(".")[0], OTHER)


class FirstCompilation(event.Listener):
    """Tells once per kind and process, as the first of our kernels of that kind is compiled."""

    told: ClassVar = set()  # kinds, in this process

    def on_start(self, event):
        """A kernel is about to be compiled, maybe one of ours."""
        kind = kind_of(event.data["dispatcher"].py_func.__module__)
        if kind is not None and kind not in FirstCompilation.told:
            FirstCompilation.told.add(kind)
            logging.getLogger("spectrograd").warning(COMPILING.format(kind))

    def on_end(self, event):
        """It is compiled."""


def announce_compiling():
    """From now on, in this process."""
    event.register(EVENT, FirstCompilation())
