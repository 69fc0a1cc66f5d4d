"""`sharpwave.MAPPO` with rlox's arguments, and its collector of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave.algorithms import mappo
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.algorithms.minibatches import NativeMAPPOByMinibatch
from sharpwave.compat.rlox.config import MAPPOConfig
from sharpwave.core.lazy import torch
from sharpwave.envs.multi import MultiStep, make_multi_env
from sharpwave.primitives import gae

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

__all__ = ["MAPPO", "MAPPOConfig", "MultiAgentCollector", "MultiAgentRolloutBatch"]


class MAPPO(ByPosition, RloxAgent, mappo.MAPPO):
    """`sharpwave.MAPPO` under rlox's name, with its defaults.

    Every agent has a policy and a critic of its own; all are paid the mean of their rewards. With
    `env_fn` the environment is what that makes, whatever `env_id` is.

    Example:
        >>> agent = MAPPO("CartPole-v1")
        >>> agent.config.n_envs, agent.config.batch_size, agent.config.seed
        (4, 128, 42)
        >>> agent.close()
    """

    Native = NativeMAPPOByMinibatch
    Config = MAPPOConfig
    config: MAPPOConfig
    order: ClassVar[str] = (
        "env_id n_agents n_envs seed n_steps n_epochs batch_size learning_rate gamma gae_lambda "
        "clip_eps vf_coef ent_coef max_grad_norm env_fn logger callbacks"
    )
    defaults: ClassVar[dict[str, Any]] = {"n_agents": 1}

    @classmethod
    def _from_header(cls, path: Any, header: Any, config: Any, arguments: dict[str, Any]) -> Self:
        n_agents = sum(len(agents) for agents in header["groups"].values())
        return super()._from_header(path, header, config, {"n_agents": n_agents, **arguments})


@dataclass
class MultiAgentRolloutBatch:
    """The result of `MultiAgentCollector.collect`: rows of all environments, step by step.

    B is n_steps * n_envs. An agent that is gone has zeros.
    """

    agent_obs: dict[str, Tensor]
    """[B, ...] by agent."""
    joint_obs: Tensor
    """[B, S] the observations of all agents, one after the other."""
    agent_actions: dict[str, Tensor]
    """[B, ...] by agent."""
    agent_log_probs: dict[str, Tensor]
    """[B] by agent."""
    rewards: dict[str, Tensor]
    """[B] by agent."""
    dones: Tensor
    """[B] 1 where an episode ended, as no agent was left."""
    values: Tensor
    """[B] of the critic."""
    advantages: Tensor
    """[B] of the mean reward over agents."""
    returns: Tensor
    """[B] advantages plus values."""


class MultiAgentCollector:
    """Collects rollouts of several agents, each with its policy, and one critic for all.

    Episodes go on from one rollout to the next. Where a time limit ended one, its value goes on
    from the true last observations.

    Args:
        env_fn: Makes an environment with PettingZoo's interface.
        n_envs: Number of environments.
        n_agents: Number of its agents.

    Raises:
        ValueError: It has another number of agents.

    Example:
        >>> from sharpwave.compat.rlox.policies import DiscretePolicy
        >>> from sharpwave.envs.multi.toys import Mortal
        >>> import torch
        >>> collector = MultiAgentCollector(Mortal, n_envs=3)
        >>> policies = {name: DiscretePolicy(2, 2) for name in ("agent_0", "agent_1")}
        >>> batch = collector.collect(policies, torch.nn.Linear(4, 1), n_steps=5)
        >>> batch.joint_obs.shape, batch.rewards["agent_1"].shape
        (torch.Size([15, 4]), torch.Size([15]))
    """

    def __init__(self, env_fn: Callable[[], Any], n_envs: int = 1, n_agents: int = 2) -> None:
        self.env = make_multi_env(env_fn, n_envs, mode="sync", groups="each")
        if len(self.env.agents) != n_agents:
            names = ", ".join(self.env.agents)
            self.env.close()
            raise ValueError(f"n_agents must be {len(self.env.agents)} ({names}), got {n_agents}")
        self.n_envs, self.n_agents = n_envs, n_agents
        self._step: MultiStep | None = None

    def collect(
        self,
        policies: Mapping[str, Any],
        critic: Any,
        n_steps: int,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        device: str = "cpu",
    ) -> MultiAgentRolloutBatch:
        """Let the policies act for some steps.

        Args:
            policies: A module with `get_action_and_logprob` for each agent by name, in the order of
                the joint observations.
            critic: From joint observations [N, S] to values [N, 1].
            n_steps: Steps of each environment.
            gamma: Discount.
            gae_lambda: λ of the advantages.
            device: Where policies, critic and the batch are.

        Raises:
            ValueError: `policies` are not those of the agents.
        """
        if set(policies) != set(self.env.agents):
            raise ValueError(f"policies must be of {self.env.agents}, got {tuple(policies)}")
        if self._step is None:
            self._step = self.env.reset()
        rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        ends: dict[str, list[Any]] = {name: [] for name in ("terminated", "truncated", "values")}
        with torch.no_grad():
            for _ in range(n_steps):
                obs = self._seen(policies, self._step, "obs", device)
                acted = {name: policies[name].get_action_and_logprob(obs[name]) for name in obs}
                actions = {name: action for name, (action, _) in acted.items()}
                step = self._step = self.env.step({x: _to_env(y) for x, y in actions.items()})
                joint = _joint(obs)
                cut = step.ended & np.any([step.groups[x].truncated[:, 0] for x in obs], 0)
                ends["terminated"].append(step.ended & ~cut)
                ends["truncated"].append(cut)
                last = self._seen(policies, step, "next_obs", device) if cut.any() else obs
                ends["values"].append(critic(_joint(last)).reshape(-1))
                rows["agent_obs"].append(obs)
                rows["joint_obs"].append(joint)
                rows["agent_actions"].append(actions)
                rows["agent_log_probs"].append({x: log_prob for x, (_, log_prob) in acted.items()})
                rows["rewards"].append(self._seen(policies, step, "rewards", device))
                rows["values"].append(critic(joint).reshape(-1))
            after = critic(_joint(self._seen(policies, self._step, "obs", device))).reshape(-1)
        columns = {name: _flat(column) for name, column in rows.items()}
        terminated, truncated = (np.stack(ends[name]) for name in ("terminated", "truncated"))
        team = torch.stack(list(columns["rewards"].values())).mean(0).reshape(n_steps, -1)
        following = torch.stack([*rows["values"][1:], after]).cpu().numpy()
        np.copyto(following, torch.stack(ends["values"]).cpu().numpy(), where=truncated)
        advantages, returns = gae(
            team.cpu().numpy(),
            torch.stack(rows["values"]).cpu().numpy(),
            next_values=following,
            terminated=terminated,
            truncated=truncated,
            gamma=gamma,
            lam=gae_lambda,
        )
        return MultiAgentRolloutBatch(
            **columns,
            dones=_tensor((terminated | truncated).reshape(-1), device),
            advantages=_tensor(advantages.reshape(-1), device),
            returns=_tensor(returns.reshape(-1), device),
        )

    @staticmethod
    def _seen(agents: Iterable[str], step: MultiStep, entry: str, device: str) -> dict[str, Any]:
        """An entry of a step [N, ...] by agent."""
        return {name: _tensor(getattr(step.groups[name], entry)[:, 0], device) for name in agents}


COLUMNS = ("agent_obs", "joint_obs", "agent_actions", "agent_log_probs", "rewards", "values")


def _tensor(array: Any, device: str) -> Any:
    return torch.as_tensor(np.asarray(array, np.float32), device=device)


def _joint(obs: Mapping[str, Any]) -> Any:
    """[N, S] observations of all agents, one after the other."""
    return torch.cat([one.reshape(len(one), -1) for one in obs.values()], 1)


def _to_env(actions: Any) -> Any:
    """Actions [N, ...] of a policy as those of a group of one agent [N, 1, ...]."""
    return actions.cpu().numpy()[:, None]


def _flat(column: list[Any]) -> Any:
    """The rows of all steps, one after the other; of several agents by name."""
    if isinstance(column[0], dict):
        return {name: torch.cat([row[name] for row in column]) for name in column[0]}
    return torch.cat(column)
