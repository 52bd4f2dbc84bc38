"""Edge lists of integers out of raw bytes: no Python object per line."""

import numpy as np

from spectrograd.kernels.jit import inner, serial

# Why a scan stopped before the end; the caller looks at the line and says it in words.
GOOD, NOT_INTEGER, WRONG_WIDTH, NOT_WEIGHT = 0, 1, 2, 3
SOURCE, TARGET, WEIGHT, LAYER, IGNORED = 0, 1, 2, 3, 4
_TENS = 10.0 ** np.arange(23)  # exact in float64
_NEWLINE, _RETURN, _SPACE, _TAB, _QUOTE, _ZERO = 10, 13, 32, 9, 34, 48


@serial
def scan_edges(text, delimiter, roles, ends, weights, layers):
    """Mutates: ends (2 x capacity, int64), weights, and layers (hash, first byte, length per edge, int64).

    ``text`` are whole lines, ``delimiter`` is the byte between fields (0: runs of blanks), ``roles`` say what
    each column holds. Weights and layers may be empty if no column has that role. Returns edges found, lines
    read, the byte where the line begins at which it stopped, and why. Blank lines and those that begin with
    ``#`` or ``%`` are skipped.
    """
    at, n_edges, n_lines, size = 0, 0, 0, len(text)
    while at < size and n_edges < ends.shape[1]:
        begin = at
        at = _skip_blanks(text, at, delimiter)
        if text[at] != _NEWLINE and text[at] != _RETURN and text[at] != 35 and text[at] != 37:
            problem, at = _scan_line(text, at, delimiter, roles, n_edges, ends, weights, layers)
            if problem != GOOD:
                return n_edges, n_lines, begin, problem
            n_edges += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
        n_lines += 1
    return n_edges, n_lines, at, GOOD


@inner
def _skip_blanks(text, at, delimiter):
    while text[at] == _SPACE or (text[at] == _TAB and delimiter != _TAB):
        at += 1
    return at


@inner
def _ends_field(byte, delimiter):
    if byte in (_NEWLINE, _RETURN):
        return True
    return byte in (_SPACE, _TAB) if delimiter == 0 else byte == delimiter


@inner
def _scan_line(text, at, delimiter, roles, edge, ends, weights, layers):
    """Mutates: one edge. Why it is none, and the byte behind its last field."""
    for column in range(len(roles)):
        at = _skip_blanks(text, at, delimiter)
        if text[at] == _NEWLINE or text[at] == _RETURN:
            return WRONG_WIDTH, at
        role, begin = roles[column], at
        if role in (SOURCE, TARGET):
            good, number, at = _integer(text, at)
            if not good:
                return NOT_INTEGER, at
            ends[role, edge] = number
        elif role == WEIGHT:
            good, value, at = _decimal(text, at)
            if not good:
                return NOT_WEIGHT, at
            weights[edge] = value
        else:
            good, last, at = _word(text, at, delimiter)
            if not good:
                return NOT_INTEGER, at
            if role == LAYER:
                layers[0, edge], layers[1, edge], layers[2, edge] = (
                    _hash(text, begin, last),
                    begin,
                    last - begin,
                )
                if last == begin:
                    return WRONG_WIDTH, at
        at = _skip_blanks(text, at, delimiter)
        if column < len(roles) - 1 and delimiter != 0:
            if text[at] != delimiter:
                ended = text[at] == _NEWLINE or text[at] == _RETURN
                return WRONG_WIDTH if ended else NOT_INTEGER, at
            at += 1
        elif (
            delimiter == 0
            and not _ends_field(text[at - 1], delimiter)
            and not _ends_field(text[at], delimiter)
        ):
            return NOT_INTEGER, at
    if text[at] == _RETURN:
        at += 1
    return GOOD if text[at] == _NEWLINE else WRONG_WIDTH, at


@inner
def _word(text, at, delimiter):
    """Whether a field has no quotes, the byte behind its last letter, and the byte behind it."""
    last = at
    while not _ends_field(text[at], delimiter):
        if text[at] == _QUOTE:
            return False, last, at
        if text[at] != _SPACE and text[at] != _TAB:
            last = at + 1
        at += 1
    return True, last, at


@inner
def _hash(text, begin, end):
    """64 bits of some letters (FNV-1a)."""
    hashed = np.uint64(14695981039346656037)
    for place in range(begin, end):
        hashed = (hashed ^ np.uint64(text[place])) * np.uint64(1099511628211)
    return np.int64(hashed)


@inner
def _integer(text, at):
    """Whether an integer stands here, which, and the byte behind; 007 is none, it would come back as 7."""
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    begin, number = at, np.uint64(0)
    while _ZERO <= text[at] <= 57:
        if at - begin >= 19:
            return False, np.int64(0), at
        number = number * np.uint64(10) + np.uint64(text[at] - _ZERO)
        at += 1
    good = (
        at > begin
        and not (text[begin] == _ZERO and at - begin > 1)
        and number < np.uint64(2) ** np.uint64(63)
    )
    return good, -np.int64(number) if negative else np.int64(number), at


@inner
def _decimal(text, at):
    """Whether a number that is not negative stands here, its value, and the byte behind.

    Digits beyond the nineteenth are dropped: the value is right to an ulp or two of float64.
    """
    if text[at] == 43:
        at += 1
    mantissa, n_digits, exponent, seen, fraction = np.uint64(0), 0, 0, False, False
    while True:
        byte = text[at]
        if byte == 46 and not fraction:
            fraction = True
        elif _ZERO <= byte <= 57:
            seen = True
            if n_digits < 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - _ZERO)
                n_digits += 1 if mantissa > 0 else 0
                exponent -= 1 if fraction else 0
            else:
                exponent += 0 if fraction else 1
        else:
            break
        at += 1
    if seen and (text[at] == 101 or text[at] == 69):
        good, power, at = _exponent(text, at + 1)
        seen, exponent = seen and good, exponent + power
    value = np.float64(mantissa)
    while exponent > 0 and value > 0:
        step = min(exponent, 22)
        value, exponent = value * _TENS[step], exponent - step
        if not np.isfinite(value):
            return False, value, at
    while exponent < 0 and value > 0:
        step = min(-exponent, 22)
        value, exponent = value / _TENS[step], exponent + step
    return seen, value, at


@inner
def _exponent(text, at):
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    power, begin = 0, at
    while _ZERO <= text[at] <= 57:
        power = min(power * 10 + (text[at] - _ZERO), 10_000)
        at += 1
    return at > begin, -power if negative else power, at
