"""The layers that a deep model is a stack of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["layers_of", "recomputing"]


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The members of the outermost module lists of a module, which are its layers.

    Example:
        >>> from sharpwave.nn import Transformer
        >>> len(layers_of(Transformer(vocab_size=8, layers=3)))
        3
    """
    found: list[nn.Module] = []
    for child in module.children():
        found += list(child) if isinstance(child, nn.ModuleList) else layers_of(child)
    return found


@contextlib.contextmanager
def recomputing(module: nn.Module, *, by_switch: bool = False) -> Iterator[None]:
    """Inside, layers keep their inputs alone and are computed again in the backward pass.

    What lies between takes no memory, for a second forward pass. Gradients are the same.

    Args:
        module: The model.
        by_switch: Set the switch that layers of Hugging Face have, for somebody who computes in
            their place and looks at it; they look at it themselves only while they train.

    Raises:
        ValueError: The module has no layers to compute again.
    """
    layers = layers_of(module)
    if not layers:
        raise ValueError(
            f"gradient_checkpointing must be False for {type(module).__name__}, which has no "
            "layers in a ModuleList"
        )
    before = [vars(layer).copy() for layer in layers]
    for layer in layers:
        if by_switch:
            again: Any = partial(checkpoint, use_reentrant=False)
            vars(layer).update(gradient_checkpointing=True, _gradient_checkpointing_func=again)
        else:
            layer.forward = partial(_recomputed, layer.forward)
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            for name in ("forward", "gradient_checkpointing", "_gradient_checkpointing_func"):
                vars(layer).pop(name, None)
                if name in own:
                    vars(layer)[name] = own[name]


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
