"""Rollouts of several agents: the one place that knows how their lives end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.collect.collector import CollectorState, Flags
from sharpwave.collect.joint import JointView, flat_rows
from sharpwave.collect.rollout import Rollout, write_row
from sharpwave.collect.team_episodes import TeamStats
from sharpwave.collect.vector_step import OnStep, VectorStep
from sharpwave.core.finite import all_finite, check_finite
from sharpwave.core.tree import map_leaves
from sharpwave.envs.multi.vector import GroupStep, MultiAgentVectorEnv, MultiStep
from sharpwave.errors import NonFiniteError
from sharpwave.types import Array, Nested

__all__ = ["GroupActor", "MultiAgentCollector", "advantages_over_turns"]


class GroupActor(Protocol):
    """Chooses the actions of a group. It keeps recurrent states itself."""

    action_map: Any
    learns: bool
    """False where nobody learns from its steps."""

    def act(
        self, obs: Nested, joint: Array | None, starts: Flags, masks: Flags | None, acts: Flags
    ) -> Any:
        """An object with `actions`, `log_probs`, `values` and `extra` for rows [N * G, ...].

        Args:
            obs: [N * G, ...].
            joint: [N, ...] or [N * G, ...], what critics look at.
            starts: [N * G] where a life begins.
            masks: [N * G, n] actions allowed; None for all.
            acts: [N * G] where an agent acts; the recurrent states of others stay as they are.
        """

    def values(self, obs: Nested, joint: Array | None, rows: Any = None) -> Array:
        """Values of what comes after the last `act`, of some rows or of all."""


class MultiAgentCollector(CollectorState):
    """Collects a rollout of T steps for every group, with advantages.

    Each group's rollout has N x G rows, those of an environment's agents beside each other. A row
    is `valid` where the agent acted. The death of an agent terminates it; a time limit bootstraps
    once from the value of the true last observation. Rewards that reach an agent while it waits for
    its turn are those of its last action.

    Args:
        env: The environments.
        actors: The policies that choose the actions of each group.
        n_steps: T.
        seed: Of the first reset.
        joint: Input of the critics beside the observations; None for none.
        team_reward: Pay every agent the mean of its team.
        teams: The groups whose agents are the team of each group; None for those of the group.

    Attributes:
        rollouts: Of each group that learns.
        joints: [T, N, ...] or [T, N * G, ...] what the critic of each group looked at.
    """

    episodes: TeamStats

    def __init__(
        self,
        env: MultiAgentVectorEnv,
        actors: Mapping[str, GroupActor],
        *,
        n_steps: int,
        seed: int | None,
        joint: JointView | None = None,
        team_reward: bool = False,
        teams: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        learning = [name for name, actor in actors.items() if actor.learns]
        super().__init__(env, seed, TeamStats(env.num_envs, env.groups, learning=learning))
        self.actors = dict(actors)
        self.n_steps = n_steps
        self.joint = JointView(env, "obs") if joint is None else joint
        self.team_reward = team_reward
        self.teams = {name: (name,) for name in env.groups} if teams is None else dict(teams)
        self.timings["advantages"] = 0.0
        self.ended = np.zeros(env.num_envs, np.bool_)
        self.rollouts: dict[str, Rollout] = {}
        self.joints: dict[str, Array] = {}
        self._state: Array | None = None
        self._sizes = {name: len(agents) for name, agents in env.groups.items()}
        shapes = {name: (env.num_envs, size) for name, size in self._sizes.items()}
        self._alive = {name: np.ones(shape, np.bool_) for name, shape in shapes.items()}
        # Where the next action of an agent is the first of a life.
        self._begins = {name: np.ones(shape, np.bool_) for name, shape in shapes.items()}
        self._waits: dict[str, list[Flags]] = {name: [] for name in shapes}

    def reset(self) -> None:
        """Start new episodes everywhere."""
        step = self.env.reset(seed=self._seed)
        self._seed = None
        self.episodes.restart()
        for name, group in step.groups.items():
            self._check_obs(name, group.obs)
            self._begins[name][:] = True
        self._check_states(step)
        self._restarted = True
        self._stand(step)

    def collect(
        self, gamma: float, gae_lambda: float, on_step: OnStep | None = None
    ) -> dict[str, Rollout] | None:
        """One rollout of `n_steps` steps for each group that learns.

        Args:
            gamma: Discount.
            gae_lambda: λ of the advantages.
            on_step: Called after every step; False gives up the rollout.

        Returns:
            The rollouts by group, or None if they were given up.

        Raises:
            NonFiniteError: An environment returned NaN or inf.
        """
        if self.obs is None:
            self.reset()
        for waits in self._waits.values():
            waits.clear()
        for t in range(self.n_steps):
            if not self._step(t, on_step):
                return None
        began = time.perf_counter()
        joint = self.joint.of(self.obs, self._state)
        for name, rollout in self.rollouts.items():
            self._finish(name, rollout, joint, gamma, gae_lambda)
        self.timings["advantages"] += time.perf_counter() - began
        return self.rollouts

    def _step(self, t: int, on_step: OnStep | None) -> bool:
        """Row t of all rollouts; False gives them up."""
        clock = time.perf_counter
        began = clock()
        obs, alive = self.obs, self._alive
        joint = self.joint.of(obs, self._state)
        acted = {name: self._acted(name, joint) for name in self.actors}
        actions = {
            name: self.actors[name]
            .action_map.to_env(one.actions)
            .reshape(self.env.num_envs, self._sizes[name], *one.actions.shape[1:])
            for name, one in acted.items()
        }
        chosen = clock()
        step: MultiStep = self.env.step(actions)
        self.timings["act"] += chosen - began
        self.timings["env"] += clock() - chosen
        next_joint = None
        self._check_states(step)
        for name, group in step.groups.items():
            self._check(name, group)
            if self.actors[name].learns:
                if next_joint is None and group.truncated.any():
                    next_obs = {key: one.next_obs for key, one in step.groups.items()}
                    next_joint = self.joint.of(next_obs, step.next_state)
                paid = group._replace(rewards=self._paid(name, step))
                self._write(name, t, acted[name], paid, joint, next_joint)
            self._begins[name] &= ~alive[name]
            self._waits[name].append(~alive[name] & ~self._begins[name])
            self._begins[name] |= group.terminated | group.truncated | step.ended[:, None]
        rewards = self._count(step)
        self._stand(step)
        if on_step is None:
            return True
        mean = float(self.episodes.team_rewards(rewards).mean())
        return on_step(mean, partial(_as_vector_step, obs, actions, step, alive)) is not False

    def _paid(self, name: str, step: MultiStep) -> Array:
        """[N, G] the rewards that the agents of a group learn from."""
        own = step.groups[name].rewards
        if not self.team_reward:
            return own
        team = np.concatenate([step.groups[one].rewards for one in self.teams[name]], 1)
        return np.broadcast_to(team.mean(1, keepdims=True), own.shape)

    def _acted(self, name: str, joint: Array | None) -> Any:
        masks = self.masks[name]
        return self.actors[name].act(
            flat_rows(self.obs[name]),
            self.joint.of_group(joint, name),
            (self._begins[name] & self._alive[name]).reshape(-1),
            None if masks is None else flat_rows(masks),
            self._alive[name].reshape(-1),
        )

    def _write(
        self,
        name: str,
        t: int,
        acted: Any,
        step: GroupStep,
        joint: Array | None,
        next_joint: Array | None,
    ) -> None:
        seen = flat_rows(self.obs[name])
        rollout = self.rollouts.get(name)
        if rollout is None:
            rollout = Rollout.like(self.n_steps, seen, acted.actions, acted.extra)
            self.rollouts[name] = rollout
        write_row(rollout.obs, t, seen)
        rollout.actions[t] = acted.actions
        rollout.log_probs[t] = acted.log_probs
        rollout.values[t] = acted.values
        rollout.rewards[t] = step.rewards.reshape(-1)
        rollout.terminated[t] = step.terminated.reshape(-1)
        rollout.truncated[t] = step.truncated.reshape(-1)
        rollout.valid[t] = self._alive[name].reshape(-1)
        rollout.starts[t] = (self._begins[name] & self._alive[name]).reshape(-1)
        masks = self.masks[name]
        rollout.write_masks(t, None if masks is None else flat_rows(masks))
        if rollout.extra:
            write_row(rollout.extra, t, acted.extra)
        self._write_joint(name, t, joint)
        # Value what was cut, while the actor has the memory of that step.
        rows = np.flatnonzero(step.truncated & ~step.terminated)
        if len(rows):
            last_obs = map_leaves(lambda leaf: leaf[rows], flat_rows(step.next_obs))
            last_joint = self._rows_of_joint(name, next_joint, rows)
            rollout.next_values[t, rows] = self.actors[name].values(last_obs, last_joint, rows)

    def _write_joint(self, name: str, t: int, joint: Array | None) -> None:
        own = self.joint.of_group(joint, name)
        if own is None:
            return
        if name not in self.joints:
            # What an environment has once for all agents is stored once for all groups.
            shared = next(iter(self.joints.values()), None) if own is joint else None
            if shared is None:
                dtype = np.float32 if own.dtype.kind == "f" else own.dtype
                shared = np.zeros((self.n_steps, *own.shape), dtype)
            self.joints[name] = shared
        self.joints[name][t] = own

    def _rows_of_joint(
        self, name: str, joint: Array | None, rows: npt.NDArray[np.intp]
    ) -> Array | None:
        """Input of the critic in some of the N x G rows."""
        joint = self.joint.of_group(joint, name)
        if joint is None:
            return None
        return joint[rows if len(joint) != self.env.num_envs else rows // self._sizes[name]]

    def _finish(
        self, name: str, rollout: Rollout, joint: Array | None, gamma: float, gae_lambda: float
    ) -> None:
        """Add what is known once all steps are taken."""
        last = self.actors[name].values(flat_rows(self.obs[name]), self.joint.of_group(joint, name))
        waits = np.stack(self._waits[name]).reshape(rollout.valid.shape)
        if waits.any():
            advantages_over_turns(rollout, waits, last, gamma, gae_lambda)
            return
        following = np.concatenate((rollout.values[1:], last[None]))
        np.copyto(rollout.next_values, following, where=~rollout.truncated)
        rollout.compute_advantages(gamma, gae_lambda)

    def columns(self, name: str, *, sequences: bool) -> dict[str, Any]:
        """The rollout of a group as rows [B, ...] or sequences [T, N * G, ...].

        Beside the columns of `Rollout`, `agents` are the numbers of the rows' agents in the group,
        and `joint` with `joint_rows` what the critic looks at: rows [M, ...], and which of them
        belongs to which; of sequences [T, N, ...] or [T, N * G, ...].
        """
        rollout, size = self.rollouts[name], self._sizes[name]
        joint = self.joints.get(name)
        columns = rollout.columns(sequences=sequences)
        if sequences:
            steps, rows = rollout.valid.shape
            agents = np.tile(np.arange(size), (steps, rows // size))
            return {**columns, "agents": agents, "joint": joint, "joint_rows": None}
        alive = np.flatnonzero(rollout.valid)
        joint_rows = None
        if joint is not None:
            per_env = joint.shape[1] == self.env.num_envs and size > 1
            joint_rows = alive // size if per_env else alive
            joint = joint.reshape(-1, *joint.shape[2:])
        return {**columns, "agents": alive % size, "joint": joint, "joint_rows": joint_rows}

    def _count(self, step: MultiStep) -> Array:
        """Add a step to the statistics; the rewards [N, A] of all agents."""
        valid = ~self.ended if self.env.resets_apart else None
        self.timesteps += self.env.num_envs if valid is None else int(valid.sum())
        rewards = np.concatenate([step.groups[name].rewards for name in self.env.groups], 1)
        self.episodes.update_agents(rewards, step.ended, valid)
        return rewards

    def _stand(self, step: MultiStep) -> None:
        """Take over what to act on next."""
        self.obs = {name: group.obs for name, group in step.groups.items()}
        self.masks = {name: group.masks for name, group in step.groups.items()}
        self._alive = {name: group.alive for name, group in step.groups.items()}
        self._state = step.state
        self.ended = step.ended

    def _check(self, name: str, step: GroupStep) -> None:
        if not all_finite(step.rewards):
            env, agent = np.argwhere(~np.isfinite(step.rewards))[0]
            raise NonFiniteError(
                f"rewards must be finite, got {step.rewards[env, agent]} for "
                f"{self.env.groups[name][agent]} of environment {env} at step {self.timesteps}"
            )
        self._check_obs(name, step.next_obs)
        if step.obs is not step.next_obs:
            self._check_obs(name, step.obs)

    def _check_obs(self, name: str, obs: Nested) -> None:
        try:
            check_finite("obs", obs, self.timesteps)
        except NonFiniteError:
            for i, agent in enumerate(self.env.groups[name]):
                own = map_leaves(lambda leaf, i=i: leaf[:, i], obs)
                check_finite(f"obs of {agent}", own, self.timesteps)
            raise

    def _check_states(self, step: MultiStep) -> None:
        """Check the states of the environments, if critics look at them."""
        if self.joint.kind == "state":
            check_finite("state", step.state, self.timesteps)
            if step.next_state is not step.state:
                check_finite("state", step.next_state, self.timesteps)

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments and the actors."""
        own = {"state": self._state, "alive": dict(self._alive), "begins": dict(self._begins)}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`; in new episodes unless those of then are still there."""
        super().load_state_dict(state, in_flight=in_flight)
        if in_flight:
            self._state = state["state"]
            for name, shape in ((name, x.shape) for name, x in self._alive.items()):
                self._alive[name] = np.asarray(state["alive"][name], np.bool_).reshape(shape)
                self._begins[name] = np.asarray(state["begins"][name], np.bool_).reshape(shape)


def _as_vector_step(
    obs: Any, actions: dict[str, Any], step: MultiStep, alive: dict[str, Flags]
) -> VectorStep:
    """A step as callbacks see it: every entry by group, [N, G, ...]."""

    def column(field: str) -> dict[str, Any]:
        return {name: getattr(group, field) for name, group in step.groups.items()}

    return VectorStep(
        obs,
        actions,
        column("rewards"),
        column("terminated"),
        column("truncated"),
        column("next_obs"),
        {"infos": step.infos, "ended": step.ended},
        alive,
    )


def advantages_over_turns(
    rollout: Rollout,
    waits: npt.NDArray[np.bool_],
    last_values: npt.NDArray[np.float32],
    gamma: float,
    gae_lambda: float,
) -> None:
    """Fill `advantages` and `returns` where a row's next one is not the next in time.

    The step of an agent goes from one of its turns to the next: what it is paid meanwhile belongs
    to the action before, and an end that comes meanwhile ends that step. A step whose next turn
    lies after the rollout bootstraps from the value of what the agent sees at its end.

    Args:
        rollout: [T, B], with `next_values` where something was cut.
        waits: [T, B] where an agent waits for its turn; rows that are neither `valid` nor waiting
            are of nobody.
        last_values: [B] of what is seen at the end.
        gamma: Discount of a step, from turn to turn.
        gae_lambda: λ.
    """
    n = rollout.valid.shape[1]
    next_value, next_advantage = last_values.astype(np.float64), np.zeros(n)
    # Of the rows since the last turn, going backwards.
    paid, goes_on = np.zeros(n), np.ones(n)
    cut, cut_value = np.zeros(n, np.bool_), np.zeros(n)
    for t in reversed(range(len(rollout.valid))):
        acts, waiting = rollout.valid[t], waits[t]
        terminated = rollout.terminated[t]
        truncated = rollout.truncated[t] & ~terminated
        ended = (acts | waiting) & (terminated | truncated)
        paid = np.where(ended, 0.0, paid) + np.where(acts | waiting, rollout.rewards[t], 0.0)
        goes_on = np.where(ended, ~terminated, goes_on)
        cut_value = np.where(ended & truncated, rollout.next_values[t], cut_value)
        cut = np.where(ended, truncated, cut)

        bootstrap = goes_on * np.where(cut, cut_value, next_value)
        delta = paid + gamma * bootstrap - rollout.values[t]
        advantage = delta + gamma * gae_lambda * goes_on * ~cut * next_advantage
        rollout.advantages[t] = np.where(acts, advantage, 0.0)
        rollout.returns[t] = np.where(acts, advantage + rollout.values[t], 0.0)

        next_value = np.where(acts, rollout.values[t], next_value)
        next_advantage = np.where(acts, advantage, next_advantage)
        paid, cut = np.where(acts, 0.0, paid), cut & ~acts
        goes_on = np.where(acts, 1.0, goes_on)
