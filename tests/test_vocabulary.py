"""The field's words: private words of earlier versions do not come back.

Names, comments, docstrings and messages of the sources and the text of the documentation are searched for
banned words. ``vocabulary_allowed.json`` lists how often a file still holds each of them (ordinary English,
old names that are accepted for one release). A count that grows fails, and so does one that shrank without
the list: ``python tests/test_vocabulary.py --write`` lowers the list.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED_FILE = Path(__file__).with_name("vocabulary_allowed.json")
REPLACEMENTS = {
    "tall": "multivector",
    "rider": "probe block",
    "riding": "probe block",
    "ridden": "probe block",
    "sweep": "pass over the edges",
    "told": "report, print",
    "aside": "excluded",
    "suited": "a condition in the registry",
    "finisher": "polish_solver",
    "hand_over": "polish",
    "living": "out-of-sample",
    "speck": "tiny component",
    "dear": "expensive",
    "door": "reader, format",
    "room": "package, space",
    "softness": "norm_regularization",
    "hearing": "layer confirmation",
    "remoteness": "outlier scale",
}
BANNED = re.compile(
    rf"(?<![a-z])({'|'.join(word.replace('_', '[_ -]') for word in REPLACEMENTS)})s?(?![a-z])"
)
TEXT_TOKENS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

Counts = dict[str, dict[str, int]]  # "path, identifiers" or "path, text" -> word -> how often


def banned_words(text: str) -> list[str]:
    """Banned words of a name or a text; ``SetAside`` and ``set_aside`` hold one each.

    Examples
    --------
    >>> banned_words("def n_sweeps(SetAside): hand-over"), banned_words("tallied, install, doorbell")
    (['sweep', 'aside', 'hand_over'], [])
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    return [re.sub("[ -]", "_", match[1]) for match in BANNED.finditer(words)]


def occurrences() -> Iterator[tuple[str, str, int, str]]:
    """Path, kind (identifiers or text), line and word of every banned word."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type != tokenize.NAME and token.type not in TEXT_TOKENS:
                continue
            kind = "identifiers" if token.type == tokenize.NAME else "text"
            for offset, line in enumerate(token.string.splitlines()):
                for word in banned_words(line):
                    yield name, kind, token.start[0] + offset, word
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts]
    for path in sorted([*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for word in banned_words(line):
                yield path.relative_to(ROOT).as_posix(), "text", number, word


def count() -> Counts:
    """How often each file holds each banned word."""
    counts: dict[str, Counter[str]] = {}
    for name, kind, _, word in occurrences():
        counts.setdefault(f"{name}, {kind}", Counter())[word] += 1
    return {place: dict(sorted(words.items())) for place, words in counts.items()}


def allowed() -> Counts:
    """The list of exceptions."""
    return dict(json.loads(ALLOWED_FILE.read_text())) if ALLOWED_FILE.exists() else {}


def excesses(counts: Counts, limits: Counts) -> list[str]:
    """Counts above the list, each with its lines and the word to use instead."""
    lines: dict[tuple[str, str], list[int]] = {}
    for name, kind, line, word in occurrences():
        lines.setdefault((f"{name}, {kind}", word), []).append(line)
    return [
        f"{place}: {word!r} {n} times in lines {lines[place, word]}, allowed are "
        f"{limits.get(place, {}).get(word, 0)}; the field says: {REPLACEMENTS[word]}"
        for place, words in counts.items()
        for word, n in words.items()
        if n > limits.get(place, {}).get(word, 0)
    ]


def test_no_private_word_comes_back():
    found = excesses(count(), allowed())
    assert not found, "\n".join(found)


def test_the_list_of_exceptions_shrinks_with_the_sources():
    counts = count()
    stale = [
        f"{place}: {word!r} {counts.get(place, {}).get(word, 0)} times, listed {n}"
        for place, words in allowed().items()
        for word, n in words.items()
        if counts.get(place, {}).get(word, 0) < n
    ]
    assert not stale, "lower the list: python tests/test_vocabulary.py --write\n" + "\n".join(stale)


def write(*, force: bool) -> None:
    """Write the list anew; a count that grew is refused unless forced."""
    counts = count()
    grown = excesses(counts, allowed())
    if grown and not force:
        raise SystemExit("\n".join(grown))
    ALLOWED_FILE.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    total = sum(sum(words.values()) for words in counts.values())
    sys.stdout.write(f"{total} banned words in {len(counts)} entries\n")


if __name__ == "__main__":
    if sys.argv[1:] not in (["--write"], ["--write", "--force"]):
        raise SystemExit("--write lowers the list of exceptions; --write --force also raises it")
    write(force="--force" in sys.argv)
