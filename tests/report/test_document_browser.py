"""The page of a run in a real browser: it draws, it answers mouse and keyboard, and names stay text."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
from test_page import SCORES, summary_of

from spectrograd import datasets
from spectrograd.graph import MultilayerGraph
from spectrograd.pipeline import Settings, cluster, embed, prepare
from spectrograd.report.collect import gather_run
from spectrograd.report.document import run_document
from spectrograd.report.figures import project
from spectrograd.report.page import write_run_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NASTY = "<script>document.title='broken'</script>"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@pytest.fixture(scope="module")
def run():
    data = datasets.make_multilayer_gmm(150, 2, 3, random_state=0)
    layers = {f"<i>{name}": layer for name, layer in zip("ab", data.graph.layers, strict=True)}
    graph = MultilayerGraph.from_layers(layers)
    settings = Settings(n_components=3, laplacian="symmetric", solver="eigen", seed=0)
    result = prepare(graph, settings).solve(replace(settings, solver="gradient-descent"))
    result = replace(result, labels=data.labels, n_clusters=3)
    told = summary_of(result, graph, scores=SCORES)
    truth = ("truth.csv", np.roll(data.labels, 1))
    found = gather_run(graph, result, told, truth=truth)
    return replace(found, nodes=replace(found.nodes, names=names_for(found.nodes)))


def names_for(nodes):
    """Nodes by number but three; the worst name where no other point is near the mouse."""
    plane = project(nodes.vectors.astype(float), nodes.labels)[0]
    apart = np.linalg.norm(plane[:, None] - plane, axis=2) + 9 * np.eye(len(plane))
    names = [f"node {i}" for i in range(len(nodes))]
    names[3], names[4] = "<b>bold</b>", "a&amp;b"
    names[int(apart.min(axis=1).argmax())] = NASTY
    return np.array(names)


@pytest.fixture(scope="module")
def browser():
    reason = "nothing to drive the browser with: pip install playwright"
    driver = pytest.importorskip("playwright.sync_api", reason=reason)

    with driver.sync_playwright() as playwright:
        with_root = ["--no-sandbox"]  # containers run as root, which the sandbox refuses
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=with_root)
        yield browser
        browser.close()


def opened(browser, path, **options):
    """The page when it is drawn, with everything it complained about or reached for."""
    page = browser.new_page(viewport={"width": 900, "height": 700}, **options)
    page.set_default_timeout(100_000)
    page.complaints, page.requests = [], []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda line: page.complaints.append(line.text) if line.type == "error" else None)
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=200_000)
    return page


@pytest.fixture(scope="module")
def loaded(browser, run, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_run_page(path, run_document(run))
    page = opened(browser, path)
    yield page
    page.close()


@pytest.fixture
def page(loaded):
    """The page as it is when it opens."""
    loaded.click("[data-space=no]")
    loaded.select_option("#colour", "group 0")
    loaded.keyboard.press("Escape")
    settle(loaded)
    return loaded


def settle(page):
    """Two frames: whatever the last action began is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait_for_timeout(50)


def traces(page):
    """Kind, number of points and colour of every trace that can be pointed at."""
    settle(page)
    return page.evaluate(
        "() => document.getElementById('scatter').data.filter((t) => t.hoverinfo !== 'skip')"
        ".map((t) => ({ type: t.type, size: t.x.length, colour: t.marker.color }))"
    )


def colours(page, selector="#scatter"):
    """How often each colour occurs in a picture of an element."""
    from PIL import Image

    settle(page)
    image = Image.open(io.BytesIO(page.locator(selector).screenshot())).convert("RGB")
    values, counts = np.unique(np.asarray(image).reshape(-1, 3), axis=0, return_counts=True)
    return {tuple(map(int, value)): int(count) for value, count in zip(values, counts, strict=True)}


def is_coloured(colour):
    return max(colour) - min(colour) > 60


def test_it_draws_without_complaint_or_network(page):
    assert page.complaints == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in page.requests)
    assert len([url for url in page.requests if url.startswith("file:")]) == 1
    for chart in ("#scatter", "#spectrum", "#convergence"):
        found = colours(page, chart)
        assert len(found) > 20, f"{chart} is empty"
    inked = sum(count for colour, count in colours(page).items() if is_coloured(colour))
    assert inked > 150 * 10  # every node a disc of several pixels


def place_of(page, name):
    """Where on the screen a node is drawn."""
    return page.evaluate(
        """(name) => {
            const plot = document.getElementById("scatter"), box = plot.getBoundingClientRect();
            const { xaxis, yaxis } = plot._fullLayout;
            const trace = plot.data.find(({ text }) => text.includes(name)), at = trace.text.indexOf(name);
            const along = (axis, value) => axis._offset + axis.d2p(value);
            return [box.left + along(xaxis, trace.x[at]), box.top + along(yaxis, trace.y[at])];
        }""",
        name.replace("<", "&lt;").replace(">", "&gt;"),
    )


def test_names_stay_text(page):
    assert page.title() == "spectrograd cluster"
    assert page.locator("main script, main b, main i:not(.bar i)").count() == 0
    page.locator("#scatter").scroll_into_view_if_needed()
    page.mouse.move(*place_of(page, NASTY))
    assert NASTY in page.text_content("#scatter .hovertext")
    page.fill("#search", "<script>")
    assert page.locator("#matches button").all_inner_texts() == [NASTY]
    page.keyboard.press("Enter")
    settle(page)
    assert page.inner_text("#status").startswith(f"{NASTY} · cluster ")
    assert NASTY in page.text_content("#scatter .annotation-text")
    for name in ("<b>bold</b>", "a&amp;b"):
        page.fill("#search", name)
        page.keyboard.press("Enter")
        settle(page)
        assert name in page.text_content("#scatter .annotation-text")
    assert page.complaints == []


def test_search_finds_by_name_beginning_and_part(page, run):
    page.fill("#search", "node 14")
    matches = page.locator("#matches button").all_inner_texts()
    assert matches == ["node 14", *(f"node 14{i}" for i in range(10))]
    page.locator("#matches button", has_text="node 147").click()
    settle(page)
    ring = page.evaluate("() => document.getElementById('scatter').data.at(-1)")
    assert ring["text"] == ["node 147"]
    assert "class " in page.inner_text("#status")
    assert "layer <i>a " in page.inner_text("#status")
    page.fill("#search", "nobody")
    assert page.inner_text("#status") == "No node of that name."


def test_a_cluster_is_isolated_from_legend_and_table(page, run):
    sizes = np.bincount(run.nodes.labels).tolist()
    assert [trace["size"] for trace in traces(page)] == sizes
    page.locator("#legend button").nth(1).click()
    assert [trace["size"] for trace in traces(page)] == [sizes[1]]
    assert page.inner_text("#status") == f"Only cluster 1: {sizes[1]} nodes."
    pressed = page.locator("[aria-pressed=true][data-cluster]")
    assert pressed.get_attribute("data-cluster") == "1"
    page.locator("[data-cluster='2']").click()
    assert [trace["size"] for trace in traces(page)] == [sizes[2]]
    page.click("#reset")
    assert [trace["size"] for trace in traces(page)] == sizes


def test_colours_by_class_layer_and_eigenvector(page, run):
    page.select_option("#colour", label="class")
    assert [trace["size"] for trace in traces(page)] == np.bincount(run.nodes.classes).tolist()
    page.select_option("#colour", label="agreement with layer <i>b")
    steps = traces(page)
    assert sum(step["size"] for step in steps) == 150
    assert len({step["colour"] for step in steps}) == len(steps) > 3
    assert page.locator("#scatter .colorbar").count() == 1
    page.locator("#legend button").first.click()
    assert sum(step["size"] for step in traces(page)) == np.sum(run.nodes.labels == 0)
    page.click("#reset")
    page.select_option("#colour", label="nothing")
    assert [trace["size"] for trace in traces(page)] == [150]
    assert page.complaints == []


def test_axes_in_the_plane_and_in_space(page):
    assert not page.is_visible("#axis-z")
    page.select_option("#axis-x", label="eigenvector 3")
    settle(page)
    assert page.text_content("#scatter .xtitle") == "eigenvector 3"
    page.click("[data-space=yes]")
    assert {trace["type"] for trace in traces(page)} == {"scatter3d"}
    assert page.is_visible("#axis-z")
    assert any(is_coloured(colour) for colour in colours(page))
    page.click("[data-space=no]")
    page.select_option("#axis-x", label="view 1")
    assert {trace["type"] for trace in traces(page)} == {"scattergl"}
    assert page.complaints == []


def test_everything_can_be_reached_and_worked_by_keyboard(page, run):
    focused = "() => document.activeElement.id || document.activeElement.dataset.code"
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate(focused) == "search"
    page.keyboard.type("node 14")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert page.inner_text("#status").startswith("node 140 ·")
    assert page.evaluate(focused) == "search"
    stops = []
    for _ in range(40):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(focused))
        if stops[-1] == "0":
            break
    assert "reset" in stops
    page.keyboard.press("Space")  # the first cluster of the legend
    assert [trace["size"] for trace in traces(page)] == [int(np.sum(run.nodes.labels == 0))]
    assert page.evaluate(focused) == "0"
    page.keyboard.press("Escape")
    assert len(traces(page)) == 3
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('main button, main input, main select')]"
        ".filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).length"
    )
    assert unnamed == 0


def background(page):
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def test_light_and_dark_by_wish_and_by_button(page):
    light = background(page)
    page.emulate_media(color_scheme="dark")
    settle(page)
    dark = background(page)
    assert light == "rgb(255, 255, 255)" != dark
    font = page.evaluate("() => document.getElementById('scatter').layout.font.color")
    assert font == "rgb(230, 233, 238)"
    assert page.inner_text("#theme") == "Light"
    page.click("#theme")
    assert background(page) == light
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert background(page) == dark
    page.click("#theme")


def test_print_is_light_and_without_controls(page):
    page.click("#theme")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000  # the picture is in it
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert not page.is_visible("#finder")
    page.emulate_media(media="screen")
    page.click("#theme")
    assert page.evaluate("() => document.getElementById('scatter').layout.width") != 660


def test_an_embedding_alone_has_a_page_too(browser, tmp_path):
    graph = datasets.make_block_model(120, 3, random_state=0).graph
    result = embed(graph, Settings(n_components=3, solver="eigen", seed=0))
    run = gather_run(graph, result, summary_of(result, graph, command="embed"), drop_first=True)
    write_run_page(tmp_path / "page.html", run_document(run))
    page = opened(browser, tmp_path / "page.html", color_scheme="dark")
    assert page.complaints == []
    assert sum(trace["size"] for trace in traces(page)) == 120
    assert page.locator("[data-space=yes]").is_disabled()
    assert any(is_coloured(colour) for colour in colours(page))
    assert not page.is_visible("#convergence")
    page.close()


def test_a_drawing_has_its_edges_and_tables_sort(browser, tmp_path):
    data = datasets.make_block_model(100, 2, random_state=0)
    result = cluster(data.graph, Settings(n_components=2, seed=0))
    path = tmp_path / "page.html"
    write_run_page(path, run_document(gather_run(data.graph, result, summary_of(result, data.graph))))
    page = opened(browser, path)
    for axis in ("x", "y"):
        page.select_option(f"#axis-{axis}", label=f"layout {'xy'.index(axis) + 1}")
    page.wait_for_function("document.getElementById('scatter').data[0].mode === 'lines'")
    assert page.evaluate("document.getElementById('scatter').data[0].x.length") == 3 * data.graph.n_edges
    page.select_option("#colour", label="confidence in the label")
    heading = page.locator("#uncertain th").nth(2)
    cells = page.locator("#uncertain tbody tr td:nth-child(3)")
    heading.locator("button").click()
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    shown = [float(text) for text in cells.all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    assert page.complaints == []
    page.close()
