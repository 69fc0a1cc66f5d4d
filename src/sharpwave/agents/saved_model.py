"""The model of a language agent in its checkpoints: how it gets there, and out of them again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.core.lazy import llm
from sharpwave.storage.checkpoints import CheckpointReader
from sharpwave.storage.files import reading
from sharpwave.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from sharpwave.llm import CausalModel

__all__ = ["check_same", "header_of", "load_run", "rebuilt"]

WEIGHTS = "state.learner.networks.model."
FILES = "state.tokenizer."
MOST = 4
"""Differences that are told."""


def header_of(model: CausalModel, reference: CausalModel | None, tokenizer: Any) -> dict[str, Any]:
    """Header of a checkpoint: descriptions of a model, a separate reference and a tokenizer."""
    return {
        "model": llm.describe_model(model),
        "reference": None if reference is None else llm.describe_model(reference),
        "tokenizer": llm.describe_tokenizer(tokenizer),
    }


def rebuilt(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    arguments: dict[str, Any],
    device: str | None,
) -> dict[str, Any]:
    """Arguments with the model, the reference and the tokenizer of a checkpoint, if not given.

    Args:
        path: The checkpoint.
        header: Its header.
        arguments: Those that were given.
        device: Device of the models; None for that of models from files.

    Raises:
        TypeError: One of them cannot be made of data: it must be given.
    """
    made = dict(arguments)
    if made.get("model") is None:
        if header.get("model") is None:
            raise TypeError(f"model must be given: {path} does not say how it was made")
        made["model"] = _built(header["model"], device)
    if header.get("reference") is not None and made.get("ref_model") is None:
        made["ref_model"] = _built(header["reference"], device)
    if header.get("tokenizer") is not None and made.get("tokenizer") is None:
        with CheckpointReader(path) as checkpoint:
            made["tokenizer"] = _tokenizer(checkpoint)
    return made


def check_same(own: dict[str, Any], header: dict[str, Any]) -> None:
    """Raise where a checkpoint has another model, reference or tokenizer than an agent.

    Args:
        own: `header_of` the agent.
        header: That of the checkpoint, which may be of a version that did not say.

    Raises:
        ValueError: With the differences.
    """
    for name in ("model", "reference", "tokenizer"):
        if name not in header or (name == "reference" and None in (header[name], own[name])):
            continue
        differences = llm.tokenizer_differences if name == "tokenizer" else llm.model_differences
        found = list(differences(header[name], own[name]))
        if found:
            raise ValueError(f"its {name} {', '.join(found[:MOST])}")


def load_run(path: str | os.PathLike[str], device: str | None = None) -> CausalModel:
    """The language model that a run trained, with its tokenizer.

    Args:
        path: A run folder, of which it is the best checkpoint if there are evaluations and the
            latest otherwise; or a checkpoint.
        device: Device of the model; None takes a GPU that torch has for a large one.

    Raises:
        SharpwaveIOError: There is no checkpoint.
        TypeError: Its model is a module of a user's own, which no file can make.
        ValueError: It holds no language model.

    Example:
        >>> agent = sw.SFT(sw.nn.Transformer(vocab_size=14), tokenizer=sw.llm.DigitTokenizer())
        >>> agent.save("sft.safetensors")
        >>> load_run("sft.safetensors").vocab_size
        14
    """
    found = RunFolder(path).kept_checkpoint if Path(path).is_dir() else Path(path)
    with CheckpointReader(found) as checkpoint:
        if checkpoint.header.get("model") is None:
            algorithm = checkpoint.header.get("algorithm")
            raise ValueError(f"{found} holds {algorithm!r:.40} without a language model")
        module = _built(checkpoint.header["model"], device).eval()
        with reading(found):
            for name, weights in module.state_dict().items():
                checkpoint.copy_to(f"{WEIGHTS}{name}", weights)
        tokenizer = _tokenizer(checkpoint)
    return llm.CausalModel.of(module, tokenizer)


def _built(described: dict[str, Any], device: str | None) -> Any:
    module = llm.build_model(described)
    if device is None:
        return llm.placed(module)
    from sharpwave.learners.devices import find_device  # without it, none of Gymnasium

    return module.to(find_device(device))


def _tokenizer(checkpoint: CheckpointReader) -> Any:
    files: dict[str, Any] = {
        name.removeprefix(FILES): checkpoint.read(name)
        for name in checkpoint.names
        if name.startswith(FILES)
    }
    return llm.build_tokenizer(checkpoint.header["tokenizer"], files)
