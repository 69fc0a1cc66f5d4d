"""Rollouts of several agents whose environments and policy are native code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import _native
from sharpwave.collect.joint import CriticInput
from sharpwave.collect.native import noise_seed
from sharpwave.collect.native_rollouts import ARRAYS, NativeRollouts
from sharpwave.collect.rollout import VALUES, Rollout
from sharpwave.collect.team_episodes import TeamStats
from sharpwave.collect.vector_step import OnStep, VectorStep
from sharpwave.core.finite import check_weights
from sharpwave.envs.multi.native import NativeMultiAgentEnv
from sharpwave.envs.multi.single import SingleAgentVectorEnv
from sharpwave.errors import NonFiniteError
from sharpwave.storage.files import count_of

__all__ = ["NativeTeamRollouts"]

CRITICS = {"state": "joint", "concat": "joint", "agent": "own_first", "obs": "obs"}
"""Names in native code of `critic_input`: the state is the observations side by side."""


class NativeTeamRollouts:
    """Collects as `MultiAgentCollector` does, whole rollouts and without the interpreter.

    Rows are those of all agents, side by side. The input of a critic is not stored: it is the
    observations of an environment's agents, which lie beside each other. One agent by itself gets
    what `NativeRollouts` collects.

    Args:
        env: The environments, with one group of agents.
        weights: [n_parameters] memory of the policy, which the learner changes.
        moments: Gives mean and deviation by which values are denormalized.
        hidden: Widths of the actor's hidden layers.
        critic_hidden: Widths of the critic's.
        activation: As a layout has it.
        critic_input: Input of the critic.
        agent_id: Tell the policy which agent it acts for.
        team_reward: Pay every agent the mean of all.
        n_steps: T.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        seed: Seed of the environments.
        action_seed: Seed of the actions.
        threads: Most threads that step the environments.
    """

    def __init__(
        self,
        env: NativeMultiAgentEnv | SingleAgentVectorEnv,
        weights: npt.NDArray[np.float32],
        *,
        moments: Callable[[], tuple[float, float]],
        hidden: Sequence[int],
        critic_hidden: Sequence[int],
        activation: str,
        critic_input: CriticInput,
        agent_id: bool,
        team_reward: bool,
        n_steps: int,
        gamma: float,
        gae_lambda: float,
        seed: int,
        action_seed: int,
        threads: int = 1,
    ) -> None:
        self.env = env
        self.weights = weights
        self.n_steps = n_steps
        self.episodes = TeamStats(env.num_envs, env.groups)
        self.timesteps = 0
        self.timings = {"collect": 0.0}
        self.rollouts: dict[str, Rollout] = {}
        (self._group,) = env.groups
        self._moments = moments
        self._n_agents = len(env.agents)
        is_alone = self._n_agents == 1
        is_single = not isinstance(env, NativeMultiAgentEnv)
        self._stepped: Any = env.env if isinstance(env, SingleAgentVectorEnv) else env
        self._critic = "obs" if is_alone and critic_input != "state" else CRITICS[critic_input]
        self._options: dict[str, Any] = {
            "hidden": tuple(hidden),
            "critic_hidden": tuple(critic_hidden),
            "activation": activation,
            "n_steps": n_steps,
            "gamma": gamma,
            "gae_lambda": gae_lambda,
            "seed": noise_seed(action_seed) if is_single else action_seed,
            "capacity": 0,
            "threads": threads,
            "has_agent_id": agent_id and not is_alone,
            "critic": self._critic,
            "is_team_paid": team_reward,
        }
        self._seed: int | None = seed
        self._native: _native.Collector | None = None
        self._is_reset = False
        self._count = 0
        n_rows = env.num_envs * self._n_agents
        self._real = np.ones((n_steps, n_rows), np.bool_)
        self._agents = np.tile(np.arange(self._n_agents), n_steps * env.num_envs)
        self._joint_rows = np.arange(n_steps * env.num_envs).repeat(self._n_agents)

    @staticmethod
    def why_not(env: Any, learner: Any) -> str | None:
        """Why native code alone cannot play these environments; None when it can."""
        if isinstance(env, SingleAgentVectorEnv):
            reason = NativeRollouts.why_not(env.env)
            if reason is not None:
                return reason
        elif not isinstance(env, NativeMultiAgentEnv):
            return f"the environments are {type(env).__name__}, not native ones"
        elif not env.is_one_group:
            return "the agents are not one group in order"
        return None if learner.kind == "native" else "torch acts"

    def collect(
        self,
        gamma: float,  # noqa: ARG002 - as given before
        gae_lambda: float,  # noqa: ARG002
        on_step: OnStep | None = None,
    ) -> dict[str, Rollout] | None:
        """One rollout of `n_steps` steps.

        Args:
            gamma: Discount, that of the constructor.
            gae_lambda: λ of the advantages, that of the constructor.
            on_step: Called for every step, once all are taken; False gives up the rollout.

        Returns:
            The rollout by group, or None if it was given up.

        Raises:
            NonFiniteError: The weights gave NaN or inf.
        """
        began = time.perf_counter()
        check_weights(self.weights, self.timesteps)  # before environments are reset
        native = self._start() if self._native is None else self._native
        native.set_weights(self.weights, *self._moments())
        try:
            batch = native.recv()
        except ValueError as error:
            raise NonFiniteError(str(error)) from None
        self.timings["collect"] += time.perf_counter() - began
        returns = batch["episode_returns"].reshape(-1, self._n_agents)
        self.episodes.add_agents(returns)
        self.episodes.add(returns.mean(axis=1), batch["episode_lengths"])
        if not self._tell(batch, on_step):
            return None
        arrays = {name: batch[name] for name in (*ARRAYS, *VALUES)}
        self.rollouts[self._group] = Rollout(obs=batch["obs"], valid=self._real, **arrays)
        return self.rollouts

    def columns(self, name: str, *, sequences: bool) -> dict[str, Any]:
        """The rollout of the group as rows [B, ...]; see `MultiAgentCollector.columns`."""
        rollout = self.rollouts[name]
        columns = rollout.columns(sequences=sequences)
        joint = joint_rows = None
        if self._critic != "obs":
            obs: Any = rollout.obs
            joint = obs.reshape(len(self._joint_rows) // self._n_agents, -1)
            joint_rows = self._joint_rows
        return {**columns, "agents": self._agents, "joint": joint, "joint_rows": joint_rows}

    def close(self) -> None:
        """End the thread."""
        if self._native is not None:
            self._native.stop()

    def _start(self) -> _native.Collector:
        if not self._is_reset:
            self.env.reset(seed=self._seed)
            self._seed = None
        self._native = _native.Collector(self._stepped, weights=self.weights, **self._options)
        self._native.count = self._count
        return self._native

    def _tell(self, batch: dict[str, Any], on_step: OnStep | None) -> bool:
        """Count all steps and tell of each; False where somebody gives up the rollout."""
        n_envs = self.env.num_envs
        if on_step is None:
            self.timesteps += self.n_steps * n_envs
            return True
        for t, rewards in enumerate(batch["rewards"]):
            self.timesteps += n_envs
            if on_step(float(rewards.mean()), partial(self._vector_step, batch, t)) is False:
                return False
        return True

    def _vector_step(self, batch: dict[str, Any], t: int) -> VectorStep:
        """A step as callbacks see it: every entry by group, [N, G, ...]."""
        shape = (self.env.num_envs, self._n_agents)

        def entry(rows: Any) -> dict[str, Any]:
            return {self._group: rows.reshape(*shape, *rows.shape[1:])}

        obs, actions = batch["obs"], batch["actions"][t]
        space: Any = self.env.action_spaces[self._group]
        if actions.dtype.kind == "f":
            actions = np.clip(actions, space.low, space.high)
        ends = batch["terminated"] | batch["truncated"]
        next_obs = obs[t + 1] if t + 1 < len(obs) else batch["last_obs"]
        if ends[t].any():
            before = np.count_nonzero(ends[:t])
            next_obs = next_obs.copy()
            next_obs[ends[t]] = batch["final_obs"][before : before + np.count_nonzero(ends[t])]
        ended = ends[t].reshape(shape)[:, 0]
        return VectorStep(
            entry(obs[t]),
            entry(actions),
            entry(batch["rewards"][t]),
            entry(batch["terminated"][t]),
            entry(batch["truncated"][t]),
            entry(next_obs),
            {"infos": [{} for _ in ended], "ended": ended},
            entry(np.ones_like(ends[t])),
        )

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments."""
        return {
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "count": self._count if self._native is None else self._native.count,
            "is_reset": self._is_reset or self._native is not None,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: The result of `state_dict`.
            in_flight: True if the environments are in the state of then. Otherwise new episodes
                start.
        """
        self.close()
        self._native = None
        self.timesteps = count_of(state, "timesteps")
        self.timings.update({name: float(x) for name, x in state["timings"].items()})
        self.episodes.load_state_dict(state["episodes"])
        # Where another collector began, the steps so far number rollouts that were not drawn yet.
        self._count = count_of({"count": self.timesteps, **state}, "count")
        if self.timesteps:
            self._seed = None
        self._is_reset = in_flight and bool(state["is_reset"])
