"""Rollouts that native threads collect, ahead of whoever learns from them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave import _native
from sharpwave.envs.native import NativeVectorEnv
from sharpwave.errors import NonFiniteError
from sharpwave.layouts.policy import PolicyLayout

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Self

__all__ = ["NativeCollector"]


class NativeCollector:
    """Plays native environments with a multi-layer perceptron in threads of its own.

    Environments, networks, random numbers and advantages are native code, so that collection does
    not touch the interpreter. Rollouts wait in a queue; the thread rests while it is full. A
    rollout does not depend on the number of threads, and the same seed and weights give the same
    rollouts.

    Weights are one flat vector in the order of the `state_dict` of `nn.ActorCritic`: `log_std` (of
    continuous actions only), the actor's layers, the critic's layers, of each the weight and then
    the bias. Every `sync_weights` has a version, and a rollout says with which it was collected.

    Args:
        env_id: Id of a native environment, or a NativeVectorEnv; that one is then stepped by the
            collector.
        n_envs: Number of environments.
        obs_dim: Numbers of an observation; checked where it is given.
        n_actions: Number of actions, of continuous ones their size; checked where it is given.
        n_steps: Steps of each environment in a rollout.
        hidden: Widths of the hidden layers of actor and critic; a number stands for two of it.
        activation: By its name in a configuration.
        seed: Seed of weights, environments and actions.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        capacity: Rollouts that may wait. With 0 nothing is collected ahead: `recv` collects in the
            calling thread, unless `request` began a rollout before.
        threads: Most threads that step the environments.
        values: Value the steps; otherwise a rollout has no values, and nothing made of them.
        weights: First weights; None for those of a new `PPO` with this seed.

    Raises:
        ValueError: An argument does not fit the environment or is out of range.

    Example:
        >>> with NativeCollector("CartPole-v1", 4, n_steps=8, seed=0) as collector:
        ...     batch = collector.recv()
        >>> batch["observations"].shape, batch["advantages"].shape, batch["version"]
        ((8, 4, 4), (8, 4), 0)
    """

    def __init__(
        self,
        env_id: str | NativeVectorEnv,
        n_envs: int,
        obs_dim: int | None = None,
        n_actions: int | None = None,
        n_steps: int = 128,
        hidden: int | Sequence[int] = 64,
        *,
        critic_hidden: Sequence[int] | None = None,
        activation: str = "tanh",
        seed: int = 42,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        capacity: int = 2,
        threads: int = 1,
        values: bool = True,
        weights: Any = None,
    ) -> None:
        least = {"n_steps": 1, "capacity": 0, "threads": 1, "seed": 0}
        given = {"n_steps": n_steps, "capacity": capacity, "threads": threads, "seed": seed}
        for name, value in given.items():
            if value < least[name]:
                raise ValueError(f"{name} must be at least {least[name]}, got {value}")
        for name, share in {"gamma": gamma, "gae_lambda": gae_lambda}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {share}")
        widths = (hidden, hidden) if isinstance(hidden, int | np.integer) else tuple(hidden)
        if any(width < 1 for width in (*widths, *(critic_hidden or ()))):
            raise ValueError(f"hidden must be positive, got {hidden} and {critic_hidden}")
        weight_seed, world, _ = np.random.SeedSequence(seed).spawn(3)
        if isinstance(env_id, str):
            self.env = NativeVectorEnv(env_id, n_envs)
            self.env.reset(seed=int(world.generate_state(1)[0] >> 1))
        else:
            self.env = env_id
        spaces = (self.env.single_observation_space, self.env.single_action_space)
        self.layout = PolicyLayout.of(
            *spaces, hidden=widths, critic_hidden=critic_hidden, activation=activation
        )
        for name, size, known in (
            ("n_envs", n_envs, self.env.num_envs),
            ("obs_dim", obs_dim, self.layout.n_inputs),
            ("n_actions", n_actions, self.layout.options[0]),
        ):
            if size is not None and size != known:
                raise ValueError(f"{name} must be {known} like the environment's, got {size}")
        if weights is None:
            generator = np.random.Generator(np.random.Philox(weight_seed))
            weights = self.layout.first_parameters(generator).data
        self._native = _native.Collector(
            self.env,
            widths,
            self.layout.critic_hidden,
            activation,
            weights,
            n_steps,
            gamma,
            gae_lambda,
            noise_seed(seed),
            capacity,
            threads,
            values,
        )
        # Also at the end of the process, before what the thread uses is gone.
        self._finalizer = weakref.finalize(self, self._native.stop)

    def recv(self) -> dict[str, Any]:
        """The oldest rollout, of T steps and N environments; waits until there is one.

        Returns:
            `observations` [T, N, ...], `actions` [T, N] (of continuous ones [T, N, 1], before they
            are cut to the action space), `rewards`, `dones`, `terminated`, `truncated`,
            `log_probs`, `values`, `next_values`, `starts`, `advantages`, `returns`, [T, N] each;
            `episode_returns`, `episode_lengths` [E] and `final_obs` [E, ...], the last observation,
            of the episodes that ended, by time and then by environment; `last_obs` [N, ...] after
            the last step; `version` of the weights. The next value of a truncated step is that of
            the true last observation, which it bootstraps from, once. Without `values` there are no
            `values`, `next_values`, `advantages` and `returns`.

        Raises:
            NonFiniteError: The weights gave NaN or inf.
            RuntimeError: The collector is stopped and nothing is left, or the process is a fork of
                the one that made it.
        """
        try:
            return _named(self._native.recv())
        except ValueError as error:
            raise NonFiniteError(str(error)) from None

    def try_recv(self) -> dict[str, Any] | None:
        """The rollout that waits, as `recv` gives it; None if there is none yet."""
        try:
            batch = self._native.try_recv()
        except ValueError as error:
            raise NonFiniteError(str(error)) from None
        return None if batch is None else _named(batch)

    def request(self) -> None:
        """Begin one more rollout with the weights of now, where `capacity` is 0.

        Raises:
            RuntimeError: `capacity` is not 0, or the collector is stopped.
        """
        self._native.request()

    def sync_weights(self, weights: Any) -> int:
        """Give the weights of all rollouts that begin from now on.

        Args:
            weights: [n_parameters] array or CPU tensor in the order of the `state_dict`.

        Returns:
            Their version, one more than the last.

        Raises:
            ValueError: The number of weights is another, or one of them is NaN or inf.
        """
        return self._native.set_weights(weights)

    def get_weights(self) -> npt.NDArray[np.float32]:
        """[n_parameters] the weights that `sync_weights` gave last."""
        return self._native.weights()

    @property
    def version(self) -> int:
        """The version of the weights that `sync_weights` gave last."""
        return self._native.version

    @property
    def count(self) -> int:
        """Rollouts begun so far: together with seed, weights and environments the whole state."""
        return self._native.count

    @count.setter
    def count(self, count: int) -> None:
        self._native.count = count

    def stop(self) -> None:
        """End the thread, in the midst of a rollout too; rollouts that wait can be received."""
        self._finalizer()

    def __len__(self) -> int:
        """Rollouts that wait."""
        return len(self._native)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def noise_seed(seed: int) -> int:
    """Seed of the actions of a collector with this seed."""
    noise = np.random.SeedSequence(seed).spawn(3)[2]
    return int(noise.generate_state(1, np.uint64)[0])


def _named(batch: dict[str, Any]) -> dict[str, Any]:
    batch["observations"] = batch.pop("obs")
    batch["dones"] = batch["terminated"] | batch["truncated"]
    return batch
