"""Session of one client on an environment server: each reset and step is executed only once."""

from __future__ import annotations

import json
import math
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from sharpwave.distributed.envs.arrays import (
    ObservationFormat,
    array_of,
    array_of_raw,
    info_messages,
    messages,
    raw,
)
from sharpwave.distributed.envs.env_thread import EnvLate, EnvThread
from sharpwave.distributed.envs.plain import plain_actions, plain_observations
from sharpwave.envs import Stepper
from sharpwave.envs.masks import action_masks
from sharpwave.envs.native import NativeVectorEnv
from sharpwave.errors import EnvironmentFailed, WireError
from sharpwave.types import Array

__all__ = ["TERMINATED", "TRUNCATED", "ActionCheck", "Session"]

_WORDS = 20_000
"""Characters of a traceback that travel."""
TERMINATED, TRUNCATED = 1, 2
_FLOAT64 = np.dtype(np.float64)
_LETTING_GO = 1.0
"""Seconds in which a call that nobody waits for any more lets go of its session."""

T = TypeVar("T")


class Session:
    """Vector environments, and the last answer about them.

    Everything that is asked has a number, one more than the last. Who did not hear the answer asks
    again with the same number, and hears what was answered; nothing is done twice.

    Args:
        env: The vector environment. Its episodes begin anew in the step that ends one.
        name: Name of the session for its client.
        thread: Calls the environments, and has the seconds that they may take; None takes one
            without a limit. Native environments come back by themselves, and do without.

    Attributes:
        last_id: The number of the last request.
        failed: True if an environment raised or did not come back, so that the session is over.

    Raises:
        ValueError: The environments are reset in the step after the end.
    """

    def __init__(self, env: Any, name: str, thread: EnvThread | None = None) -> None:
        self.env, self.name = env, name
        self.last_id = 0
        self.failed = False
        self._stepper = Stepper(env)
        if self._stepper.mode == "next_step":
            raise ValueError("env must not reset in the step after an end: that step is no step")
        self._format = ObservationFormat(env.single_observation_space)
        self._actions = ActionCheck(env.single_action_space)
        self._is_discrete = not isinstance(env.single_action_space, spaces.Box)
        self._last: Any = None
        self._has_begun = False
        self._thread = thread or EnvThread(math.inf)
        self._may_hang = not isinstance(env, NativeVectorEnv)
        # A connection that was lost may still be at work while the next one asks.
        self._lock = threading.Lock()

    def answer(self, request: Any) -> Any:
        """The answer to a PlayRequest, the one that was given before where its number is the last.

        Raises:
            WireError: The number is neither the last one nor the next.
        """
        with self._lock:
            if self._last is not None and request.id == self.last_id:
                return self._last
            if request.id != self.last_id + 1:
                raise WireError(
                    f"id must be {self.last_id} again or {self.last_id + 1}, got {request.id}"
                )
            self._last = self._carried_out(request)
            self._last.id = self.last_id = request.id
            return self._last

    def called(self, ask: Callable[[], T]) -> T:
        """The result of a function that resets or steps, while nothing else is asked.

        Raises:
            EnvLate: The environments did not come back in time; the session has failed.
            Exception: What it raised.
        """
        with self._lock:
            return self._called(ask)

    def end(
        self,
        unmake: Callable[[Any], None],
        abandon: Callable[[Any], None],
        until: float = 0.0,
    ) -> None:
        """Let go of the environments: of those that do not come back, once they do.

        Args:
            unmake: Gets them back, in the thread that called them.
            abandon: Gets those at once that do not come back.
            until: The `time.monotonic` up to which they are waited for.
        """
        seconds = max(0.0, until - time.monotonic())
        is_held = self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
        if not is_held:
            self._thread.give_up()
            is_held = self._lock.acquire(timeout=_LETTING_GO)
        try:
            if not is_held or self._thread.is_late:
                abandon(self.env)
            seconds = 0.0 if self._thread.is_late else max(0.0, until - time.monotonic())
            self._thread.end(partial(unmake, self.env), seconds)
        finally:
            if is_held:
                self._lock.release()

    def _called(self, ask: Callable[[], T]) -> T:
        if not self._may_hang:
            return ask()
        try:
            return self._thread.call(ask)
        except EnvLate:
            self.failed = True
            raise

    def step(self, request: Any) -> Any:
        """The answer to a StepRequest, in floats where its actions were.

        Raises:
            WireError: The actions do not fit.
        """
        if not self._has_begun:
            raise WireError("the environments must be reset before the first step")
        n, space = self.env.num_envs, self.env.action_space
        if not request.raw:
            return self._step_in_floats(plain_actions(request, space))
        actions = array_of_raw(request.raw, "actions", space.dtype, space.shape)
        self._actions.check(actions)
        step = self._stepper.step(actions)
        flags = step.terminated * np.uint8(TERMINATED) + step.truncated * np.uint8(TRUNCATED)
        ended = flags.nonzero()[0]
        final = self._format.to_raw(step.next_obs, ended) if len(ended) else ()
        return messages().StepResponse(
            num_envs=n,
            raw_obs=self._format.to_raw(step.obs),
            raw_final_obs=final,
            raw_rewards=raw(step.rewards, _FLOAT64),
            flags=flags.tobytes(),
            infos=self._infos(step.infos),
        )

    def _step_in_floats(self, actions: Array) -> Any:
        n = self.env.num_envs
        self._actions.check(actions)
        step = self._stepper.step(actions)
        obs, last = (plain_observations(part, n) for part in (step.obs, step.next_obs))
        return messages().StepResponse(
            obs=obs.ravel(),
            rewards=step.rewards,
            terminated=step.terminated,
            truncated=step.truncated,
            obs_dim=obs.shape[1],
            num_envs=n,
            final_obs=last[step.terminated | step.truncated].ravel(),
        )

    def reset(self, request: Any, *, in_floats: bool = False) -> Any:
        """The answer to a ResetRequest.

        Raises:
            WireError: A seed, an option or the mask is malformed.
        """
        n = self.env.num_envs
        options = _options(request, n)
        seed = _seeds(request, n)
        if options is not None and not self._has_begun:
            options.pop("reset_mask", None)  # nothing has begun yet: all of them are reset
        if options and "reset_mask" in options:
            obs, infos = self.env.reset(seed=seed, options=options)
        elif options or not isinstance(seed, int | None):
            obs, infos = self.env.reset(seed=seed, options=options or None)
        else:
            obs, infos = self._stepper.reset(seed=seed)
        self._has_begun = True
        if in_floats:
            floats = plain_observations(obs, n)
            shape = {"obs_dim": floats.shape[1], "num_envs": n}
            return messages().ResetResponse(obs=floats.ravel(), **shape)
        parts = self._format.to_raw(obs)
        return messages().ResetResponse(num_envs=n, raw_obs=parts, infos=self._infos(infos))

    def _carried_out(self, request: Any) -> Any:
        known = messages()
        ask = request.WhichOneof("ask")
        if ask not in ("reset", "step"):
            raise WireError(f"a request must be a reset or a step, got {ask or 'nothing'}")
        try:
            done = self._called(partial(getattr(self, ask), getattr(request, ask)))
            return known.PlayResponse(**{ask: done})
        except EnvLate as error:
            failure = _failure("ENVIRONMENT", error.trace, error.env_index, ask)
        except EnvironmentFailed as error:
            self.failed = True
            failure = _failure("ENVIRONMENT", error.trace, error.env_index, error.doing)
        except (TypeError, ValueError) as error:
            failure = _failure("INPUT", str(error))
        except Exception:  # of a vector environment that is not ours
            self.failed = True
            failure = _failure("ENVIRONMENT", traceback.format_exc(), 0, ask)
        return known.PlayResponse(failure=failure)

    def _infos(self, infos: dict[str, Any]) -> list[Any]:
        """The infos that travel, with the masks that environments give by a method."""
        masks = action_masks(self.env, infos) if self._is_discrete else None
        if masks is not None:
            infos = {name: value for name, value in infos.items() if name != "_action_mask"}
            infos["action_mask"] = masks
        return info_messages(infos, self.env.num_envs) if infos else []


def _failure(kind: str, message: str, env_index: int = 0, doing: str = "") -> Any:
    known = messages().Failure
    return known(
        kind=known.Kind.Value(kind),
        message=message[-_WORDS:],
        env_index=max(0, env_index),
        doing=doing[:200],
    )


class ActionCheck:
    """Refuses actions that environments may answer with anything at all.

    Args:
        space: Space of one action.
    """

    def __init__(self, space: Any) -> None:
        self._space = space
        self._bounds: tuple[Any, Any] | None = None
        if isinstance(space, spaces.MultiBinary):
            self._bounds = 0, 2
        elif isinstance(space, spaces.Discrete):
            self._bounds = space.start, space.start + space.n
        elif isinstance(space, spaces.MultiDiscrete):
            self._bounds = space.start, space.start + space.nvec

    def check(self, actions: Array) -> None:
        """Check actions [N, ...].

        Raises:
            WireError: One is not finite, or not in a discrete space.
        """
        if self._bounds is None:
            if np.count_nonzero(np.isfinite(actions)) < actions.size:
                raise WireError("actions must be finite")
            return
        low, high = self._bounds
        wrong = (actions < low) | (actions >= high)
        if np.count_nonzero(wrong):
            row = int(np.argwhere(wrong)[0][0])
            raise WireError(
                f"actions must be in {self._space}, got {actions[row]} for environment {row}"
            )


def _seeds(request: Any, n: int) -> Any:
    if not request.seeds:
        return int(request.seed) if request.has_seed else None
    if len(request.seeds) != n:
        raise WireError(f"seeds must be one for each of {n}, got {len(request.seeds)}")
    if not all(seed == "" or (seed.isascii() and seed.isdigit()) for seed in request.seeds):
        raise WireError("seeds must be integers from 0, or empty")
    if any(len(seed) > 40 for seed in request.seeds):
        raise WireError("seeds must have at most 40 digits")
    return [int(seed) if seed else None for seed in request.seeds]


def _options(request: Any, n: int) -> dict[str, Any] | None:
    options = None
    if request.options:
        try:
            options = json.loads(request.options)
        except (ValueError, RecursionError) as error:
            raise WireError(f"options must be JSON: {error}") from None
        if not isinstance(options, dict):
            raise WireError(f"options must be a JSON object, got {request.options[:100]!r}")
    if request.HasField("mask"):
        mask = array_of(request.mask, "reset_mask", np.dtype(np.bool_), (n,))
        options = {**(options or {}), "reset_mask": mask.copy()}
    return options
