"""What a command tells the shell."""

GOOD, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
