"""The experiments of the paper: its tables, its own setting and what that leaves open, and growth with N."""
