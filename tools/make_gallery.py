"""``python tools/make_gallery.py [NAME ...]``: make the pictures of the gallery, and write down run times.

Each script of ``examples/gallery`` runs twice in an empty folder, since the first run may compile. Its
picture goes to ``docs/images/gallery``, the CPU seconds of the second run, imports included, to its page and
to ``docs/gallery.md``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
PICTURES = ROOT / "docs" / "images" / "gallery"
RUN_TIME = re.compile(r"Runs in [\d.]+ s of CPU, imports included\.")


def main(names: list[str]) -> None:
    """Run the named scripts, or all of them."""
    for script in sorted(SCRIPTS.glob("*.py")):
        if names and script.stem not in names:
            continue
        seconds = run(script)
        write(script.stem, f"Runs in {seconds:.1f} s of CPU, imports included.")
        print(f"{script.stem}: {seconds:.1f} s")


def run(script: Path) -> float:
    """Run a script twice and keep its picture; the CPU seconds of the second run."""
    seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            before = os.times()
            environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
            subprocess.run([sys.executable, str(script)], cwd=folder, env=environment, check=True)
            after = os.times()
            seconds = sum(after[2:4]) - sum(before[2:4])  # user and system time of children
        shutil.copy(Path(folder) / f"{script.stem}.png", PICTURES)
    return seconds


def write(name: str, sentence: str) -> None:
    """Replace the run time on the page of a script, and in the gallery's row of it."""
    page = PAGES / f"{name}.md"
    page.write_text(RUN_TIME.sub(sentence, page.read_text(encoding="utf-8")), encoding="utf-8")
    gallery = ROOT / "docs" / "gallery.md"
    lines = gallery.read_text(encoding="utf-8").splitlines()
    rows = [RUN_TIME.sub(sentence, line) if f"(gallery/{name}.md)" in line else line for line in lines]
    gallery.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
