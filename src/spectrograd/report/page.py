"""Dict -> page: one HTML file that needs nothing beside it. Every text is escaped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6675; --line: #dfe3e8;
        --back: #fff; --good: #0b6b4f }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333b47; --back: #14181f; --good: #5fd3ae }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 68rem; margin: 2.5rem auto; padding: 0 1.25rem }
h1 { font-size: 1.7rem; margin: 0 0 .25rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.lead, dt { color: var(--soft) }
img { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 8px; background: #fff }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: 1.5rem 0 .4rem }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: right }
th:first-child, td:first-child, td.text { text-align: left }
tbody tr:hover { background: color-mix(in srgb, var(--line) 45%, transparent) }
.certificate { border-left: 4px solid var(--good); padding: .4rem 1rem }
pre { background: color-mix(in srgb, var(--line) 45%, transparent); padding: .7rem 1rem; border-radius: 6px;
      overflow-x: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem } dd { margin: 0 }
""".strip()


def write_page(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Render a document and save it."""
    Path(path).write_text(render(document), encoding="utf-8")


def render(document: Mapping[str, Any]) -> str:
    """Turn a document into HTML.

    Parameters
    ----------
    document
        As made by :mod:`spectrograd.report.document`: ``title``, ``lead``, ``picture`` (a data URI),
        ``alt``, ``tables``, ``certificate``, ``facts`` and ``command``.
    """
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in document["facts"])
    tables = "\n".join(map(_table, document["tables"]))
    title = escape(document["title"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p class="lead">{escape(document["lead"])}</p>
<img src="{escape(document["picture"])}" alt="{escape(document["alt"])}">
{tables}
<h2>Certificate</h2>
<p class="certificate">{escape(document["certificate"])}</p>
<h2>Repeat it</h2>
<pre>{escape(document["command"])}</pre>
<dl>{facts}</dl>
</body>
</html>
"""


def _table(table: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table["columns"])
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table["rows"])
    return (
        f'<div class="scroll"><table>\n<caption>{escape(table["caption"])}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cell(text: str) -> str:
    is_number = text[:1].isdigit() or text == "–"
    return f"<td>{escape(text)}</td>" if is_number else f'<td class="text">{escape(text)}</td>'
