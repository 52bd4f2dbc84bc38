"""Dict -> page: one HTML file that needs nothing beside it. Every text is escaped."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from spectrograd.io.write.output import write_whole_text


def asset(name: str) -> str:
    """The text of a file that comes with the package: style or script."""
    return files("spectrograd.report").joinpath("assets", name).read_text(encoding="utf-8")


def write_page(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Render a document and save it."""
    write_whole_text(path, render(document))


def render(document: Mapping[str, Any]) -> str:
    """Turn a document into HTML.

    Parameters
    ----------
    document
        As made by :mod:`spectrograd.report.document`: ``title``, ``lead``, ``picture`` (a data URI),
        ``alt``, ``tables``, ``certificate``, ``facts`` and ``command``.
    """
    tables = "\n".join(map(render_table, document["tables"]))
    title = escape(document["title"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{asset("page.css")}</style>
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
{render_facts(document["facts"])}
</body>
</html>
"""


def render_facts(facts: Sequence[Sequence[str]]) -> str:
    """Names and values, one line each."""
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{pairs}</dl>"


def render_table(table: Mapping[str, Any]) -> str:
    """A table with ``caption``, ``columns`` and ``rows`` of texts."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table["columns"])
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table["rows"])
    return (
        f'<div class="scroll"><table>\n<caption>{escape(table["caption"])}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cell(text: str) -> str:
    is_number = text[:1].isdigit() or text == "–"
    return f"<td>{escape(text)}</td>" if is_number else f'<td class="text">{escape(text)}</td>'
