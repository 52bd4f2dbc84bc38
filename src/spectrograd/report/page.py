"""Pages as single HTML files that need no network: solvers compared, or a run.

Every text is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from spectrograd.io.write_graph import write_whole_text
from spectrograd.report.document import share_words
from spectrograd.report.run import to_json
from spectrograd.typing import JsonMapping


def asset(name: str) -> str:
    """The text of a file that comes with the package: style or script."""
    return files("spectrograd.report").joinpath("assets", name).read_text(encoding="utf-8")


def write_page(path: str | os.PathLike[str], document: JsonMapping) -> None:
    """Render a document and save it."""
    write_whole_text(path, render(document))


def render(document: JsonMapping) -> str:
    """Turn a document into HTML.

    Parameters
    ----------
    document
        As made by :func:`spectrograd.report.compare_page.compare_document`: ``title``, ``lead``, ``advice``
        and whether it is ``good``, ``pictures`` (SVG), their ``legend``, ``tables``, ``facts``, ``command``.
    """
    tables = "\n".join(render_table(table, sortable=True) for table in document["tables"])
    title = escape(document["title"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{asset("page.css")}{asset("compare.css")}</style>
</head>
<body>
<h1>{title}</h1>
<p class="lead">{escape(document["lead"])}</p>
<p class="certificate{"" if document["good"] else " bad"}">{escape(document["advice"])}</p>
<div class="pictures">{"".join(document["pictures"])}</div>
{_legend(document["legend"])}
{tables}
<h2>Repeat it</h2>
<pre>{escape(document["command"])}</pre>
{render_facts(document["facts"])}
<script>{asset("sorting.js")}{asset("compare.js")}</script>
</body>
</html>
"""


def _legend(curves: Sequence[Sequence[str]]) -> str:
    items = "".join(
        f'<li><button type="button" data-curve="{rank}" aria-pressed="false">'
        f'<span style="border-top: 3px {dashes} {colour}"></span>{escape(name)}</button></li>'
        for rank, (name, colour, dashes) in enumerate(curves)
    )
    return f'<ul class="legend" aria-label="Solvers: click to see one alone">{items}</ul>'


def render_facts(facts: Sequence[Sequence[str]]) -> str:
    """Names and values, one line each."""
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{pairs}</dl>"


def render_table(table: JsonMapping, *, sortable: bool = False) -> str:
    """A table with ``caption``, ``columns`` and ``rows`` of texts; a heading stands as its first cell."""
    first = table["rows"][0] if table["rows"] else table["columns"]
    head = "".join(
        _heading(column, cell, sortable) for column, cell in zip(table["columns"], first, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table["rows"])
    return (
        f'<div class="scroll"><table>\n<caption>{escape(table["caption"])}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _heading(column: str, cell: str, sortable: bool) -> str:
    kind = "" if _is_number(cell) else ' class="text"'
    text = escape(column)
    return f'<th scope="col"{kind}>{_sort_button(text) if sortable else text}</th>'


def _sort_button(text: str) -> str:
    return f'<button type="button" class="sort">{text}</button>'


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text == "–"


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>" if _is_number(text) else f'<td class="text">{escape(text)}</td>'


# --- Dict -> page of a run: one HTML file with plotly.js in it, no network. Every text is escaped.

SCRIPTS = ("points.js", "charts.js", "scatter.js", "sorting.js", "page.js")
DRAWN = ("points", "spectrum", "curves", "command")
# The page may compute (WebGL shaders are compiled from strings) but not reach for anything outside.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; worker-src blob:"
)
MISSING = "the report page needs plotly: pip install 'spectrograd[report]'"


def plotly_source() -> str:
    """The JavaScript of plotly, as the Python package carries it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError(MISSING) from None
    return str(get_plotlyjs())


def write_run_page(path: str | os.PathLike[str], document: JsonMapping) -> None:
    """Render a document of :func:`spectrograd.report.document.run_document` and save it."""
    write_whole_text(path, render_run(document, plotly_source()))


def render_run(document: JsonMapping, plotly: str) -> str:
    """Turn a document into HTML around the source of plotly.js."""
    title = escape(document["title"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{asset("page.css")}{asset("run.css")}</style>
</head>
<body>
<a class="skip" href="#embedding">Skip to the picture</a>
<header>
<div><h1>{title}</h1><p class="lead">{escape(document["lead"])}</p></div>
<button type="button" id="theme">Dark</button>
</header>
<main>
{_certificate(document["certificate"])}
{_cluster_verdict(document["cluster_verdict"])}
{_treatment(document["treatment"])}
{_embedding(document)}
{_clusters(document["clusters"])}
{_uncertain(document["uncertain"])}
{_charts(document["words"])}
{_truth(document)}
{_agreement(document["agreement"])}
{_methods(document["methods"])}
{_repeat(document)}
</main>
<script>{_inline_script(plotly)}</script>
<script type="application/json" id="report-data">{inline_json({key: document[key] for key in DRAWN})}</script>
<script>"use strict"; (() => {{
{_inline_script("".join(map(asset, SCRIPTS)))}
}})();</script>
</body>
</html>
"""


def inline_json(values: JsonMapping) -> str:
    """JSON in which no text can end the script element around it."""
    return to_json(values, indent=None).replace("<", "\\u003c")


def _inline_script(source: str) -> str:
    """JavaScript in which no text can end the script element around it; inside strings it means the same."""
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _certificate(certificate: JsonMapping) -> str:
    verdict, *details = certificate["words"]
    exact = "<br>".join(map(escape, certificate["exact"]))
    return (
        f'<section class="certificate{"" if certificate["converged"] else " bad"}" id="certificate">\n'
        f'<h2>Can the eigenvectors be trusted?</h2>\n<p class="verdict">{escape(verdict)}</p>\n'
        f"<p>{escape(' '.join(details))}</p>\n"
        f'<p class="exact">Certificate: {exact}</p>\n</section>'
    )


def _treatment(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    texts = "\n".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    heading = "<h2>What was done to the graph</h2>"
    return f'<section class="treatment" id="treatment">\n{heading}\n{texts}\n</section>'


def _cluster_verdict(judged: JsonMapping | None) -> str:
    if judged is None:
        return ""
    return (
        f'<section class="certificate{"" if judged["good"] else " bad"}" id="cluster-verdict">\n'
        f'<h2>Are the clusters more than chance?</h2>\n<p class="verdict">{escape(judged["words"][0])}</p>\n'
        f"<p>{escape(' '.join(judged['words'][1:]))}</p>\n"
        f'<p class="exact">{escape(judged["exact"])}</p>\n</section>'
    )


def _embedding(document: JsonMapping) -> str:
    selects = "\n".join(
        f'<label>{axis} axis<select id="axis-{axis}"></select></label>' for axis in ("x", "y", "z")
    )
    notes = " ".join(filter(None, (document["points"]["view"], document["note"])))
    return f"""<section id="embedding">
<h2>Embedding</h2>
<form class="controls" id="finder" role="search" autocomplete="off">
<fieldset><legend>Dimensions</legend>
<button type="button" data-space="no">2-D</button><button type="button" data-space="yes">3-D</button>
</fieldset>
{selects}
<label>colour by<select id="colour"></select></label>
<div class="search"><label>find a node ( / )<input type="search" id="search" placeholder="its name"
aria-controls="matches"></label><ul id="matches" aria-label="Nodes found"></ul></div>
<button type="button" id="reset" disabled>Show all</button>
</form>
<div class="stage" id="stage">
<div id="scatter" role="img" aria-label="Scatter of the nodes"></div>
<aside id="legend" aria-label="Groups"></aside>
</div>
<p id="status" role="status"></p>
<p class="note">{escape(notes)}</p>
<noscript><p class="note">The pictures need JavaScript; the tables do not.</p></noscript>
</section>"""


def _clusters(clusters: JsonMapping | None) -> str:
    if clusters is None:
        return ""
    several = len(clusters["layers"]) > 1
    titles = [f"conductance, {name}" if several else "conductance" for name in clusters["layers"]]
    head = "".join(
        f'<th scope="col">{escape(title)}</th>' for title in ("cluster", "nodes", "share", *titles)
    )
    rows = "\n".join(map(_cluster_row, clusters["rows"]))
    hidden = f" {clusters['n_hidden']:,} smaller clusters are not listed." if clusters["n_hidden"] else ""
    return f"""<section id="clusters">
<h2>Clusters</h2>
<div class="scroll"><table>
<thead><tr>{head}<th scope="col" class="text">some members</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
<p class="note">Conductance is the share of a cluster's edges that leave it: 0 is a component of its own.
<span class="screen">Click a cluster to see it alone.</span>{hidden}</p>
</section>"""


def _cluster_row(row: JsonMapping) -> str:
    name = escape(row["name"])
    figures = "".join(f"<td>{share_words(value)}{_bar(value)}</td>" for value in row["conductance"])
    return (
        f'<tr><td><button type="button" class="pick" data-cluster="{row["code"]}" aria-pressed="false" '
        f'aria-label="Show only cluster {name}"><span class="swatch"></span>{name}</button></td>'
        f"<td>{row['size']:,}</td><td>{row['share']:.1%}{_bar(row['share'])}</td>{figures}"
        f'<td class="text members">{escape(row["members"])}</td></tr>'
    )


def _bar(share: float | None) -> str:
    return f'<span class="bar" aria-hidden="true"><i style="--share:{share or 0:.4f}"></i></span>'


def _uncertain(nodes: Sequence[JsonMapping] | None) -> str:
    if not nodes:
        return ""
    rows = "\n".join(
        f'<tr><td class="text">{escape(node["node"])}</td><td>{node["cluster"]}</td>'
        f"<td>{node['confidence']:.2f}{_bar(node['confidence'])}</td></tr>"
        for node in nodes
    )
    head = "".join(
        f'<th scope="col"{kind}>{_sort_button(title)}</th>'
        for title, kind in (("node", ' class="text"'), ("cluster", ""), ("confidence", ""))
    )
    return f"""<section id="uncertain">
<h2>The least certain nodes</h2>
<div class="scroll"><table><thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
<p class="note">Confidence is how much nearer the centre of its cluster is than the next: 0 is half-way
between two. <span class="screen">Click a heading to sort by it.</span></p>
</section>"""


def _charts(words: JsonMapping) -> str:
    return f"""<div class="pair">
<section><h2>Eigenvalues and the eigengap</h2>
<div class="chart" id="spectrum" role="img" aria-label="{escape(words["spectrum"])}"></div>
<p class="note">{escape(words["spectrum"])}</p></section>
<section><h2>Convergence</h2>
<div class="chart" id="convergence" role="img" aria-label="{escape(words["curves"])}"></div>
<p class="note">{escape(words["curves"])}</p></section>
</div>"""


def _truth(document: JsonMapping) -> str:
    scores = document["scores"]
    confusion = document["confusion"]
    if scores is None or confusion is None:
        return ""
    sums = [max(1, sum(row)) for row in confusion["values"]]
    cells = [
        [(f"{count:,}", count / total) for count in row]
        for row, total in zip(confusion["values"], sums, strict=True)
    ]
    clusters = [f"cluster {name}" for name in confusion["clusters"]]
    table = _heat(
        "Nodes of each class in each cluster; shade is the share of the cluster",
        [f"class {name}" for name in confusion["classes"]],
        clusters,
        cells,
    )
    return (
        f'<section id="truth"><h2>Against the known classes</h2>\n{render_table(scores)}\n{table}</section>'
    )


def _agreement(agreement: JsonMapping | None) -> str:
    if agreement is None:
        return ""
    names = agreement["names"]
    cells = [[(f"{value:.2f}", value) for value in row] for row in agreement["values"]]
    table = _heat("Overlap of the subspaces: 0 is chance, 1 the same", names, names, cells)
    return f'<section id="agreement"><h2>How the layers agree</h2>\n{table}</section>'


def _methods(methods: JsonMapping | None) -> str:
    if methods is None:
        return ""
    meanings = render_facts(list(methods["meanings"].items()))
    return (
        f'<section id="methods"><h2>The methods compared</h2>\n{render_table(methods["table"])}\n'
        f"{meanings}</section>"
    )


def _heat(
    caption: str, columns: Sequence[str], rows: Sequence[str], cells: Sequence[Sequence[tuple[str, float]]]
) -> str:
    """A table whose cells are shaded by their share."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f'<td style="--share:{share:.3f}">{text}</td>' for text, share in row)
        + "</tr>"
        for name, row in zip(rows, cells, strict=True)
    )
    return (
        f'<div class="scroll"><table class="heat">\n<caption>{escape(caption)}</caption>\n'
        f"<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _repeat(document: JsonMapping) -> str:
    return f"""<section id="repeat"><h2>Repeat it</h2>
<div class="repeat"><pre tabindex="0">{escape(document["command"])}</pre>
<button type="button" id="copy">Copy</button></div>
{render_facts(document["facts"])}
</section>"""
