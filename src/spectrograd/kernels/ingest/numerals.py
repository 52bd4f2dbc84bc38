"""Numbers in decimal letters, read exactly or not at all."""

import numpy as np

from spectrograd.kernels.jit import inner

_PLUS, _MINUS, _POINT, _ZERO, _E, _SMALL_E = (ord(letter) for letter in "+-.0Ee")
_MOST_DIGITS = 19  # of a number that surely fits into 64 bits
_EXACT_TENS = 10.0 ** np.arange(23)  # the powers that are float64
_FIVES = np.array([5**power for power in range(28)], np.uint64)  # those that fit into 63 bits
_EXACT = np.uint64(1) << np.uint64(53)  # integers up to here are float64


@inner
def integer(text, at):
    """Whether an integer stands here, which, and the byte behind; 007 is none, it would come back as 7."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    begin, number = at, np.uint64(0)
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
def decimal(text, at):
    """Whether a number that is not negative is read exactly, its value, and the byte behind.

    Exactly: as the float64 nearest to it, the even one of two. Up to 19 digits and 27 behind the point are.
    """
    at += text[at] == _PLUS
    digits, n_digits, power, begin, point = np.uint64(0), 0, 0, at, False
    digit = np.int64(text[at]) - _ZERO
    while (0 <= digit <= 9) | ((digit == _POINT - _ZERO) & (not point)):
        if digit >= 0:
            digits = digits * np.uint64(10) + np.uint64(digit)
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
        begin, exponent = at, 0
        digit = np.int64(text[at]) - _ZERO
        while 0 <= digit <= 9:
            exponent = min(exponent * 10 + digit, 10_000)
            at += 1
            digit = np.int64(text[at]) - _ZERO
        good &= at > begin
        power += -exponent if negative else exponent
    exact, value = _scaled(digits, power)
    return good & exact, value, at


@inner
def _scaled(digits, power):
    """Whether ``digits * 10^power`` is told exactly, and its value."""
    if digits == 0:
        return True, 0.0
    if digits <= _EXACT and -23 < power < 23:
        ten = _EXACT_TENS[abs(power)]
        return True, np.float64(digits) / ten if power < 0 else np.float64(digits) * ten
    if -len(_FIVES) < power <= 0:
        return True, _divided(digits, -power)
    return False, 0.0


@inner
def _divided(digits, power):
    """``digits / 10^power`` in float64, rounded once: long division, two bits more than are kept."""
    divisor = _FIVES[power]
    quotient, rest, scale = digits // divisor, digits % divisor, -power
    while quotient < _EXACT << np.uint64(1):
        quotient, rest, scale = quotient << np.uint64(1), rest << np.uint64(1), scale - 1
        if rest >= divisor:
            quotient, rest = quotient | np.uint64(1), rest - divisor
    below = np.uint64(0)  # bits that are cut off, with one for all that would follow
    place = np.uint64(1)
    while quotient >= _EXACT:
        below |= place * (quotient & np.uint64(1))
        place, quotient, scale = place << np.uint64(1), quotient >> np.uint64(1), scale + 1
    half = place >> np.uint64(1)
    if below > half or (below == half and (rest > 0 or quotient & np.uint64(1))):
        quotient += np.uint64(1)
    return np.ldexp(np.float64(quotient), scale)
