"""Vector environments of SB3 as those that agents of this library step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.core.tree import leaves
from sharpwave.envs import VecNormalize
from sharpwave.types import Array, Nested

__all__ = ["FromVecEnv", "SharedStatistics", "VecStep"]


class VecStep(NamedTuple):
    """The last step of an environment, as SB3's `step` gave it."""

    obs: Nested
    rewards: Array
    dones: Array
    infos: Sequence[dict[str, Any]]


class FromVecEnv(VectorEnv[Any, Any, Any]):
    """A Gymnasium vector environment over a `VecEnv`, which resets itself in the step of an end.

    Args:
        venv: The environment of SB3.
        takes_seed: Seed it at the first reset; otherwise it stays as its program seeded it.
        has_masks: Ask the environments for `action_masks`.

    Attributes:
        venv: The environment of SB3.
        last: The last step.
    """

    def __init__(self, venv: Any, *, takes_seed: bool, has_masks: bool = False) -> None:
        self.venv = venv
        self.num_envs = int(venv.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = getattr(venv, "render_mode", None)
        self.single_observation_space = venv.observation_space
        self.single_action_space = venv.action_space
        self.observation_space = batch_space(venv.observation_space, self.num_envs)
        self.action_space = batch_space(venv.action_space, self.num_envs)
        self.last: VecStep | None = None
        self._takes_seed = takes_seed
        self._has_masks = has_masks and venv.has_attr("action_masks")

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments."""
        if seed is not None and self._takes_seed:
            self.venv.seed(int(seed) % 2**31)
        if options:
            self.venv.set_options(options)
        return self.venv.reset(), {}

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments; the true last observations are in `infos["final_obs"]`."""
        obs, rewards, dones, infos = self.last = VecStep(*self.venv.step(actions))
        dones = np.asarray(dones, np.bool_)
        merged: dict[str, Any] = {"raw_rewards": self._raw(rewards)}
        truncated = np.zeros_like(dones)
        if dones.any():
            final_obs = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(dones).tolist():
                truncated[i] = infos[i].get("TimeLimit.truncated", False)
                final_obs[i] = infos[i].get("terminal_observation")
            merged |= {"final_obs": final_obs, "_final_obs": dones, "final_info": infos}
        return obs, rewards, dones & ~truncated, truncated, merged

    def _raw(self, rewards: Array) -> Array:
        """Rewards before a VecNormalize of SB3 scaled them."""
        of_env = getattr(self.venv, "get_original_reward", None)
        return rewards if of_env is None else np.array(of_env())

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results of a method of each environment."""
        if name == "has_wrapper_attr":
            return (self._has_masks and args[0] == "action_masks",) * self.num_envs
        return tuple(self.venv.env_method(name, *args, **kwargs))

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """The reward of a goal, where the environments have goals."""
        return self.venv.env_method("compute_reward", achieved, desired, info, indices=[0])[0]

    def close_extras(self, **_: Any) -> None:
        """Leave the environment of SB3 open: it belongs to its program."""


class SharedStatistics(VecNormalize):
    """The `VecNormalize` of SB3 around a buffer of raw steps, with the same running statistics.

    Steps are stored raw and normalized by the statistics of the time they are drawn, as in SB3.
    They are counted here; `push` writes them into SB3's object, and `pull` reads them.

    Args:
        theirs: SB3's VecNormalize.
        inner: What it wraps.
    """

    def __init__(self, theirs: Any, inner: FromVecEnv) -> None:
        super().__init__(
            inner,
            norm_obs=theirs.norm_obs,
            norm_reward=theirs.norm_reward,
            gamma=theirs.gamma,
            clip_obs=theirs.clip_obs,
            clip_reward=theirs.clip_reward,
            epsilon=theirs.epsilon,
        )
        keys = getattr(theirs, "norm_obs_keys", None)
        if keys is not None and self.norm_obs:
            self._obs_stats = {k: x if k in keys else None for k, x in self._obs_stats.items()}
        self.theirs = theirs
        self.pull()

    def pull(self) -> None:
        """Take over the statistics of SB3's object, and whether they change."""
        self.training = bool(self.theirs.training)
        for ours, theirs in self._pairs():
            count = round(theirs.count)  # SB3 begins with a ten-thousandth
            if count > 0:
                ours.load_state_dict({"mean": theirs.mean, "var": theirs.var, "count": count})

    def push(self) -> None:
        """Write the statistics into SB3's object."""
        for ours, theirs in self._pairs():
            if ours.count:
                theirs.mean = np.asarray(ours.mean, np.float64)
                theirs.var = np.asarray(ours.var, np.float64)
                theirs.count = float(ours.count)

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Statistics here beside those of SB3."""
        theirs = self.theirs
        pairs = [(self._return_stats, theirs.ret_rms)]
        if self.norm_obs:
            rms = theirs.obs_rms if isinstance(theirs.obs_rms, dict) else {"": theirs.obs_rms}
            own = dict(leaves(self._obs_stats))
            pairs += [(own[key], rms[key]) for key in own if own[key] is not None]
        return pairs
