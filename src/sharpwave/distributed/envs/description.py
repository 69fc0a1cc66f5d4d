"""Description of a server's environments (spaces, number, id), checked before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sharpwave.distributed.codec import LIMIT
from sharpwave.distributed.envs.server import VERSION
from sharpwave.envs.spaces import space_from_json
from sharpwave.errors import WireError
from sharpwave.printable import printable

__all__ = ["Description", "check_alike"]


@dataclass(frozen=True)
class Description:
    """The environments of a server.

    Attributes:
        address: Address of the server.
        server: A number of its own for each server.
        env: The id of its environments, or the name of what makes them.
        env_kwargs: Keyword arguments for the id; None where it is no id.
        num_envs: Number of environments.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
    """

    address: str
    server: str
    env: str
    env_kwargs: dict[str, Any] | None
    num_envs: int
    observation_space: Any
    action_space: Any

    @classmethod
    def of(cls, address: str, told: Any) -> Description:
        """Read a SpacesResponse.

        Raises:
            WireError: It is of another version, or says what cannot be.
        """
        if told.version != VERSION:
            said = "rlox's calls alone" if told.version == 0 else f"version {told.version}"
            hint = ": RemoteEnvPool plays there" if told.version == 0 else ""
            raise WireError(f"{address} must speak version {VERSION}, it speaks {said}{hint}")
        try:
            spaces = [json.loads(text) for text in (told.observation_space, told.action_space)]
            _check_size(told.num_envs, max(map(_numbers, spaces)))
            observation_space, action_space = map(space_from_json, spaces)
            kwargs = json.loads(told.env_kwargs) if told.env_kwargs else None
        except (ArithmeticError, AssertionError, LookupError, RecursionError) as error:
            raise WireError(f"{address} must describe its spaces, got {error}") from None
        except (AttributeError, TypeError, ValueError) as error:
            raise WireError(f"{address} must describe its spaces, got {error}") from None
        name = printable(told.env[:200])
        number = int(told.num_envs)
        return cls(address, told.server, name, kwargs, number, observation_space, action_space)


def check_alike(told: Sequence[Description]) -> None:
    """Raise where servers have different environments, or two are the same server.

    Raises:
        ValueError: It names both.
    """
    first = told[0]
    for i, one in enumerate(told):
        for other in told[:i]:
            if one.server == other.server:
                raise ValueError(
                    "addresses must name each server once: "
                    f"{other.address} and {one.address} are the same"
                )
        if one.env != first.env:
            raise ValueError(
                f"servers must have the same environments: {one.address} has {one.env}, "
                f"{first.address} has {first.env}"
            )
        for name in ("observation_space", "action_space"):
            if getattr(one, name) != getattr(first, name):
                raise ValueError(
                    f"servers must have the same {name}: {one.address} has {getattr(one, name)}, "
                    f"{first.address} has {getattr(first, name)}"
                )


def _check_size(num_envs: int, numbers: int) -> None:
    if not 0 < num_envs * max(1, numbers) <= LIMIT:
        raise WireError(f"{num_envs} environments of {numbers} numbers, which is not 1 to {LIMIT}")


def _numbers(space: Any, depth: int = 0) -> int:
    """Numbers in one value of a space in JSON, before it is made."""
    if depth > 16:
        raise WireError("spaces must be nested 16 times at most")
    kind = space["type"]
    if kind == "Dict":
        return sum(_numbers(inner, depth + 1) for _, inner in space["spaces"])
    if kind == "Tuple":
        return sum(_numbers(inner, depth + 1) for inner in space["spaces"])
    if kind == "MultiDiscrete":
        return len(str(space["nvec"]))  # as many numbers as are written there, or fewer
    sizes = space.get("shape", [])
    if not all(isinstance(size, int) and 0 <= size < 2**31 for size in sizes) or len(sizes) > 32:
        raise WireError(f"the shape of a space must be integers, got {str(sizes)[:100]}")
    return math.prod(sizes)
