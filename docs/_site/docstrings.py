"""Docstrings of the estimators as ``help`` shows them: their shared parameters are put in at import."""

from __future__ import annotations

import inspect
from typing import Any

import griffe

from spectrograd import estimators


class ImportedDocstrings(griffe.Extension):
    """Takes the text of a class with ``{parameters}`` in its docstring from the imported class."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstring."""
        if cls.docstring is not None and "{parameters}" in cls.docstring.value:
            cls.docstring.value = inspect.getdoc(getattr(estimators, cls.name)) or ""
