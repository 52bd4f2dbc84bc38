"""Algebra of tall and skinny blocks on an engine, and what needs the matrix at hand: factors, grids."""
