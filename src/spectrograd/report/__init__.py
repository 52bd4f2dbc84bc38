"""Reports: data -> dict -> page."""

from spectrograd.report.document import cluster_document, demo_document
from spectrograd.report.page import render, write_page
from spectrograd.report.picture import Curve, Picture, draw

__all__ = ["Curve", "Picture", "cluster_document", "demo_document", "draw", "render", "write_page"]
