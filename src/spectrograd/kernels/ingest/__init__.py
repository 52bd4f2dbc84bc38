"""Edges as they are listed, to rows."""
