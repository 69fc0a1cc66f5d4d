"""Tokenizers in checkpoints: their files, and a description that identifies them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.optional import require
from sharpwave.llm.tasks import DigitTokenizer

__all__ = [
    "build_tokenizer",
    "describe_tokenizer",
    "is_hugging_face_tokenizer",
    "tokenizer_differences",
    "tokenizer_files",
]

Bytes = npt.NDArray[np.uint8]

PROBE = "Of 12 + 34 = 46 words,\n    naïve “quotes” aren't UPPERCASE... 東京 🙂"
"""Text that tokenizers with the same tokens but other rules would split differently."""


def is_hugging_face_tokenizer(tokenizer: Any) -> bool:
    """Return whether a tokenizer writes itself to files that transformers opens."""
    return hasattr(tokenizer, "save_pretrained") and hasattr(tokenizer, "get_vocab")


def describe_tokenizer(tokenizer: Any) -> dict[str, Any] | None:
    """A description that identifies a tokenizer, as JSON values; None for none."""
    if tokenizer is None:
        return None
    if isinstance(tokenizer, DigitTokenizer):
        return {"kind": "digits"}
    if not is_hugging_face_tokenizer(tokenizer):
        return {"kind": "object", "class": type(tokenizer).__qualname__}
    tokens = tokenizer.get_vocab()
    return {
        "kind": "hugging_face",
        "number of tokens": len(tokens),
        "vocabulary": _hash(tokens),
        "token of the end": tokenizer.eos_token_id,
        "rules": _hash(tokenizer.encode(PROBE)),
        "chat template": _hash(tokenizer.chat_template),
    }


def tokenizer_files(tokenizer: Any) -> dict[str, Bytes]:
    """The files of a tokenizer by name; none of one that is not written to files."""
    if not is_hugging_face_tokenizer(tokenizer):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {
            path.relative_to(folder).as_posix(): np.frombuffer(path.read_bytes(), np.uint8)
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }


def build_tokenizer(described: Mapping[str, Any] | None, files: Mapping[str, Bytes]) -> Any:
    """The tokenizer that was described, from its files; no code of a file is run.

    Raises:
        TypeError: It was an object of a user's own.
        ValueError: The description is none, or a file has a name that leads elsewhere.
    """
    kind = None if described is None else described.get("kind")
    if described is None:
        return None
    if kind == "digits":
        return DigitTokenizer()
    if kind == "object":
        raise TypeError(
            f"tokenizer must be given: {described['class']!s:.80} is not one that transformers "
            "makes of files"
        )
    if kind != "hugging_face":
        raise ValueError(f"tokenizer must be described by its kind, got {kind!r:.40}")
    transformers = require("transformers", extra="llm")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            if Path(folder).resolve() not in path.resolve().parents:
                raise ValueError(f"files of a tokenizer must lie in its folder, got {name!r:.80}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.tobytes())
        return transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )


def tokenizer_differences(
    saved: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> Iterator[str]:
    """Differences between the descriptions of two tokenizers."""
    if saved is None or own is None or saved["kind"] != own["kind"]:
        if saved != own:
            yield f"is {_name(saved)}, not {_name(own)}"
        return
    for name in saved:
        if saved[name] != own.get(name):
            is_hash = isinstance(saved[name], str) and saved["kind"] == "hugging_face"
            both = "" if is_hash else f" {saved[name]!r:.80}, not {own.get(name)!r:.80}"
            yield f"has another {name}{both and ':'}{both}"
            return  # those after it follow from it


def _name(described: Mapping[str, Any] | None) -> str:
    if described is None:
        return "none"
    names = {"digits": "DigitTokenizer", "hugging_face": "one of transformers"}
    return str(names.get(described["kind"]) or described.get("class"))


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
