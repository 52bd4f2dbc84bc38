"""Reports: data -> dict -> page."""

from spectrograd.report.figures import Curve, Picture, draw
from spectrograd.report.page import render, write_page

__all__ = ["Curve", "Picture", "draw", "render", "write_page"]
