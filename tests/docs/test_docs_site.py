"""The site builds without a warning, holds every page, fetches nothing, and draws what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spectrograd import datasets
from spectrograd.kernels.thresholds import USUAL
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import plan as auto
from spectrograd.solvers.base import Problem
from spectrograd.solvers.eigen import DENSE_BELOW

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "_site" / "decision.svg"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; a warning is an error (but never with --quiet, which hides warnings from the count)."""
    for module in ("material", "mkdocstrings"):
        pytest.importorskip(module, reason="the site needs: pip install 'spectrograd[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def text_of(page):
    return page.read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation(site):
    sidebar = (
        text_of(site / "index.html").split('data-md-type="navigation"')[1].split('data-md-type="toc"')[0]
    )
    linked = set(re.findall(r'href="([^"#]+\.html)', sidebar))
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README", "index")
        assert page in linked, page


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|iframe|link)[^>]*(?:src|href)="(https?:)?//', text_of(page))
        assert not fetched, page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", text_of(sheet)), sheet


def test_the_search_works_from_the_file_system(site):
    index = text_of(site / "search" / "search_index.js")  # a script: browsers do not let file:// fetch
    assert "Which clusters can I trust" in index


def test_docstrings_are_shown(site):
    api = text_of(site / "api.html")
    for name in (
        "SpectralClustering",
        "MultilayerSpectralEmbedding",
        "Graph",
        "Certificate",
        "largest_principal_angle",
    ):
        assert re.search(rf'id="spectrograd\.[\w.]*{name}"', api), name
    assert "eigen_solver" in api
    assert ":class:" not in api


# --- the decision picture ---------------------------------------------------------------------------


def test_the_picture_has_the_numbers_of_the_code():
    picture = text_of(PICTURE)
    assert f"At most {USUAL.all_vectors:,} nodes?" in picture
    assert f"at most {USUAL.little_fill} entries per edge?" in picture
    assert f"At most {USUAL.small:,} nodes?" in picture
    assert f"at most {USUAL.shrinks:.0%} of the entries?" in picture


def plans(monkeypatch):
    """The plan at every end of the tree, in the order of the picture."""
    from spectrograd.pipeline.multilayer import merge
    from spectrograd.pipeline.settings import Settings

    small = datasets.make_block_model(200, 2, random_state=0).graph
    large = datasets.make_block_model(USUAL.small + 100, 2, random_state=0).graph
    middle = datasets.make_multilayer_gmm(DENSE_BELOW + 100, 2, 2, random_state=0).graph
    few = {"n_components": 2, "settings": Settings(seed=0)}
    grassmann = merge(middle, **few, aggregation="grassmann").operator
    projection = merge(middle, **few, aggregation="projection").operator
    cases = [
        (laplacian(small), 99, 1, 2),
        (grassmann, 99, 1, 2),
        (laplacian(large), USUAL.little_fill, 1, 2),
        (projection, 99, 1, 2),
        (laplacian(middle.layers[0]), 99, 1, 2),
        (laplacian(large), 99, USUAL.shrinks, 2),
        (laplacian(large), 99, 1, USUAL.one_by_one),
        (laplacian(large), 99, 1, USUAL.one_by_one + 1),
    ]
    for operator, fill, shrinkage, k in cases:
        monkeypatch.setattr(auto, "fill_ratio", lambda *_, fill=fill: fill)
        monkeypatch.setattr(auto, "first_shrinkage", lambda _, shrinkage=shrinkage: shrinkage)
        yield " ".join(choice.name for choice in auto.plan(Problem(operator, k)))


def test_the_picture_has_the_plans_of_the_code(monkeypatch):
    drawn = re.findall(r'data-plan="([a-z -]+)"', text_of(PICTURE))
    assert drawn == list(plans(monkeypatch))
