"""Small robots with the interfaces of Isaac Lab, MuJoCo Playground and ManiSkill.

All of them are points that are pushed towards 0, where they stay: the best return is 0.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

STEPS = 20
"""Steps of an episode."""


def named(groups: dict[str, Tensor]) -> Any:
    """Groups of observations as rsl_rl has them: a TensorDict, where there are any."""
    try:
        from tensordict import TensorDict
    except ImportError:
        return groups
    return TensorDict(groups, batch_size=[len(next(iter(groups.values())))])


class Simulator:
    """N points in the plane, which start near 0 and move by half of an action.

    An episode ends after `STEPS` steps, or where a point gets too far away.
    """

    def __init__(self, num_envs: int, seed: int = 0, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.device = device
        self.max_episode_length = STEPS
        self.generator = torch.Generator(device).manual_seed(seed)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.place = self.first()

    def first(self) -> Tensor:
        draws = torch.rand(self.num_envs, 2, generator=self.generator, device=self.device)
        return draws - 0.5

    def move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, and where episodes failed or ran out of time; these begin anew."""
        self.place = self.place + 0.5 * actions.clamp(-1, 1)
        rewards = -self.place.square().sum(1)
        self.episode_length_buf = self.episode_length_buf + 1
        terminated = self.place.abs().amax(1) > 3
        truncated = (self.episode_length_buf >= STEPS) & ~terminated
        ended = terminated | truncated
        self.reached = self.place
        self.place = torch.where(ended[:, None], self.first(), self.place)
        self.episode_length_buf = torch.where(ended, 0, self.episode_length_buf)
        return rewards, terminated, truncated

    def groups(self) -> dict[str, Tensor]:
        """Observations of robots, and those that only simulators know."""
        return {"policy": 4 * self.place + 1, "critic": self.place.clone()}


class LabEnv(Simulator):
    """An environment of Isaac Lab with managers."""

    def __init__(
        self,
        num_envs: int,
        seed: int = 0,
        device: str = "cpu",
        *,
        is_finite_horizon: bool = False,
    ) -> None:
        super().__init__(num_envs, seed, device)
        self.cfg = SimpleNamespace(is_finite_horizon=is_finite_horizon, seed=seed)
        self.step_dt = 0.02
        self.action_manager = SimpleNamespace(total_action_dim=2)
        self.observation_manager = SimpleNamespace(compute=self.groups)
        self.is_closed = False

    @property
    def unwrapped(self) -> LabEnv:
        return self

    def reset(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        self.place = self.first()
        return self.groups(), {}

    def step(self, actions: Tensor) -> Any:
        rewards, terminated, truncated = self.move(actions)
        log = {"Episode_Reward/track": rewards.mean(), "terrain": 0.5}
        return self.groups(), rewards, terminated, truncated, {"log": log}

    def close(self) -> None:
        self.is_closed = True


class LabWrapper:
    """`RslRlVecEnvWrapper` of Isaac Lab, as for rsl_rl 3 and later."""

    def __init__(self, env: LabEnv, clip_actions: float | None = None) -> None:
        self.env = env
        self.clip_actions = clip_actions
        self.num_envs = env.num_envs
        self.device = env.device
        self.max_episode_length = env.max_episode_length
        self.num_actions = env.action_manager.total_action_dim
        self.env.reset()

    @property
    def cfg(self) -> object:
        return self.unwrapped.cfg

    @property
    def unwrapped(self) -> LabEnv:
        return self.env.unwrapped

    @property
    def episode_length_buf(self) -> Tensor:
        return self.unwrapped.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.unwrapped.episode_length_buf = value

    def get_observations(self) -> Any:
        return named(self.unwrapped.observation_manager.compute())

    def step(self, actions: Tensor) -> Any:
        if self.clip_actions is not None:
            actions = torch.clamp(actions, -self.clip_actions, self.clip_actions)
        groups, rewards, terminated, truncated, extras = self.env.step(actions)
        dones = (terminated | truncated).to(dtype=torch.long)
        if not self.unwrapped.cfg.is_finite_horizon:
            extras["time_outs"] = truncated
        return named(groups), rewards, dones, extras

    def close(self) -> None:
        self.env.close()


class OldLabWrapper(LabWrapper):
    """The same as for rsl_rl 2: pairs of the policy's observations and of extras."""

    def get_observations(self) -> Any:
        groups = self.unwrapped.observation_manager.compute()
        return groups["policy"], {"observations": groups}

    def step(self, actions: Tensor) -> Any:
        groups, rewards, terminated, truncated, extras = self.env.step(actions)
        extras |= {"observations": groups, "time_outs": truncated}
        return groups["policy"], rewards, (terminated | truncated).long(), extras


class PlaygroundWrapper:
    """`RSLRLBraxWrapper` of MuJoCo Playground: ends are floats, and observations reset."""

    def __init__(self, num_envs: int, seed: int = 0, *, asymmetric: bool = True) -> None:
        self.simulator = Simulator(num_envs, seed)
        self.num_envs = num_envs
        self.num_actions = 2
        self.max_episode_length = STEPS
        self.device = "cpu"
        self.asymmetric_obs = asymmetric

    def _groups(self) -> dict[str, Tensor]:
        groups = self.simulator.groups()
        state = {"state": groups["policy"]}
        return {**state, "privileged_state": groups["critic"]} if self.asymmetric_obs else state

    def step(self, action: Tensor) -> Any:
        rewards, terminated, truncated = self.simulator.move(torch.clip(action, -1.0, 1.0))
        groups = self._groups()
        info = {
            "time_outs": truncated.float(),
            "observations": {"critic": groups.get("privileged_state")},
            "log": {"reward/track": float(rewards.mean())},
        }
        return named(groups), rewards, (terminated | truncated).float(), info

    def reset(self) -> Any:
        self.simulator.place = self.simulator.first()
        self.simulator.episode_length_buf.zero_()
        return named(self._groups())

    def get_observations(self) -> Any:
        return self.reset()


class ManiSkillVectorEnv:
    """`ManiSkillVectorEnv` of ManiSkill: Gymnasium's five results, as tensors."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.simulator = Simulator(num_envs, seed)
        self.num_envs = num_envs
        self.device = torch.device("cpu")
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    @property
    def unwrapped(self) -> ManiSkillVectorEnv:
        return self

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.simulator.generator.manual_seed(int(seed))
        self.simulator.place = self.simulator.first()
        return self.simulator.groups()["policy"], {}

    def step(self, actions: Tensor) -> Any:
        rewards, terminated, truncated = self.simulator.move(actions)
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {
                "final_observation": 4 * self.simulator.reached + 1,
                "final_info": {"success": self.simulator.reached.abs().amax(1) < 0.1},
                "_final_info": ended,
                "_final_observation": ended,
            }
        return self.simulator.groups()["policy"], rewards, terminated, truncated, infos

    def close(self) -> None: ...


PPO = {
    "class_name": "PPO",
    "num_learning_epochs": 5,
    "num_mini_batches": 4,
    "clip_param": 0.2,
    "gamma": 0.9,
    "lam": 0.95,
    "value_loss_coef": 1.0,
    "entropy_coef": 0.0,
    "learning_rate": 1e-3,
    "max_grad_norm": 1.0,
    "use_clipped_value_loss": True,
    "schedule": "adaptive",
    "desired_kl": 0.01,
}


def config(form: int, **changes: Any) -> dict[str, Any]:
    """A configuration as Isaac Lab writes it, in the form of a version of rsl_rl."""
    runner: dict[str, Any] = {
        "class_name": "OnPolicyRunner",
        "seed": 1,
        "device": "cpu",
        "num_steps_per_env": 8,
        "max_iterations": 10,
        "save_interval": 5,
        "experiment_name": "points",
        "run_name": "",
        "logger": "tensorboard",
        "neptune_project": "isaaclab",
        "wandb_project": "isaaclab",
        "resume": False,
        "load_run": ".*",
        "load_checkpoint": "model_.*.pt",
        "clip_actions": None,
        "algorithm": dict(PPO),
    }
    spread: dict[str, Any] = {"init_noise_std": 0.5, "noise_std_type": "scalar"}
    if form == 2:
        runner |= {"empirical_normalization": True}
    if form <= 3:
        runner["policy"] = {
            "class_name": "ActorCritic",
            **spread,
            "actor_hidden_dims": [16, 8],
            "critic_hidden_dims": [16, 16],
            "activation": "elu",
        }
    if form == 3:
        runner["policy"] |= {"actor_obs_normalization": True, "critic_obs_normalization": True}
        runner["obs_groups"] = {"policy": ["policy"], "critic": ["policy", "critic"]}
    if form >= 4:
        model = {"class_name": "MLPModel", "activation": "elu", "obs_normalization": True}
        runner["actor"] = {**model, "hidden_dims": [16, 8]}
        runner["critic"] = {**model, "hidden_dims": [16, 16]}
        runner["obs_groups"] = {"actor": ["policy"], "critic": ["policy", "critic"]}
    if form == 4:
        runner["actor"] |= {"stochastic": True, **spread}
        runner["critic"] |= {"stochastic": False}
    if form == 5:
        distribution = {"class_name": "GaussianDistribution", "init_std": 0.5, "std_type": "scalar"}
        runner["actor"] |= {"distribution_cfg": distribution}
    algorithm = changes.pop("algorithm", {})
    runner["algorithm"] |= algorithm
    return {**runner, **changes}


def events_of(folder: Any) -> Any:
    """The scalars that TensorBoard reads in a folder."""
    name = "tensorboard.backend.event_processing.event_accumulator"
    events = pytest.importorskip(name).EventAccumulator(str(folder))
    events.Reload()
    return events


def env_for(form: int, num_envs: int = 32, seed: int = 0, device: str = "cpu") -> LabWrapper:
    """The wrapper that goes with such a configuration."""
    return (OldLabWrapper if form == 2 else LabWrapper)(LabEnv(num_envs, seed, device))
