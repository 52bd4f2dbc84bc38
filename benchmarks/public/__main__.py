"""`python -m benchmarks.public`: see the package's text."""

import sys

from benchmarks.public import run

for body in run(sys.argv[1:]).values():
    print(body)
