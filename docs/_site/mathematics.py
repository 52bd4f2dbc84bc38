"""LaTeX in pages as MathML, which browsers draw by themselves: nothing is fetched to read a formula."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def _converter() -> Callable[..., str] | None:
    """The converter of latex2mathml, None where it is not installed."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        return None
    found: Callable[..., str] = convert
    return found


def with_mathml(page: str) -> str:
    """The page with each formula as MathML; without latex2mathml its LaTeX stands there as code."""
    convert = _converter()

    def formula(display: str) -> Callable[[re.Match[str]], str]:
        def replaced(match: re.Match[str]) -> str:
            latex = html.unescape(match[1]).strip()
            if convert is None:
                return f"<code>{html.escape(latex)}</code>"
            drawn = convert(latex, display=display)
            return f'<div class="formula">{drawn}</div>' if display == "block" else drawn

        return replaced

    return INLINE.sub(formula("inline"), DISPLAY.sub(formula("block"), page))
