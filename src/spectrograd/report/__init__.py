"""Reports: data -> dict -> page."""

from spectrograd.report.document import demo_document
from spectrograd.report.page import render, write_page
from spectrograd.report.picture import Curve, Picture, draw

__all__ = ["Curve", "Picture", "demo_document", "draw", "render", "write_page"]
