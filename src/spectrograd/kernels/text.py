"""Edge lists as bytes: numbers, words and lines, read without a Python object for any of them."""

import numpy as np

from spectrograd.kernels.jit import inner, serial

_PLUS, _MINUS, _POINT, _ZERO, _E, _SMALL_E = (ord(letter) for letter in "+-.0Ee")
_MOST_DIGITS = 19  # of a number that surely fits into 64 bits
_EXACT_TENS = 10.0 ** np.arange(23)  # the powers that are float64
_FIVES = np.array([5**power for power in range(28)], np.uint64)  # those that fit into 63 bits
_EXACT = np.uint64(1) << np.uint64(53)  # integers up to here are float64


@inner
def read_integer(text, at):
    """Whether an integer stands here, which, and the byte behind; 007 is none, it would come back as 7."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    begin = at
    number = np.uint64(0)
    digit = np.int64(text[at]) - _ZERO
    while 0 <= digit <= 9:
        number = number * np.uint64(10) + np.uint64(digit)
        at += 1
        digit = np.int64(text[at]) - _ZERO
    n_digits = at - begin
    padded = text[begin] == _ZERO and n_digits > 1
    good = 0 < n_digits <= _MOST_DIGITS and not padded and number < np.uint64(1) << np.uint64(63)
    return good, -np.int64(number) if negative else np.int64(number), at


@inner
def read_decimal(text, at):
    """Whether a number that is not negative is read exactly, its value, and the byte behind.

    Exactly: as the float64 nearest to it, the even one of two. Up to 19 digits and 27 behind the point are.
    """
    at += text[at] == _PLUS
    digits = np.uint64(0)
    n_digits = 0
    power = 0
    begin = at
    point = False
    digit = np.int64(text[at]) - _ZERO
    while (0 <= digit <= 9) | ((digit == _POINT - _ZERO) & (not point)):
        if digit >= 0:
            digits = digits * np.uint64(10) + np.uint64(digit)
            # leading zeros are no digits; digits behind the point lower the power
            n_digits += digits > 0
            power -= point
        else:
            point = True
        at += 1
        digit = np.int64(text[at]) - _ZERO
    good = (at - begin > point) & (n_digits <= _MOST_DIGITS)
    if (text[at] == _E) | (text[at] == _SMALL_E):
        negative = text[at + 1] == _MINUS
        at += 1 + (negative | (text[at + 1] == _PLUS))
        begin = at
        exponent = 0
        digit = np.int64(text[at]) - _ZERO
        while 0 <= digit <= 9:
            # capped: an exponent of many digits must not overflow
            exponent = min(exponent * 10 + digit, 10_000)
            at += 1
            digit = np.int64(text[at]) - _ZERO
        good &= at > begin
        power += -exponent if negative else exponent
    exact, value = _scale_by_power(digits, power)
    return good & exact, value, at


@inner
def _scale_by_power(digits, power):
    """Whether ``digits * 10^power`` can be rounded correctly here, and its value."""
    if digits == 0:
        return True, 0.0
    # both are float64 exactly, so one operation rounds once (Clinger 1990)
    if digits <= _EXACT and -23 < power < 23:
        ten = _EXACT_TENS[abs(power)]
        return True, np.float64(digits) / ten if power < 0 else np.float64(digits) * ten
    if -len(_FIVES) < power <= 0:
        return True, _divide_by_power(digits, -power)
    return False, 0.0


@inner
def _divide_by_power(digits, power):
    """``digits / 10^power`` in float64, rounded once: long division, two bits more than are kept."""
    divisor = _FIVES[power]
    quotient = digits // divisor
    rest = digits % divisor
    scale = -power
    # 1. long division in binary until the quotient has 54 bits: one to round by
    while quotient < _EXACT << np.uint64(1):
        quotient = quotient << np.uint64(1)
        rest = rest << np.uint64(1)
        scale = scale - 1
        if rest >= divisor:
            quotient = quotient | np.uint64(1)
            rest = rest - divisor
    below = np.uint64(0)  # bits that are cut off, with one for all that would follow
    place = np.uint64(1)
    # 2. cut down to 53 bits; those that are cut off are remembered
    while quotient >= _EXACT:
        below |= place * (quotient & np.uint64(1))
        place = place << np.uint64(1)
        quotient = quotient >> np.uint64(1)
        scale = scale + 1
    half = place >> np.uint64(1)
    # 3. round to nearest, ties to even
    if below > half or (below == half and (rest > 0 or quotient & np.uint64(1))):
        quotient += np.uint64(1)
    return np.ldexp(np.float64(quotient), scale)


# --- Edges of a text, read out of raw bytes: no Python object per line.

# Why a scan stopped before the end; the caller looks at the line and says it in words.
GOOD = 0
NOT_INTEGER = 1
WRONG_WIDTH = 2
SURPRISE = 3
# What a column holds. Words of a column WORD + c are described in words[c].
SOURCE = 0
TARGET = 1
WEIGHT = 2
IGNORED = 3
WORD = 4
# Classes of bytes: from DELIMITER on they end a field, from NEWLINE on a line.
LETTER = 0
BLANK = 1
ODD = 2
QUOTE = 3
DELIMITER = 4
NEWLINE = 5
RETURN = 6
HASH = 0
BEGIN = 1
SIZE = 2
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
    A word is described by its hash, first byte and length. A weight that could not be read exactly is
    ``-1 - b``, where b is its first byte: the caller has to read it. Weights and words may be empty if no
    column has that role. Returns edges found, lines read, the byte where the line begins at which it stopped,
    and why. Blank lines and those that begin with ``#`` or ``%`` are skipped.
    """
    at = 0
    edge = 0
    n_lines = 0
    n_columns = len(roles)
    size = len(text)
    line = at
    problem = GOOD
    while at < size and edge < ends.shape[1] and problem == GOOD:
        line = at
        (at, column) = (_first_letter(text, at, classes), 0)
        if classes[text[at]] >= NEWLINE:
            column = n_columns
        while column < n_columns and problem == GOOD:
            role = roles[column]
            quoted = classes[text[at]] == QUOTE and classes[_SPACE] == BLANK
            # one field by its role
            at += quoted
            begin = at
            if role <= TARGET:
                good, ends[role, edge], at = read_integer(text, at)
                problem = GOOD if good and classes[text[at]] != LETTER else NOT_INTEGER
            elif role == WEIGHT:
                good, weights[edge], at = read_decimal(text, at)
                # the caller reads it by Python's own parser: exact or not at all
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
        # one edge per line, and nothing behind it
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
    is_return = classes[text[at]] == RETURN
    return at + (is_return & (text[at + is_return] == _NEWLINE))


@inner
def _next_field(text, at, classes, quoted, is_last):
    """Why a field does not end here as it should, and where the next one begins, or the newline is."""
    blank = classes[_SPACE]
    closed = not quoted or classes[text[at]] == QUOTE
    at += quoted and closed
    parted = classes[text[at]] == DELIMITER
    while classes[text[at]] == blank:
        at += 1
    if blank == BLANK:
        parted = classes[text[at]] == DELIMITER
        at += parted
        while parted & (classes[text[at]] == blank):
            at += 1
    is_return = classes[text[at]] == RETURN
    returned = is_return & (text[at + is_return] == _NEWLINE)  # no byte beyond the last newline is read
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
    last = at
    meaning = classes[text[at]]
    while meaning <= BLANK or (quoted and meaning == DELIMITER):
        running = (running ^ np.uint64(text[at])) * np.uint64(1099511628211)
        at += 1
        if meaning == LETTER or quoted:
            last = at
            hashed = running
        meaning = classes[text[at]]
    return np.int64(hashed), last, at


# --- Words to numbers: a table of hashes with open addressing, and the letters themselves to be sure.

NUMBER_BITS = np.uint64((1 << 32) - 1)  # of a slot; above them are those of the hash that say where it stands
GROUP = 64
_WORD_END = np.uint8(10)


@serial
def number_words(text, words, slots, starts, letters, n_known, codes):
    """Mutates: codes of the words (int32), and the table where it meets new ones: how many it knows then.

    ``words`` (3 x n, int64) are hash, first byte and length in ``text``. ``slots`` (uint64, a power of two of
    them) hold the upper half of a hash and one more than a number, 0 where they are empty. Word number w is
    ``letters[starts[w] : starts[w + 1] - 1]``, and a newline behind it. There must be space for all
    words to be new.
    """
    last_slot = np.uint64(len(slots) - 1)
    touched = np.empty(GROUP, np.int64)
    for w in range(words.shape[1]):
        if w % GROUP == 0:  # step by step: the processor then waits for many words at once
            n_ahead = min(GROUP, words.shape[1] - w)
            for g in range(n_ahead):
                # slots, starts and letters of the next words are touched, so that
                # they are in the cache when they are read
                place = (np.uint64(words[HASH, w + g]) >> np.uint64(32)) & last_slot
                touched[g] = slots[place] & NUMBER_BITS
            for g in range(n_ahead):
                touched[g] = starts[max(touched[g] - 1, 0)]
            for g in range(n_ahead):
                touched[g] = letters[touched[g]]
        tag = np.uint64(words[HASH, w]) & ~NUMBER_BITS
        begin = words[BEGIN, w]
        size = words[SIZE, w]
        place = (tag >> np.uint64(32)) & last_slot
        code = -1
        while code < 0:
            slot = slots[place]
            # an empty slot: a new word; the same hash and length: compare the letters; else the next slot
            known = np.int64(slot & NUMBER_BITS) - 1
            if known < 0:
                slots[place] = tag | np.uint64(n_known + 1)
                for at in range(size):
                    letters[starts[n_known] + at] = text[begin + at]
                letters[starts[n_known] + size] = _WORD_END
                starts[n_known + 1] = starts[n_known] + size + 1
                code = n_known
                n_known = n_known + 1
            elif slot & ~NUMBER_BITS == tag and starts[known + 1] - starts[known] == size + 1:
                at = 0
                own = starts[known]
                while at < size and letters[own + at] == text[begin + at]:
                    at += 1
                code = known if at == size else -1
            place = (place + np.uint64(1)) & last_slot
        codes[w] = code
    return n_known


@serial
def spread_slots(old, slots):
    """Mutates: slots, all empty, which take what the old ones hold."""
    last_slot = np.uint64(len(slots) - 1)
    for slot in old:
        if slot > 0:
            place = (slot >> np.uint64(32)) & last_slot
            while slots[place] > 0:
                place = (place + np.uint64(1)) & last_slot
            slots[place] = slot
