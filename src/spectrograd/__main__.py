"""``python -m spectrograd`` is the command ``spectrograd``."""

from __future__ import annotations

import sys

from spectrograd.cli import main

if __name__ == "__main__":
    sys.exit(main())
