"""A Sphinx extension: docstrings in the library's Markdown become what Sphinx reads.

Of agents the options are left to their configuration, whose fields get an entry each, with type,
default and meaning.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.ext import napoleon
from sphinx.ext.napoleon.docstring import GoogleDocstring

from sharpwave.agents import Agent
from sharpwave.config.config import Config
from tools.site import markup, reference

SECTIONS = napoleon.Config(napoleon_use_ivar=True, napoleon_use_rtype=False)


def setup(app: Any) -> dict[str, bool]:
    """Take part in reading docstrings and signatures."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    text = lines
    if inspect.isclass(value) and issubclass(value, Agent):
        text = _without_options(lines)
    found = markup.restructured(text, reference.documented())
    if kind not in ("attribute", "property", "data"):  # whose colons begin no section
        sections = GoogleDocstring(found, SECTIONS, app, kind, name, value, options)
        found = str(sections).splitlines()
    lines[:] = found
    if inspect.isclass(value) and issubclass(value, Config):
        lines += ["", *option_entries(value)]


def _shorten(
    _app: Any, _kind: str, _name: str, value: Any, _options: Any, signature: str | None, result: str
) -> tuple[str | None, str] | None:
    """The signature of agents and configurations without their many options."""
    if not inspect.isclass(value):
        return None
    if issubclass(value, Config):
        return "(**options)", result
    if issubclass(value, Agent) and signature:
        leading = [
            parameter
            for parameter in inspect.signature(value).parameters.values()
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        return f"({', '.join([*map(str, leading), '**options'])})", result
    return None


def _without_options(lines: list[str]) -> list[str]:
    if "Options:" not in lines:
        return lines
    start = lines.index("Options:")
    return [*lines[:start], "The options have their entries below, under the configuration.", ""]


def option_entries(config: type[Config]) -> Iterator[str]:
    """An entry for each option: its type, its default and its meaning."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    for name, meaning in config.field_help().items():
        field = fields[name]
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        yield f".. py:attribute:: {name}"
        yield f"   :type: {type_text(config.annotations()[name])}"
        if default is not dataclasses.MISSING:
            yield f"   :value: {default!r}"
        yield ""
        yield from (
            f"   {line}"
            for line in markup.restructured(meaning.splitlines(), reference.documented())
        )
        yield ""


def type_text(annotation: Any) -> str:
    """An annotation as it is written, without the modules of its names."""
    if isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        return annotation.__name__
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", str(annotation))
