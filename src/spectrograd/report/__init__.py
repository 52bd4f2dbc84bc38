"""Reports: data -> dict -> page."""

from spectrograd.report.document import demo_document
from spectrograd.report.figures import Curve, Picture, draw
from spectrograd.report.page import render, write_page

__all__ = ["Curve", "Picture", "demo_document", "draw", "render", "write_page"]
