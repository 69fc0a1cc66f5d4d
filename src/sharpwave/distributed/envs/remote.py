"""A Gymnasium vector environment of remote environments, on one or several servers."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.core.tree import map_leaves
from sharpwave.distributed.envs.arrays import (
    ObservationFormat,
    array_message,
    array_of_raw,
    flat_infos,
    merged,
    messages,
    nested_infos,
)
from sharpwave.distributed.envs.connection import Connection, Deadlines, spaces_at
from sharpwave.distributed.envs.description import Description, check_alike
from sharpwave.distributed.envs.session import TERMINATED, TRUNCATED, ActionCheck
from sharpwave.distributed.security import TLS, Access
from sharpwave.types import Array, Nested

__all__ = ["RemoteVectorEnv", "checked_addresses"]

_FLOAT64, _UINT8 = np.dtype(np.float64), np.dtype(np.uint8)


class RemoteVectorEnv(VectorEnv[Any, Any, Any]):
    """The environments of one or several servers, stepped together.

    Requests go to all servers before an answer of any is awaited. An environment whose episode ends
    is reset in the same step, with the last observation in `infos["final_obs"]` (Gymnasium's mode
    SAME_STEP). Of the infos, numbers and flags travel, nothing else does. What is lost on the way
    is asked again, and done once. With the same seed the environments do what they do here.

    After an error `reset` begins anew, with a new session where the old one is gone.

    Args:
        addresses: Addresses of the servers (`EnvServer`, `sharpwave serve-envs`), host:port each.
            Their environments are numbered in this order.
        timeout: Seconds that a server has for an answer, a lost connection included.
        token: Token of the servers; None takes that of the variable `SHARPWAVE_TOKEN`, if any.
        tls: Certificates of both sides.

    Attributes:
        addresses: Addresses of the servers.
        sizes: Number of environments of each server.

    Raises:
        ConnectionError: A server is not there, or takes no more clients; `reset` and `step` raise
            it when one is lost with its environments.
        EnvironmentFailed: `reset` and `step` raise it when an environment does.
        ImportError: grpcio is not installed.
        PermissionError: A server asks for another token.
        TimeoutError: `reset` and `step` raise it when an answer is late.
        ValueError: An address is given twice, or the servers have different environments.
        WireError: A server speaks another version.

    Example:
        >>> from sharpwave.distributed import EnvServer
        >>> with EnvServer("CartPole-v1", n_envs=2) as one, EnvServer("CartPole-v1") as other:
        ...     env = RemoteVectorEnv([one.address, other.address])
        ...     obs, infos = env.reset(seed=0)
        ...     obs, rewards, terminated, truncated, infos = env.step(np.array([0, 1, 0]))
        ...     env.close()
        >>> rewards
        array([1., 1., 1.])
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        timeout: float = 30.0,
        token: str | None = None,
        tls: TLS | None = None,
    ) -> None:
        self.closed = True  # until all is there
        self.addresses = checked_addresses(addresses)
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")
        access = Access.of(token, tls)
        self._connections: list[Connection] = []
        self._deadlines = Deadlines(self._connections)
        try:
            told = []
            for address in self.addresses:
                channel, spaces = spaces_at(address, access, timeout)
                self._connections.append(Connection(address, channel, timeout))
                told.append(Description.of(address, spaces))
            check_alike(told)
            for connection in self._connections:
                connection.join(or_new=True)
        except BaseException:
            self.close_extras()
            raise
        self.closed = False
        self._set_spaces(told)
        self._must_reset = "before the first step"

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`.

        Args:
            seed: Environment i gets seed + i; or one seed for each.
            options: For every environment's `reset`: what JSON holds.

        Returns:
            Observations [N, ...] and infos.
        """
        self._assert_open()
        asked = self._reset_requests(seed, options)
        if not all(connection.is_sound for connection in self._connections):
            for connection in self._connections:  # an answer to another step may be on its way
                connection.join(or_new=True)
        requests = [connection.request() for connection in self._connections]
        for request, reset in zip(requests, asked, strict=True):
            request.reset.CopyFrom(reset)
        answers = self._answers(requests)
        return self._obs(answers), self._infos(answers)

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments.

        Args:
            actions: [N, *shape of one action].

        Returns:
            Observations [N, ...], rewards [N] float64, terminated [N], truncated [N], infos.
        """
        self._assert_open()
        if self._must_reset:
            raise gym.error.ResetNeeded(f"reset() must be called {self._must_reset}")
        array = self._checked_actions(actions)
        requests = []
        for connection, rows in zip(self._connections, self._rows, strict=True):
            requests.append(connection.request())
            requests[-1].step.raw = array[rows].tobytes()
        answers = self._answers(requests)
        obs = self._obs(answers)
        rewards = np.empty(self.num_envs)
        flags = np.empty(self.num_envs, np.uint8)
        for rows, n, answer in zip(self._rows, self.sizes, answers, strict=True):
            rewards[rows] = array_of_raw(answer.raw_rewards, "rewards", _FLOAT64, (n,))
            flags[rows] = array_of_raw(answer.flags, "flags", _UINT8, (n,))
        infos = self._infos(answers)
        ended = flags != 0
        if np.count_nonzero(ended):
            infos["final_obs"] = self._final_obs(answers, flags)
            infos["_final_obs"] = ended
        return obs, rewards, (flags & TERMINATED) != 0, (flags & TRUNCATED) != 0, infos

    def close_extras(self, **_: Any) -> None:
        """Leave all servers, which free the environments."""
        for connection in self._connections:
            connection.leave()
        for connection in self._connections:
            connection.close()
        self._deadlines.stop()

    def _answers(self, requests: list[Any]) -> list[Any]:
        """Ask all servers, then wait for all."""
        self._must_reset = "again: a server failed in the last call"
        for connection, request in zip(self._connections, requests, strict=True):
            connection.ask(request)
        answers = [
            connection.answer(rows.start)
            for connection, rows in zip(self._connections, self._rows, strict=True)
        ]
        self._must_reset = ""
        return answers

    def _set_spaces(self, told: list[Description]) -> None:
        first = told[0]
        self.sizes = [one.num_envs for one in told]
        ends = np.cumsum(self.sizes).tolist()
        self._rows = [slice(end - n, end) for end, n in zip(ends, self.sizes, strict=True)]
        self.num_envs = ends[-1]
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.spec = _spec(first)
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._format = ObservationFormat(first.observation_space)
        assert first.action_space.dtype is not None
        self._action_dtype = first.action_space.dtype.newbyteorder("<")
        self._action_check = ActionCheck(first.action_space)

    def _obs(self, answers: list[Any]) -> Nested:
        parts = [
            self._format.of_raw(answer.raw_obs, n)
            for answer, n in zip(answers, self.sizes, strict=True)
        ]
        if len(parts) == 1:
            return map_leaves(np.array, parts[0])
        return map_leaves(lambda *leaf: np.concatenate(leaf), *parts)

    def _infos(self, answers: list[Any]) -> dict[str, Any]:
        if not any(len(answer.infos) for answer in answers):
            return {}
        parts = [flat_infos(one.infos, n) for one, n in zip(answers, self.sizes, strict=True)]
        return nested_infos(merged(parts, self.sizes))

    def _final_obs(self, answers: list[Any], flags: Array) -> Array:
        """[N], the last observation of each episode that ended and None elsewhere."""
        final = np.full(self.num_envs, None, object)
        for rows, answer in zip(self._rows, answers, strict=True):
            ended = (np.flatnonzero(flags[rows]) + rows.start).tolist()
            if ended:
                last = self._format.of_raw(answer.raw_final_obs, len(ended))
                for i, row in enumerate(ended):
                    final[row] = _row(last, i)
        return final

    def _checked_actions(self, actions: Any) -> Array:
        array: Array = np.asarray(actions)
        space = self.action_space
        if array.shape != space.shape:
            raise ValueError(f"actions must have shape {space.shape}, got {array.shape}")
        if array.dtype.kind not in ("biuf" if space.dtype.kind == "f" else "biu"):  # type: ignore[union-attr]
            raise TypeError(f"actions must be {space.dtype}, got {array.dtype}")
        array = array.astype(self._action_dtype, copy=False)
        self._action_check.check(array)  # before any server steps
        return array

    def _reset_requests(self, seed: Any, options: dict[str, Any] | None) -> list[Any]:
        known, given = messages(), dict(options or {})
        mask = given.pop("reset_mask", None)
        try:
            said = json.dumps(given, default=_plain) if given else ""
        except TypeError as error:
            raise TypeError(f"options must be what JSON holds: {error}") from None
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
                raise ValueError(
                    f"reset_mask must be a bool array of shape ({self.num_envs},), "
                    f"got {mask.dtype} of shape {mask.shape}"
                )
        requests = []
        for rows, seeds in zip(self._rows, self._seeds(seed), strict=True):
            part = None if mask is None else array_message(mask[rows])
            requests.append(known.ResetRequest(seeds=seeds, options=said, mask=part))
        return requests

    def _seeds(self, seed: Any) -> list[list[str]]:
        """The seeds for each server."""
        if seed is None:
            return [[] for _ in self._rows]
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"seed must be one for each of {self.num_envs}, got {len(seed)}")
        if any(one is not None and one < 0 for one in seed):
            raise ValueError(f"seed must not be negative, got {seed}")
        texts = ["" if one is None else str(int(one)) for one in seed]
        return [texts[rows] for rows in self._rows]

    def _assert_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the vector environment is closed")


def checked_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Addresses as a list.

    Raises:
        ValueError: There are none, or one is there twice.
    """
    given = [addresses] if isinstance(addresses, str) else list(addresses)
    if not given:
        raise ValueError("addresses must name at least one server, got none")
    for address in given:
        if given.count(address) > 1:
            raise ValueError(f"addresses must name each server once, got {address} twice")
    return given


def _row(obs: Nested, i: int) -> Nested:
    """One observation, in memory of its own."""
    if isinstance(obs, np.ndarray):
        return obs[i].copy()
    return map_leaves(lambda leaf: leaf[i].copy(), obs)


def _spec(told: Description) -> Any:
    """The spec of an id that is known here too, which makes environments for evaluation."""
    if told.env_kwargs is None or told.env not in gym.registry:
        return None
    spec = copy.deepcopy(gym.spec(told.env))
    spec.kwargs = {**spec.kwargs, **told.env_kwargs}
    return spec


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
