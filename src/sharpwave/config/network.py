"""Options of networks that every algorithm has: widths of hidden layers, and activations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from sharpwave.config.convert import convert

__all__ = ["ActivationName", "Hidden", "NetworkOptions"]

Hidden: TypeAlias = tuple[int, ...] | dict[str, tuple[int, ...]]
"""Widths of hidden layers: of all networks, or of `actor` and `critic`."""
ActivationName: TypeAlias = Literal["tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu"]

NETWORKS = ("actor", "critic")


class NetworkOptions:
    """A part of configurations with a field `hidden`: one number stands for two layers of it."""

    hidden: Any
    has_critic: ClassVar[bool] = True
    """True if actor and critic may have hidden layers of different widths."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", self._read_hidden(self.hidden))
        super().__post_init__()  # type: ignore[misc]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """Read texts as values; `hidden` may be `64`, `64,32` or a JSON object."""
        text = options.get("hidden")
        if text is None:
            return super().parse(options)  # type: ignore[misc, no-any-return]
        rest = {name: value for name, value in options.items() if name != "hidden"}
        return {**super().parse(rest), "hidden": cls._read_hidden(_from_text(text))}  # type: ignore[misc]

    def hidden_of(self, network: str) -> tuple[int, ...]:
        """Widths of the hidden layers of the `actor` or the `critic`."""
        widths: tuple[int, ...] = (
            self.hidden[network] if isinstance(self.hidden, dict) else self.hidden
        )
        return widths

    @classmethod
    def _read_hidden(cls, hidden: Any) -> Hidden:
        if not isinstance(hidden, Mapping):
            return _widths(hidden)
        if not cls.has_critic:
            raise ValueError(f"hidden must be widths of one network, got {dict(hidden)!r}")
        if set(hidden) != set(NETWORKS):
            raise ValueError(f"hidden must name actor and critic, got {dict(hidden)!r}")
        return {network: _widths(hidden[network]) for network in NETWORKS}


def _widths(value: Any) -> tuple[int, ...]:
    try:
        widths: tuple[int, ...] = convert(value, tuple[int, ...])
    except (TypeError, ValueError) as error:
        raise type(error)(f"hidden {error}") from None
    if any(width < 1 for width in widths):
        raise ValueError(f"hidden must be greater than 0, got {value!r}")
    is_number = isinstance(value, str) or not hasattr(value, "__len__")
    return widths * 2 if is_number else widths


def _from_text(text: str) -> Any:
    text = text.strip()
    if text.startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            raise ValueError(f"hidden must be a JSON object, got {text!r}") from None
    if text.startswith(("(", "[")) or "," in text or not text:
        return [part for part in text.strip("()[]").split(",") if part.strip()]
    return text
