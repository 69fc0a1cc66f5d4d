"""Compatibility with rlox: a pool of remote environments with `reset_all` and `step_all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from sharpwave.core.tree import map_leaves
from sharpwave.distributed.envs.arrays import messages
from sharpwave.distributed.envs.connection import spaces_at
from sharpwave.distributed.envs.plain import space_of_plain
from sharpwave.distributed.envs.remote import RemoteVectorEnv, checked_addresses
from sharpwave.distributed.envs.server import SERVICE
from sharpwave.distributed.security import TLS, Access
from sharpwave.distributed.wire import grpc, naming
from sharpwave.errors import WireError
from sharpwave.types import Array, Nested

__all__ = ["RemoteEnvPool"]


class RemoteEnvPool:
    """Environments of other machines with `reset_all` and `step_all`, as rlox has them.

    The servers are `EnvServer`s, or rlox's own, which have no calls but its three. Those do not say
    what episodes ended with.

    Args:
        addresses: Addresses of the servers, such as "10.0.0.3:50051".
        timeout: Seconds that a server has for an answer.
        token: Token of the servers; None takes that of the variable `SHARPWAVE_TOKEN`, if any.
        tls: Certificates of both sides.

    Raises:
        ConnectionError: `connect` was not called, or a server is not there.
        ImportError: grpcio is not installed.
        ValueError: There is no address, one is given twice, or the servers differ.

    Example:
        >>> from sharpwave.distributed import EnvServer
        >>> with EnvServer("CartPole-v1", n_envs=2) as server:
        ...     pool = RemoteEnvPool([server.address])
        ...     pool.connect()
        ...     obs = pool.reset_all(seed=0)
        ...     step = pool.step_all([0, 1])
        ...     pool.close()
        >>> step["rewards"], step["terminal_obs"]
        (array([1., 1.]), [None, None])
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        timeout: float = 30.0,
        *,
        token: str | None = None,
        tls: TLS | None = None,
    ) -> None:
        grpc()  # says at once what is not installed
        self.worker_addresses = checked_addresses(addresses)
        self.timeout = timeout
        self._token, self._tls = token, tls
        self._env: RemoteVectorEnv | _ThreeCalls | None = None

    def connect(self) -> None:
        """Find all servers.

        Raises:
            ConnectionError: One is not there.
            PermissionError: One asks for another token.
            ValueError: They have different environments.
        """
        self.close()
        access = Access.of(self._token, self._tls)
        channel, told = spaces_at(self.worker_addresses[0], access, self.timeout)
        channel.close()
        if told.version == 0:
            self._env = _ThreeCalls(self.worker_addresses, self.timeout, access)
        else:
            self._env = RemoteVectorEnv(
                self.worker_addresses, timeout=self.timeout, token=self._token, tls=self._tls
            )

    @property
    def num_envs(self) -> int:
        """Number of environments of all servers."""
        return self._connected.num_envs

    @property
    def action_space(self) -> Any:
        """Of one environment."""
        return self._connected.single_action_space

    @property
    def observation_space(self) -> Any:
        """Of one environment."""
        return self._connected.single_observation_space

    def reset_all(self, seed: int | None = None) -> Nested:
        """Start new episodes everywhere; with a seed, environment i gets seed + i.

        Returns:
            Observations [N, ...].
        """
        return map_leaves(_single, self._connected.reset(seed=seed)[0])

    def step_all(self, actions: Any) -> dict[str, Any]:
        """Step all environments; those whose episode ends begin the next one.

        Args:
            actions: [N, *shape of one action], or as many numbers in another shape.

        Returns:
            obs [N, ...], of the next episode where one ended; rewards [N] float64; terminated and
            truncated [N] uint8; terminal_obs, a list with the last observation of each episode that
            ended and None elsewhere.

        Raises:
            ValueError: The actions do not fit.
        """
        env = self._connected
        stepped = env.step(_shaped(actions, env.action_space))
        obs, rewards, terminated, truncated, infos = stepped
        last = infos.get("final_obs")
        return {
            "obs": map_leaves(_single, obs),
            "rewards": rewards,
            "terminated": terminated.astype(np.uint8),
            "truncated": truncated.astype(np.uint8),
            "terminal_obs": [
                None if one is None else map_leaves(_single, one)
                for one in ([None] * env.num_envs if last is None else last)
            ],
        }

    def close(self) -> None:
        """Leave all servers."""
        if self._env is not None:
            self._env.close()
            self._env = None

    @property
    def _connected(self) -> RemoteVectorEnv | _ThreeCalls:
        if self._env is None:
            raise ConnectionError("the pool must be connected: call connect() first")
        return self._env


class _ThreeCalls:
    """Servers of rlox, which reset and step environments for whoever calls."""

    def __init__(self, addresses: list[str], timeout: float, access: Access) -> None:
        known = messages()
        self.addresses, self.timeout = addresses, timeout
        self._channels: list[Any] = []
        try:
            told = []
            for address in addresses:
                channel, spaces = spaces_at(address, access, timeout)
                self._channels.append(channel)
                told.append(spaces)
            self._check(told)
        except BaseException:
            self.close()
            raise
        self.sizes = [one.num_envs for one in told]
        ends = np.cumsum(self.sizes).tolist()
        self._rows = [slice(end - n, end) for end, n in zip(ends, self.sizes, strict=True)]
        self.num_envs: int = ends[-1]
        self.single_action_space = space_of_plain(told[0].action_space_json)
        self.single_observation_space = space_of_plain(told[0].obs_space_json)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._calls = {
            name: [
                channel.unary_unary(
                    f"/{SERVICE}/{name}Batch",
                    request_serializer=getattr(known, f"{name}Request").SerializeToString,
                    response_deserializer=getattr(known, f"{name}Response").FromString,
                )
                for channel in self._channels
            ]
            for name in ("Reset", "Step")
        }

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        """Observations [N, ...] and no infos."""
        known = messages()
        first = 0 if seed is None else seed
        requests = [
            known.ResetRequest(seed=first + rows.start, has_seed=seed is not None)
            for rows in self._rows
        ]
        return self._obs(self._answers("Reset", requests)), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Observations [N, ...], rewards, terminated, truncated and no infos."""
        known = messages()
        width = int(np.prod(actions.shape[1:]))
        form = {"discrete": actions.dtype.kind != "f", "act_dim": width}
        requests = [known.StepRequest(actions=actions[rows].ravel(), **form) for rows in self._rows]
        answers = self._answers("Step", requests)
        rewards, terminated, truncated = (
            np.concatenate([self._column(one, name, n) for one, n in self._sized(answers)])
            for name in ("rewards", "terminated", "truncated")
        )
        flags = (terminated.astype(np.bool_), truncated.astype(np.bool_))
        return self._obs(answers), rewards.astype(np.float64), *flags, {}

    def close(self) -> None:
        """Close the channels."""
        for channel in self._channels:
            channel.close()

    def _answers(self, name: str, requests: list[Any]) -> list[Any]:
        calls = [
            ask.future(request, timeout=self.timeout)
            for ask, request in zip(self._calls[name], requests, strict=True)
        ]
        answers = []
        for address, call in zip(self.addresses, calls, strict=True):
            with naming(address):
                answers.append(call.result())
        return answers

    def _sized(self, answers: list[Any]) -> list[tuple[Any, int]]:
        return list(zip(answers, self.sizes, strict=True))

    def _obs(self, answers: list[Any]) -> Array:
        shape = self.single_observation_space.shape
        size = int(np.prod(shape))
        parts = [self._column(one, "obs", n * size) for one, n in self._sized(answers)]
        return np.concatenate(parts).astype(np.float32).reshape(self.num_envs, *shape)

    def _column(self, answer: Any, name: str, size: int) -> Array:
        values: Array = np.array(getattr(answer, name))
        if len(values) != size:
            raise WireError(f"{name} must be {size} numbers, got {len(values)}")
        return values

    def _check(self, told: list[Any]) -> None:
        first = told[0]
        for address, one in zip(self.addresses, told, strict=True):
            same = one.version == 0 and one.num_envs > 0
            for name in ("action_space_json", "obs_space_json"):
                same = same and getattr(one, name) == getattr(first, name)
            if not same:
                raise ValueError(
                    "servers must have the same spaces and speak alike: "
                    f"{address} differs from {self.addresses[0]}"
                )


def _single(leaf: Any) -> Array:
    """Real numbers in float32, anything else as it is."""
    array: Array = np.asarray(leaf)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _shaped(actions: Any, space: Any) -> Array:
    given: Array = np.asarray(actions)
    if given.size != np.prod(space.shape):
        raise ValueError(f"actions must have shape {space.shape}, got {given.shape}")
    with np.errstate(invalid="ignore"):
        shaped: Array = given.astype(space.dtype).reshape(space.shape)
    if shaped.dtype.kind != "f" and not np.array_equal(shaped.ravel(), given.ravel()):
        raise ValueError(f"actions must be integers, got {given}")
    return shaped
