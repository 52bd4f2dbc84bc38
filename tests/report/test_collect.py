"""Reports: what the dict holds, that the page escapes it, and that the picture shows it."""

from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from spectrograd.report import Curve, Picture, draw, render, write_page
from spectrograd.report.document import methods_table
from spectrograd.report.figures import Agreement, _draw_curves, draw_agreement, project

PNG = b"\x89PNG\r\n\x1a\n"
RUN = {"command": "spectrograd demo 'a&b.csv'", "seed": 4, "versions": {"numpy": "9.9"}}


class Texts(HTMLParser):
    """All tags and all texts of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data.strip())


def method_row(**changes):
    row = dict.fromkeys(("seconds", "iterations", "passes", "purity", "nmi", "ri", "ari", "error"))
    return row | {"method": "a method"} | changes


SVG = '<svg><g class="curve curve-0"></g></svg>'


def document(rows, *, advice="fine", run=RUN, **changes):
    """A page with a picture and one table of methods."""
    facts = [["seed", str(run["seed"])], *([name, text] for name, text in run["versions"].items())]
    texts = {"title": "a page", "lead": "data", "advice": advice, "good": True, "facts": facts}
    texts |= {"pictures": [SVG], "legend": [["a method", "var(--ink)", "solid"]]}
    return texts | {"tables": [methods_table(rows)["table"]], "command": run["command"]} | changes


def test_the_table_of_methods_shows_failures_and_leaves_out_what_is_unknown():
    rows = [method_row(seconds=1.234, iterations=1, nmi=0.5), method_row(error="MemoryError: no room")]
    good, bad = methods_table(rows)["table"]["rows"]
    assert good == ["a method", "1.23", "–", "–", "–", "0.500", "–", "–"]
    assert bad[0] == "a method: failed, MemoryError: no room"


def test_page_escapes_every_text_and_needs_nothing_beside_it(tmp_path):
    nasty = "<script>alert('x')</script>&amp;"
    run = {"command": nasty, "seed": nasty, "versions": {nasty: nasty}}
    rows = [method_row(method=nasty), method_row(error=nasty)]
    legend = [[nasty, "var(--ink)", "solid"]]
    page = document(rows, advice=nasty, run=run, title=nasty, lead=nasty, legend=legend)
    write_page(tmp_path / "page.html", page)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    parsed = Texts(page)
    assert parsed.tags.count("script") == 1  # the page's own
    assert "link" not in parsed.tags
    assert parsed.texts.count(nasty) >= 6  # comes back as it was, once unescaped
    assert SVG in page
    assert "http" not in page


def test_page_says_what_to_take_and_how_to_repeat_it():
    texts = Texts(render(document([], advice="take: 1 < 2"))).texts
    for expected in ("take: 1 < 2", "spectrograd demo 'a&b.csv'", "seed", "4", "numpy", "9.9"):
        assert expected in texts


def blobs(n_clusters, n_columns):
    rng = np.random.default_rng(0)
    labels = np.arange(60 * n_clusters) % n_clusters
    return np.eye(n_columns)[labels] + 0.05 * rng.standard_normal((len(labels), n_columns)), labels


def test_view_puts_the_clusters_on_the_corners_of_a_polygon():
    vectors, labels = blobs(5, 5)
    points, view = project(vectors, labels)
    means = np.stack([points[labels == label].mean(axis=0) for label in range(5)])
    assert np.linalg.norm(means, axis=1) == pytest.approx(np.ones(5))
    angles = np.sort(np.arctan2(means[:, 1], means[:, 0]))
    assert np.diff(angles) == pytest.approx(np.full(4, 2 * np.pi / 5))
    assert "corner" in view


@pytest.mark.parametrize(("n_clusters", "n_columns"), [(2, 2), (1, 1), (14, 14)])
def test_view_of_few_or_many_clusters_is_the_principal_plane(n_clusters, n_columns):
    vectors, labels = blobs(n_clusters, n_columns)
    points, view = project(vectors, labels)
    assert points.shape == (len(vectors), 2)
    assert points.mean(axis=0) == pytest.approx([0, 0])
    assert "principal" in view
    if n_clusters == 2:  # the two clusters part along the first axis
        assert np.array_equal(points[:, 0] > 0, labels == labels[np.argmax(points[:, 0])])


def test_view_survives_clusters_whose_means_coincide_and_zero_rows():
    vectors = np.ones((30, 3))
    vectors[0] = 0
    points, view = project(vectors, np.arange(30) % 3)
    assert np.isfinite(points).all()
    assert "principal" in view


def test_curve_takes_its_columns_from_the_history():
    history = [SimpleNamespace(seconds=0.1 * i, objective=5.0 - i, residual=0.5**i) for i in range(3)]
    curve = Curve.of("method", history)
    assert curve.seconds == pytest.approx([0, 0.1, 0.2])
    assert curve.objective == pytest.approx([5, 4, 3])
    assert curve.residual == pytest.approx([1, 0.5, 0.25])
    assert not curve.is_direct
    assert Curve.of("direct", history[:1]).is_direct


def falling_curve(name, end=1.0):
    return Curve(name, np.array([0.0, 1.0, 2.0]), np.array([3.0, 2.0, end]), np.array([0.3, 0.2, 0.1]))


def drawn(curves):
    """The lines of a convergence panel by their label."""
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    _draw_curves(axis, curves)
    return {str(line.get_label()): line.get_xydata() for line in axis.lines}


def test_several_methods_are_drawn_against_the_best_of_them():
    direct = Curve("direct", *np.array([[0.5], [0.0], [0.0]]))
    lines = drawn((falling_curve("one"), falling_curve("two", 0.5), direct))
    assert list(lines) == ["one: 1 at 2.00 s", "two: 0.5 at 2.00 s", "direct: done at 0.50 s"]
    assert lines["two: 0.5 at 2.00 s"][:, 1] == pytest.approx([3, 2, 0.5])
    assert lines["direct: done at 0.50 s"][:, 0] == pytest.approx([0.5, 0.5])


def test_the_best_method_does_not_plunge_to_zero():
    lines = drawn((falling_curve("one"), falling_curve("two", 0.5)))
    assert lines["two: the best at 2.00 s"][:, 1] == pytest.approx([2.5, 1.5])


def test_a_method_alone_is_drawn_by_its_residual():
    (points,) = drawn((falling_curve("one"),)).values()
    assert points[:, 1] == pytest.approx([0.3, 0.2, 0.1])


def test_picture_has_a_panel_for_all_there_is_to_see():
    vectors, labels = blobs(3, 3)
    falling, direct = falling_curve("iterative"), Curve("direct", *np.array([[0.5], [1.0], [0.0]]))
    only = draw(Picture("t", vectors, labels, curves=(direct,)))
    both = draw(Picture("t", vectors, labels, curves=(direct, falling)))
    clouds = (vectors[:, :2], vectors[:, 1:])
    full = draw(Picture("t", vectors, labels, (direct, falling), clouds, ("one", "two")))
    sizes = [np.frombuffer(png[16:24], dtype=">u4").tolist() for png in (only, both, full)]
    assert all(png.startswith(PNG) for png in (only, both, full))
    assert sizes[0][0] < sizes[1][0]
    assert sizes[1][1] < sizes[2][1]


def test_agreement_is_drawn_with_its_names_and_numbers():
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    names = ("calls", "a very long name of a layer")
    draw_agreement(axis, Agreement(names, np.array([[1.0, 0.25], [0.25, 1.0]])))
    assert [text.get_text() for text in axis.texts] == ["1.00", "0.25", "0.25", "1.00"]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["calls", "a very long n…"]
