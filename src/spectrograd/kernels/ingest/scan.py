"""Edges of a text, read out of raw bytes: no Python object per line."""

import numpy as np

from spectrograd.kernels.ingest.numerals import decimal, integer
from spectrograd.kernels.jit import inner, serial

# Why a scan stopped before the end; the caller looks at the line and says it in words.
GOOD, NOT_INTEGER, WRONG_WIDTH, SURPRISE = 0, 1, 2, 3
# What a column holds. Words of a column WORD + c are told in words[c].
SOURCE, TARGET, WEIGHT, IGNORED, WORD = 0, 1, 2, 3, 4
# Classes of bytes: from DELIMITER on they end a field, from NEWLINE on a line.
LETTER, BLANK, ODD, QUOTE, DELIMITER, NEWLINE, RETURN = 0, 1, 2, 3, 4, 5, 6
HASH, BEGIN, SIZE = 0, 1, 2
_SPACE, _NEWLINE, _COMMENT, _OTHER_COMMENT = (ord(letter) for letter in " \n#%")


def byte_classes(delimiter: str | None) -> np.ndarray:
    """What each byte means where fields are parted by ``delimiter`` (None: by runs of blanks): uint8, (256,).

    Control characters are odd: Python takes some of them for blanks or line ends, other parsers do not.
    """
    classes = np.where(np.arange(256) < _SPACE, ODD, LETTER).astype(np.uint8)
    classes[[ord(" "), ord("\t")]] = BLANK if delimiter else DELIMITER
    for letter, meaning in ((delimiter or " ", DELIMITER), ("\n", NEWLINE), ("\r", RETURN), ('"', QUOTE)):
        classes[ord(letter)] = meaning
    return classes


@serial
def scan_edges(text, classes, roles, ends, weights, words):
    """Mutates: ends (2 x capacity, int64), weights, and words (columns x 3 x capacity, int64).

    ``text`` are whole lines, ``classes`` those of :func:`byte_classes`, ``roles`` say what each column holds.
    Of a word its hash, first byte and length are told. A weight that could not be read exactly is
    ``-1 - b``, where b is its first byte: the caller has to read it. Weights and words may be empty if no
    column has that role. Returns edges found, lines read, the byte where the line begins at which it stopped,
    and why. Blank lines and those that begin with ``#`` or ``%`` are skipped.
    """
    at, edge, n_lines, n_columns, size = 0, 0, 0, len(roles), len(text)
    line, problem = at, GOOD
    while at < size and edge < ends.shape[1] and problem == GOOD:
        line, (at, column) = at, (_first_letter(text, at, classes), 0)
        if classes[text[at]] >= NEWLINE:
            column = n_columns
        while column < n_columns and problem == GOOD:
            role, quoted = roles[column], classes[text[at]] == QUOTE and classes[_SPACE] == BLANK
            at += quoted
            begin = at
            if role <= TARGET:
                good, ends[role, edge], at = integer(text, at)
                problem = GOOD if good and classes[text[at]] != LETTER else NOT_INTEGER
            elif role == WEIGHT:
                good, weights[edge], at = decimal(text, at)
                if not good or classes[text[at]] == LETTER:
                    weights[edge] = -1.0 - begin
                    _, _, at = _word(text, begin, classes, quoted)
            else:
                hashed, last, at = _word(text, begin, classes, quoted)
                if role >= WORD:
                    words[role - WORD, HASH, edge] = hashed
                    words[role - WORD, BEGIN, edge] = begin
                    words[role - WORD, SIZE, edge] = last - begin
            if at == begin and role != IGNORED and problem == GOOD:
                problem = SURPRISE
            if at == begin and role != IGNORED and classes[text[at]] >= DELIMITER:
                problem = WRONG_WIDTH
            column += 1
            if problem == GOOD:
                problem, at = _next_field(text, at, classes, quoted, column == n_columns)
                edge += column == n_columns and problem == GOOD
        if problem == GOOD and classes[text[at]] != NEWLINE:
            problem = SURPRISE
        if problem == GOOD:
            n_lines += 1
            at += 1
            line = at
    return edge, n_lines, line, problem


# The functions below have one way out each and call no other with an array: numba then sees that it need not
# count references to their arrays, which would take longer than all the rest.


@inner
def _first_letter(text, at, classes):
    """Where the first field of a line begins; the newline where it has none."""
    blank = classes[_SPACE]
    while classes[text[at]] == blank:
        at += 1
    is_comment = (text[at] == _COMMENT) | (text[at] == _OTHER_COMMENT)
    while is_comment & (classes[text[at]] < NEWLINE):
        at += 1
    return at + ((classes[text[at]] == RETURN) & (text[at + 1] == _NEWLINE))


@inner
def _next_field(text, at, classes, quoted, is_last):
    """Why a field does not end here as it should, and where the next one begins, or the newline is."""
    blank, closed = classes[_SPACE], not quoted or classes[text[at]] == QUOTE
    at += quoted and closed
    parted = classes[text[at]] == DELIMITER
    while classes[text[at]] == blank:
        at += 1
    if blank == BLANK:
        parted = classes[text[at]] == DELIMITER
        at += parted
        while parted & (classes[text[at]] == blank):
            at += 1
    returned = (classes[text[at]] == RETURN) & (text[at + 1] == _NEWLINE)
    ended = (returned | (classes[text[at]] == NEWLINE)) & ((not parted) | (blank != BLANK))
    at += returned & ended
    if not closed or not (parted or ended):
        problem = SURPRISE
    else:
        problem = GOOD if ended == is_last else WRONG_WIDTH
    return problem, at


@inner
def _word(text, at, classes, quoted):
    """A hash of a word (FNV-1a), the byte behind its last letter, and the byte behind it and its blanks.

    Blanks may stand inside a word that ends with a delimiter, and delimiters inside quotes.
    """
    running = hashed = np.uint64(14695981039346656037)
    last, meaning = at, classes[text[at]]
    while meaning <= BLANK or (quoted and meaning == DELIMITER):
        running = (running ^ np.uint64(text[at])) * np.uint64(1099511628211)
        at += 1
        if meaning == LETTER or quoted:
            last, hashed = at, running
        meaning = classes[text[at]]
    return np.int64(hashed), last, at
