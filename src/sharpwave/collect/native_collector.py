"""Rollouts that are collected in the background."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import _native
from sharpwave.collect.native import NativeRollouts
from sharpwave.envs import ActionMap, NativeVectorEnv
from sharpwave.learn import Draws, PolicyLayout, PolicyLearner
from sharpwave.types import Array, Nested

__all__ = ["NativeCollector"]

Flags = npt.NDArray[np.bool_]


class NativeCollector:
    """A thread that collects rollouts in native code, as many as are taken.

    Environments, a policy of two networks, and advantages run without Python. Weights lie as in
    torch's `state_dict`: (log_std of continuous actions,) actor, critic, layer by layer weight and
    bias. The same seed gives the same rollouts for the same weights.

    Args:
        env_id: A native environment: CartPole-v1, Pendulum-v1, Acrobot-v1, MountainCar-v0 or
            MountainCarContinuous-v0.
        n_envs: Number of environments.
        obs_dim: Numbers of an observation.
        n_actions: Number of actions; of a continuous one, its size.
        n_steps: Steps of a rollout.
        hidden: Widths of the hidden layers; one number stands for two layers.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        seed: Of weights, environments and actions.
        capacity: Finished rollouts that wait to be taken; then the thread waits.
        activation: "tanh" or "relu".

    Raises:
        ValueError: The environment is no native one, or has other sizes.

    Example:
        >>> with NativeCollector("CartPole-v1", 4, 4, 2, n_steps=8, hidden=16, seed=0) as collector:
        ...     rollout = collector.recv()
        ...     collector.sync_weights(collector.get_weights() * 0.5)
        >>> rollout["obs"].shape, rollout["version"]
        ((8, 4, 4), 0)
    """

    def __init__(
        self,
        env_id: str,
        n_envs: int,
        obs_dim: int,
        n_actions: int,
        n_steps: int,
        hidden: int | tuple[int, ...] = 64,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        seed: int = 42,
        capacity: int = 2,
        *,
        activation: str = "tanh",
    ) -> None:
        for name, value in {"n_steps": n_steps, "capacity": capacity}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        env = NativeVectorEnv(env_id, n_envs)
        layout = _layout(env, obs_dim, n_actions, hidden, activation)
        weights, world, noise = np.random.SeedSequence(seed).spawn(3)
        parameters = layout.first_parameters(np.random.Generator(np.random.Philox(weights)))
        learner = PolicyLearner(layout, parameters.data, parameters.grad)
        actor = _Acting(learner, Draws(int(noise.generate_state(1)[0])))
        rollouts = NativeRollouts(
            env,
            actor,
            ActionMap(env.single_action_space),
            n_steps=n_steps,
            seed=int(world.generate_state(1)[0] >> 1),
        )
        self._work = _Work(rollouts, parameters.data, gamma, gae_lambda, capacity)
        # It holds nothing of this object, so that forgetting the object ends it.
        thread = threading.Thread(target=self._work.run, name="collect", daemon=True)
        self._end = weakref.finalize(self, _end, self._work, thread)
        thread.start()

    def recv(self) -> dict[str, Any]:
        """The next rollout; waits for it.

        Returns:
            Arrays [T, N, ...]: `obs`, `actions`, `rewards`, `terminated`, `truncated`, `log_probs`,
            `values`, `advantages`, `returns`; and `version`, how many times weights were synced
            before it was begun.

        Raises:
            RuntimeError: The collector was stopped, or its thread failed.
        """
        rollout = self._work.take(wait=True)
        assert rollout is not None
        return rollout

    def try_recv(self) -> dict[str, Any] | None:
        """The next rollout, or None where none is finished yet."""
        return self._work.take(wait=False)

    def __len__(self) -> int:
        """Finished rollouts that wait to be taken."""
        return len(self._work.finished)

    def sync_weights(self, weights: Any) -> None:
        """Let rollouts that begin from now on be collected with other weights.

        Args:
            weights: [n] in the order of `get_weights`.

        Raises:
            ValueError: Their number is another, or one is NaN or inf.
        """
        self._work.give(weights)

    def get_weights(self) -> npt.NDArray[np.float32]:
        """[n] the weights of rollouts that begin now."""
        with self._work.changed:
            return self._work.newest.copy()

    def stop(self) -> None:
        """End the thread; what it has finished is given up."""
        self._end()

    def __enter__(self) -> NativeCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Work:
    """What thread and caller share."""

    COLUMNS = (
        "obs",
        "actions",
        "rewards",
        "terminated",
        "truncated",
        "log_probs",
        "values",
        "advantages",
        "returns",
    )

    def __init__(
        self,
        rollouts: NativeRollouts,
        parameters: npt.NDArray[np.float32],
        gamma: float,
        gae_lambda: float,
        capacity: int,
    ) -> None:
        self._rollouts = rollouts
        self._parameters = parameters
        self._discounts = (gamma, gae_lambda)
        self._capacity = capacity
        self.changed = threading.Condition()
        self.finished: deque[dict[str, Any]] = deque()
        self.newest = parameters.copy()
        self.version = 0
        self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Collect until stopped."""
        try:
            while self._begin():
                version = self._version_now
                rollout = self._rollouts.collect(*self._discounts)
                arrays = {name: getattr(rollout, name).copy() for name in self.COLUMNS}
                with self.changed:
                    if not self._stopped:
                        self.finished.append({**arrays, "version": version})
                    self.changed.notify_all()
        except BaseException as error:
            with self.changed:
                self._error = error
                self.changed.notify_all()

    def _begin(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self._stopped or len(self.finished) < self._capacity)
            self._version_now = self.version
            np.copyto(self._parameters, self.newest)
            return not self._stopped

    def take(self, *, wait: bool) -> dict[str, Any] | None:
        """The oldest finished rollout."""
        with self.changed:
            if wait:
                self.changed.wait_for(lambda: self.finished or self._stopped or self._error)
            if self.finished:
                rollout = self.finished.popleft()
                self.changed.notify_all()
                return rollout
            if self._error is not None:
                raise RuntimeError(f"the collector failed: {self._error}") from self._error
            if self._stopped:
                raise RuntimeError("the collector was stopped")
            return None

    def give(self, weights: Any) -> None:
        """Take other weights."""
        given = np.asarray(weights, np.float32)
        if given.shape != self.newest.shape:
            raise ValueError(f"weights must have shape {self.newest.shape}, got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("weights must be finite, got NaN or inf")
        with self.changed:
            np.copyto(self.newest, given)
            self.version += 1

    def stop(self) -> None:
        """Let `run` end, and nobody wait."""
        with self.changed:
            self._stopped = True
            self.finished.clear()
            self.changed.notify_all()


class _Acting:
    """Acts for `NativeRollouts`."""

    def __init__(self, learner: PolicyLearner, draws: Draws) -> None:
        self._learner = learner
        self._draws = draws

    @property
    def learner(self) -> _native.PolicyLearner:
        return self._learner.native

    def take_calls(self, n: int) -> tuple[int, int]:
        return self._draws.next_calls(n)

    def act(self, obs: Nested, starts: Flags, masks: Flags | None) -> tuple[Array, Array, Array]:  # noqa: ARG002
        return self._learner.act(obs, masks, self._draws.next_call())

    def values(self, obs: Nested, rows: npt.NDArray[np.intp] | None = None) -> Array:  # noqa: ARG002
        return self._learner.values(obs)


def _end(work: _Work, thread: threading.Thread) -> None:
    work.stop()
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join()


def _layout(
    env: NativeVectorEnv,
    obs_dim: int,
    n_actions: int,
    hidden: int | tuple[int, ...],
    activation: str,
) -> PolicyLayout:
    if activation not in ("tanh", "relu"):
        raise ValueError(f"activation must be 'tanh' or 'relu', got {activation!r}")
    layout = PolicyLayout.of(
        env.single_observation_space,
        env.single_action_space,
        hidden=(hidden, hidden) if isinstance(hidden, int) else tuple(hidden),
        activation=activation,
    )
    expected = (layout.n_inputs, sum(layout.options))
    if (obs_dim, n_actions) != expected:
        assert env.spec is not None
        raise ValueError(
            f"(obs_dim, n_actions) must be {expected} for {env.spec.id}, got {(obs_dim, n_actions)}"
        )
    return layout
