"""Run some cases of the shootout."""

import sys

from benchmarks.shootout import run

print(run(tuple(sys.argv[1:])))
