"""Doors in: one file per format."""
