"""Named options in YAML, TOML and JSON files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path, language: str | None = None) -> dict[str, Any]:
    """The options in a file.

    Args:
        path: The file.
        language: yaml, toml or json; None goes by the suffix.

    Raises:
        ValueError: The suffix is unknown, the text is malformed, or it does not hold options.
        OSError: The file cannot be read.
    """
    reader = _READERS.get(f".{language}" if language else path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path} must end in one of {', '.join(_READERS)}, got {path.suffix!r}")
    options = reader(path)
    if options is None:
        return {}
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise ValueError(f"{path} must hold named options, got {type(options).__name__}")
    return options


def write_yaml(path: Path, options: Mapping[str, Any]) -> None:
    """Write options as YAML."""
    import yaml

    text = yaml.safe_dump(dict(options), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def write_toml(path: Path, options: Mapping[str, Any]) -> None:
    """Write options as TOML; None, which TOML does not have, as the text `none`."""
    lines = [f"{_toml_key(name)} = {_toml_value(value)}\n" for name, value in options.items()]
    path.write_text("".join(lines), encoding="utf-8")


def _read_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def _read_toml(path: Path) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, str):
        # A TOML string is a JSON string in UTF-8, but for the escape of DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (f"{_toml_key(name)} = {_toml_value(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)


_READERS = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".toml": _read_toml,
    ".json": _read_json,
}
