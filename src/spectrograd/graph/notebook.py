"""What notebooks show of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """A small HTML table of names and values; every text is escaped.

    Examples
    --------
    >>> facts_table("Graph", {"nodes": "<3"})
    '<table><caption>Graph</caption><tr><th scope="row">nodes</th><td>&lt;3</td></tr></table>'
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
