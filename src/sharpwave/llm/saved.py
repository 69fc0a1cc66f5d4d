"""Descriptions that rebuild a language model without code from a file: data beside the weights."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sharpwave.core.notice import notice
from sharpwave.core.optional import require
from sharpwave.llm.model import CausalModel, HuggingFaceModel
from sharpwave.llm.saved_tokenizer import is_hugging_face_tokenizer
from sharpwave.nn.transformer import Transformer

__all__ = [
    "build_model",
    "class_name",
    "describe_model",
    "model_differences",
    "placed",
    "save_pretrained",
]

ATTENTION = ("eager", "sdpa")
"""Implementations of attention that every machine has; others are chosen by the user."""

BESIDE = {
    "_name_or_path",
    "architectures",
    "auto_mapping",
    "base_model_name_or_path",
    "dtype",
    "id2label",
    "inference_mode",
    "init_lora_weights",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "peft_version",
    "return_dict",
    "revision",
    "seed",
    "task_type",
    "transformers_version",
    "use_cache",
}
"""Keys that may differ between descriptions of models that take the same weights."""


def describe_model(model: CausalModel) -> dict[str, Any]:
    """A model as JSON values, by which `build_model` makes one like it, with other weights.

    Of a module of a user's own only its name is known.
    """
    module: Any = model.module
    if isinstance(module, Transformer):
        return {"kind": "transformer", "arguments": dict(module.arguments), **_state(module)}
    if not isinstance(model, HuggingFaceModel):
        return {"kind": "module", "class": class_name(module)}
    inner, adapters = _base(module), getattr(module, "peft_config", {})
    generation = getattr(inner, "generation_config", None)
    return {
        "kind": "hugging_face",
        "architecture": class_name(inner),
        "config": json.loads(inner.config.to_json_string(use_diff=False)),
        "generation": None if generation is None else json.loads(generation.to_json_string()),
        "dtype": str(inner.dtype).removeprefix("torch."),
        "attention": inner.config._attn_implementation,
        "adapters": {name: _plain(one.to_dict()) for name, one in adapters.items()},
        "active": getattr(module, "active_adapter", None) if adapters else None,
        # What an adapter leaves to learn follows from its options.
        **({"training": module.training, "frozen": []} if adapters else _state(module)),
    }


def class_name(module: nn.Module) -> str:
    """The name of a model's class, which sharding derives one of its own from."""
    names = (kind.__name__ for kind in type(module).__mro__)
    return next(name for name in names if not name.startswith("FSDP"))


def build_model(described: Mapping[str, Any]) -> nn.Module:
    """A model by its description, with first weights.

    Code comes from this library, transformers and PEFT alone.

    Raises:
        TypeError: It was a module of a user's own.
        ValueError: The description is none.
    """
    kind = described.get("kind")
    if kind == "transformer":
        module: nn.Module = Transformer(**described["arguments"])
    elif kind == "hugging_face":
        # Weights are drawn to be replaced: nobody else's draws change for that.
        with torch.random.fork_rng():
            module = _hugging_face(described)
    elif kind == "module":
        raise _not_ours(described["class"])
    else:
        raise ValueError(f"model must be described by its kind, got {kind!r:.40}")
    for name, parameter in module.named_parameters():
        if name in described["frozen"]:
            parameter.requires_grad_(False)
    return module.train(described["training"])


def placed(module: nn.Module) -> nn.Module:
    """A model that comes from a file, on a GPU if torch has one.

    `nn.Transformer` is small, gains nothing there, and stays on the CPU.
    """
    gains = torch.cuda.is_available() and not isinstance(module, Transformer)
    return module.to("cuda") if gains else module


def model_differences(saved: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Differences between two descriptions by which models do not take the same weights.

    What one of them does not say, as one of another version of transformers may not, differs in
    nothing.
    """
    names = [_name(one) for one in (saved, own)]
    if names[0] != names[1]:
        yield f"is {names[0]}, not {names[1]}"
        return
    for part in ("arguments", "config"):
        yield from _differences(saved.get(part, {}), own.get(part, {}))
    adapters, others = saved.get("adapters", {}), own.get("adapters", {})
    if adapters.keys() != others.keys():
        has, not_ours = (", ".join(one) or "none" for one in (adapters, others))
        yield f"has the adapters {has}, not {not_ours}"
        return
    for name in adapters:
        for difference in _differences(adapters[name], others[name]):
            yield f"has an adapter {name} that {difference}"


def save_pretrained(
    model: CausalModel, folder: str | os.PathLike[str], *, merge: bool = True
) -> None:
    """Write a model in the form that `AutoModelForCausalLM.from_pretrained` opens.

    The tokenizer is written beside it, where it is one of Hugging Face.

    Args:
        model: A causal model of Hugging Face, with an adapter or without.
        folder: Target folder.
        merge: Write one model with its adapter in it; False writes the adapter alone, which needs
            the model that it was put on.

    Raises:
        TypeError: The model is another module.
        ValueError: The adapter is to be alone, and its model was not loaded from anywhere.
    """
    module: Any = model.module
    if not isinstance(model, HuggingFaceModel):
        raise TypeError(
            "save_pretrained writes causal models of Hugging Face, got "
            f"{type(module).__name__}: save writes a checkpoint of any model"
        )
    folder = Path(folder)
    if hasattr(module, "peft_config"):
        if merge:
            module = copy.deepcopy(module).merge_and_unload()
        elif not _base(module).config._name_or_path:
            raise ValueError(
                "merge must be true for an adapter of a model that was loaded from nowhere: "
                "nobody could open the adapter alone"
            )
    module.save_pretrained(folder)
    if is_hugging_face_tokenizer(model.tokenizer):
        model.tokenizer.save_pretrained(folder)
    elif model.tokenizer is not None:
        notice(
            f"{folder} has no tokenizer: {type(model.tokenizer).__name__} is none of transformers"
        )


def _base(module: Any) -> Any:
    get = getattr(module, "get_base_model", None)
    return module if get is None else get()


def _state(module: nn.Module) -> dict[str, Any]:
    frozen = [name for name, one in module.named_parameters() if not one.requires_grad]
    return {"training": module.training, "frozen": frozen}


def _hugging_face(described: Mapping[str, Any]) -> nn.Module:
    transformers = require("transformers", extra="llm")
    options = dict(described["config"])
    if "quantization_config" in options or "auto_map" in options:
        raise _not_ours(described["architecture"])
    try:
        config = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    except ValueError as error:  # of remote code, or of another version
        raise _not_ours(described["architecture"]) from error
    config._name_or_path = str(options.get("_name_or_path", ""))
    attention = described["attention"]
    module = transformers.AutoModelForCausalLM.from_config(
        config,
        dtype=getattr(torch, described["dtype"]),
        trust_remote_code=False,
        **({"attn_implementation": attention} if attention in ATTENTION else {}),
    )
    if type(module).__name__ != described["architecture"]:
        raise _not_ours(described["architecture"])
    if described["generation"] is not None:
        module.generation_config = transformers.GenerationConfig.from_dict(described["generation"])
    return _adapted(module, described["adapters"], described["active"])  # type: ignore[no-any-return]


def _adapted(module: Any, adapters: Mapping[str, Any], active: str | None) -> Any:
    for number, (name, options) in enumerate(adapters.items()):
        peft = require("peft", extra="llm")
        options = peft.get_peft_config(dict(options))
        if number == 0:
            module = peft.get_peft_model(module, options, adapter_name=name)
        else:
            module.add_adapter(name, options)
    if active is not None:
        module.set_adapter(active)
    return module


def _not_ours(name: str) -> TypeError:
    return TypeError(
        f"model must be given: {name!s:.80} is not a model that this library or transformers "
        "makes of a file"
    )


def _name(described: Mapping[str, Any]) -> str:
    names = {"transformer": "nn.Transformer", "hugging_face": described.get("architecture")}
    return str(names.get(described["kind"]) or described.get("class"))


def _differences(saved: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for name in saved:
        if name in own and name not in BESIDE and saved[name] != own[name]:
            yield f"has {name} {saved[name]!r:.80}, not {own[name]!r:.80}"


def _plain(value: Any) -> Any:
    """JSON values of options: sets in order, and names of what has one."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value))
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return getattr(value, "value", value)
