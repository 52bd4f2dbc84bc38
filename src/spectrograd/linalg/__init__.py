"""Algebra of Multivectors on an engine, and what needs the matrix at hand: factors, grids."""
