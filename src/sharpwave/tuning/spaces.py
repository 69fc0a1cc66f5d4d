"""Search spaces: which options a study varies, and over which values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sharpwave.config import files
from sharpwave.config.config import Config
from sharpwave.config.convert import members_of

__all__ = ["Choices", "Range", "Space", "described", "read_space", "space_for", "space_of"]


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included.

    Attributes:
        low: The least.
        high: The greatest.
        log: Spread them evenly over orders of magnitude.
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Choices:
    """Some values: numbers, texts, True, False, None; sizes are texts such as "64,64"."""

    values: tuple[Any, ...]


Space: TypeAlias = Mapping[str, Range | Choices]
"""By the names of options."""

_GAMMAS = Choices((0.9, 0.95, 0.98, 0.99, 0.995, 0.999))
_RATES = Range(1e-5, 1e-2, log=True)
_SIZES = Choices(("64,64", "128,128", "256,256"))

_ON_POLICY: Space = {
    "learning_rate": _RATES,
    "n_steps": Choices((16, 32, 64, 128, 256, 512, 1024)),
    "gamma": _GAMMAS,
    "ent_coef": Range(1e-8, 0.1, log=True),
    "vf_coef": Range(0.2, 2.0),
    "max_grad_norm": Range(0.3, 5.0, log=True),
    "hidden": _SIZES,
}
_GAE: Space = {"gae_lambda": Choices((0.8, 0.9, 0.92, 0.95, 0.98, 1.0))}
_PPO: Space = {
    **_ON_POLICY,
    **_GAE,
    "batch_size": Choices((32, 64, 128, 256, 512)),
    "n_epochs": Choices((1, 4, 10, 20)),
    "clip_eps": Choices((0.1, 0.2, 0.3, 0.4)),
}
_OFF_POLICY: Space = {
    "learning_rate": _RATES,
    "gamma": _GAMMAS,
    "batch_size": Choices((32, 64, 128, 256, 512)),
    "learning_starts": Choices((100, 1000, 5000)),
    "hidden": Choices(("64,64", "256,256", "400,300")),
}
_EPSILON: Space = {
    "target_update_freq": Choices((10, 100, 500, 1000, 5000)),
    "train_freq": Choices((1, 4, 16, 64, 256)),
    "exploration_fraction": Range(0.05, 0.5),
    "exploration_final_eps": Range(0.01, 0.2),
}
_DQN: Space = {**_OFF_POLICY, **_EPSILON}
_TARGET: Space = {"tau": Range(1e-3, 0.1, log=True)}
_NOISE: Space = {"exploration_noise": Range(0.0, 0.5)}

SPACES: dict[str, Space] = {
    "ppo": _PPO,
    "hybrid_ppo": _PPO,
    "a2c": {**_ON_POLICY, **_GAE},
    "impala": _ON_POLICY,
    "appo": {**_ON_POLICY, "clip_eps": _PPO["clip_eps"]},
    "dqn": _DQN,
    "c51": {**_DQN, "n_atoms": Choices((21, 51, 101))},
    "qr_dqn": {**_DQN, "n_quantiles": Choices((10, 50, 100, 200))},
    "sac": {**_OFF_POLICY, **_TARGET},
    "discrete_sac": {**_OFF_POLICY, **_TARGET},
    "tqc": {**_OFF_POLICY, **_TARGET, "top_quantiles_to_drop": Choices((0, 1, 2, 5))},
    "crossq": {**_OFF_POLICY, "policy_delay": Choices((1, 2, 3, 4))},
    "td3": {**_OFF_POLICY, **_TARGET, **_NOISE},
    "ddpg": {**_OFF_POLICY, **_TARGET, **_NOISE},
}
"""By the names of algorithms."""


def space_of(algorithm: str) -> Space:
    """The search space that an algorithm has by itself.

    Raises:
        ValueError: It has none.

    Example:
        >>> space_of("ppo")["learning_rate"]
        Range(low=1e-05, high=0.01, log=True)
    """
    if algorithm not in SPACES:
        raise ValueError(
            f"{algorithm} has no search space of its own, as {', '.join(SPACES)} have: give one"
        )
    return dict(SPACES[algorithm])


def read_space(path: str | Path) -> Space:
    """The search space in a YAML, TOML or JSON file.

    A value is `{low: 1e-5, high: 1e-2, log: true}`, or the list of choices.

    Raises:
        OSError: The file cannot be read.
        ValueError: A value is neither.
    """
    return space_for(files.read(Path(path)))


def space_for(options: Mapping[str, Any]) -> Space:
    """A search space out of plain values, as a file has them; ranges and choices stay.

    Raises:
        ValueError: A value is no range and no choices.
    """
    return {name: _named(name, value) for name, value in options.items()}


def checked(space: Space, config: type[Config]) -> Space:
    """The same with the names of fields, each value of which an algorithm takes.

    Raises:
        TypeError: An option is unknown, or a value has the wrong type.
        ValueError: There is no option, or a value is out of the option's range.
    """
    if not space:
        raise ValueError("space must name at least one option")
    known = config._known(space)
    annotations = config.annotations()
    for name, domain in known.items():
        if isinstance(domain, Range):
            if not {int, float} & set(members_of(annotations[name])):
                raise ValueError(f"space: {name} is no number: it must have choices")
            tried: tuple[Any, ...] = (domain.low, domain.high)
        else:
            tried = domain.values
        for value in tried:
            config.from_dict(options_of({name: value}, config))
    return known


def options_of(values: Mapping[str, Any], config: type[Config]) -> dict[str, Any]:
    """Values of a search space as options: texts are read as on the command line."""
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    return {**values, **config.parse(texts)}


def is_integer(name: str, config: type[Config]) -> bool:
    """True where an option takes integers alone."""
    return float not in members_of(config.annotations()[name])


def described(space: Space) -> dict[str, Any]:
    """A search space as values that JSON can hold, by which two are compared."""
    return {
        name: list(domain.values)
        if isinstance(domain, Choices)
        else {"low": domain.low, "high": domain.high, "log": domain.log}
        for name, domain in sorted(space.items())
    }


def _named(name: str, value: Any) -> Range | Choices:
    try:
        return _domain(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"space: {name} {error}") from None


def _domain(value: Any) -> Range | Choices:
    if isinstance(value, Range | Choices):
        found = value
    elif isinstance(value, Mapping):
        if not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
            raise ValueError(f"must have low, high and perhaps log, got {', '.join(value)}")
        found = Range(_number(value["low"]), _number(value["high"]), bool(value.get("log", False)))
    elif isinstance(value, list | tuple):
        found = Choices(tuple(map(_choice, value)))
    else:
        raise TypeError(f"must be low and high, or a list of choices, got {value!r}")
    if isinstance(found, Choices):
        if not found.values or len(set(found.values)) < len(found.values):
            raise ValueError(f"must have different choices, got {list(found.values)}")
    elif not (math.isfinite(found.low) and math.isfinite(found.high) and found.low < found.high):
        raise ValueError(f"must have low less than high, got {found.low} and {found.high}")
    elif found.log and found.low <= 0:
        raise ValueError(f"must have low above 0 with log, got {found.low}")
    return found


def _number(value: Any) -> float:
    number = float(value)  # YAML reads 1e-5 as a text
    return int(number) if isinstance(value, int) and not isinstance(value, bool) else number


def _choice(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return str(list(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"must have plain choices, got {value!r}")
