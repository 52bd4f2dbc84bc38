"""The site builds without a warning, holds every page and fetches nothing; its tables agree with the code."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from functools import cached_property
from pathlib import Path
from types import FunctionType

import pytest

import spectrograd
from spectrograd import datasets, open_store, write_graph
from spectrograd.kernels.thresholds import USUAL
from spectrograd.operators.laplacian import laplacian
from spectrograd.pipeline import plan as auto
from spectrograd.solvers.base import Problem

ROOT = Path(__file__).resolve().parents[2]
PLAN_PAGE = ROOT / "docs" / "choosing_a_solver.md"


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
    assert "Certificates and cluster verdicts" in index


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


METHODS = (FunctionType, classmethod, staticmethod, property, cached_property)


def methods_of(found):
    """Public methods and properties that a class has from this package, not from scikit-learn."""
    for name in dir(found):
        owner = next((base for base in found.__mro__ if name in vars(base)), object)
        kind = isinstance(vars(owner).get(name), METHODS)
        if not name.startswith("_") and kind and owner.__module__.startswith("spectrograd"):
            yield name


def test_the_api_page_has_every_public_name_and_every_method(site):
    shown = set(re.findall(r'id="(spectrograd[\w.]*)"', text_of(site / "api.html")))
    ends = {".".join(name.split(".")[-2:]) for name in shown} | {name.split(".")[-1] for name in shown}
    missing = []
    for name in spectrograd.__all__:
        found = getattr(spectrograd, name)
        if inspect.ismodule(found):
            continue
        missing += [name] if name not in ends else []
        if inspect.isclass(found) and not issubclass(found, Exception):
            missing += [
                f"{name}.{method}"
                for method in methods_of(found)
                if f"{name}.{method}" not in ends and inspect.getdoc(inspect.getattr_static(found, method))
            ]
    assert not missing
    for method in ("fit", "predict", "transform", "partial_fit", "save", "fit_predict", "plot"):
        assert f"SpectralClustering.{method}" in ends


def test_the_site_shows_the_version(site):
    assert f"spectrograd {spectrograd.__version__}, MIT license" in text_of(site / "index.html")


def test_formulas_are_drawn_by_the_browser(site):
    pytest.importorskip("latex2mathml", reason="the site needs: pip install 'spectrograd[docs]'")
    page = text_of(site / "method.html")
    assert page.count("<math") > 10
    assert "arithmatex" not in page


DENIALS = re.compile(
    r"not in this release|not yet (?:there|supported|implemented|available)|\bis planned\b|coming soon"
)


def test_no_page_puts_off_what_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if "adr" not in page.parts]
    found = [f"{page.name}: {match[0]}" for page in pages for match in DENIALS.finditer(text_of(page))]
    assert not found


def test_the_install_page_has_every_extra():
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    page = text_of(ROOT / "docs" / "install.md")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == set(extras)


# --- the tables of docs/choosing_a_solver.md ------------------------------------------------------------


def planned_solvers():
    """Problem -> planned solvers, from the second table of the page."""
    rows = re.findall(r"^\| ([^|]+) \| ((?:`[a-z-]+`(?:, )?)+) \|$", text_of(PLAN_PAGE), flags=re.MULTILINE)
    return {problem: re.findall(r"`([a-z-]+)`", solvers) for problem, solvers in rows}


def names(planned):
    return [choice.name for choice in planned]


def test_the_plan_page_has_the_numbers_of_the_code():
    page = text_of(PLAN_PAGE)
    assert f"at most {USUAL.all_vectors:,} nodes, in memory" in page
    assert f"`eigen` up to {USUAL.dense_at_most:,} nodes" in page
    assert f"`multilevel` above {USUAL.small:,} nodes" in page
    assert f"leaves at most {USUAL.shrinks:.0%} of the entries" in page


@pytest.mark.parametrize("quickest", ["eigen", "shift-invert", "lanczos", "chebyshev", "multilevel"])
def test_the_plan_page_has_the_plans_in_memory(quickest, monkeypatch):
    ranked = [auto.PlannedSolver(quickest, ""), auto.PlannedSolver("other", "")]
    monkeypatch.setattr(auto, "candidates", lambda *_: ranked)
    problem = Problem(
        laplacian(datasets.make_block_model(USUAL.all_vectors + 50, 2, random_state=0).graph), 2
    )
    row = f"in memory, `{quickest}` is predicted quickest"
    assert names(auto.plan_by_cost(problem)) == planned_solvers()[row]


def test_the_plan_page_has_the_other_plans(tmp_path):
    from spectrograd.pipeline.merge import merge
    from spectrograd.pipeline.settings import Settings

    tiny = datasets.make_block_model(200, 2, random_state=0).graph
    layers = datasets.make_multilayer_gmm(USUAL.dense_at_most + 100, 2, 2, random_state=0).graph
    without_edges = merge(layers, n_components=2, settings=Settings(seed=0), aggregation="grassmann").operator
    write_graph(tmp_path / "graph.store", datasets.make_block_model(20_000, 2, random_state=0).graph)
    on_disk = Problem(laplacian(open_store(tmp_path / "graph.store")), 2)
    plans = {
        f"at most {USUAL.all_vectors} nodes, in memory": auto.plan(Problem(laplacian(tiny), 2)),
        f"at most {USUAL.small:,} nodes within {auto.MAX_COMPACT_LEVELS} steps of the first one": auto.plan(
            Problem(laplacian(datasets.make_block_model(600, 2, random_state=0).graph), 2)
        ),
        "an operator without edges (layers merged by `grassmann`)": auto.plan(Problem(without_edges, 2)),
        "a graph on disk, eight Krylov blocks fit": auto.plan(on_disk),
        "a graph on disk, they do not fit": auto.plan(on_disk, 1),
    }
    table = planned_solvers()
    assert {row: names(planned) for row, planned in plans.items()} == {row: table[row] for row in plans}
