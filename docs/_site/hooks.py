"""Small steps of the site's build: navigation, version, roles, formulas, search from the file system."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mathematics import with_mathml

FETCHED = re.compile(r'<script src="https://[^"]*iframe-worker/shim"></script>')


def on_config(config: Any) -> Any:
    """Fill in what the package says of itself, and the pages that stars of the navigation stand for."""
    docs = Path(config["docs_dir"])
    project = tomllib.loads((docs.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config["copyright"] = f"spectrograd {project['version']}, {project['license']} license"
    config["repo_url"] = project.get("urls", {}).get("Repository", "")  # the link at the top, if there is one
    placed = {page for page in _pages(config["nav"]) if "*" not in page}
    config["nav"] = [_expanded(entry, docs, placed) for entry in config["nav"]]
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Show ``:class:`Graph` `` as its name only, and formulas as MathML."""
    return with_mathml(re.sub(r":(?:class|meth|func|attr|mod):(?=<code>)", "", html))


def on_post_page(output: str, **_: Any) -> str:
    """Put our own frame in place of the script that the search would fetch from elsewhere."""
    ours = (Path(__file__).parent / "file_worker.js").read_text(encoding="utf-8")
    return FETCHED.sub(lambda _: f"<script>{ours}</script>", output)


on_post_template = on_post_page  # the page for addresses that are not there


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in _pages(child)]


def _expanded(entry: Any, docs: Path, placed: set[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _listed(pages, docs, placed) for title, pages in entry.items()}
    return entry


def _listed(pages: Any, docs: Path, placed: set[str]) -> list[Any]:
    found: list[Any] = []
    for page in pages:
        if isinstance(page, dict):
            found.append(_expanded(page, docs, placed))
            continue
        names = (
            sorted(path.relative_to(docs).as_posix() for path in docs.glob(page)) if "*" in page else [page]
        )
        found.extend(name for name in names if "*" not in page or name not in placed)
    return found
